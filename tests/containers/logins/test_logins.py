"""Other logins than the class list: their files, read as the hub reads them; whole logins at a stand-in provider."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import time
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from containers.hub.passwords import hash_password
from tests import hub_environment
from tests.hub_environment import HUB

pytestmark = [pytest.mark.slow, pytest.mark.container]
# As jupyterhub_config.py does it; then what is asked of the authenticator.
LOAD = """
import json, pathlib, runpy, sys
hub, state, login, ask = sys.argv[1:]
sys.path.insert(0, hub)
from traitlets.config import Config
c = Config()
c.Authenticator.allow_all = True
runpy.run_path(f"{hub}/logins/{login}.py", {"c": c, "settings": {}, "state": pathlib.Path(state)})
import jupyterhub.app
app = jupyterhub.app.JupyterHub(config=c)
authenticator = app.authenticator_class(config=c)
print(json.dumps(eval(ask)))
"""


@pytest.fixture(scope="module")
def python():
    return hub_environment.python()


@pytest.fixture
def load(python, tmp_path):
    """load(login, settings, ask): what `ask` says of the authenticator, or the sentence with which the hub ends."""

    def run(login, settings, ask="None"):
        (tmp_path / "class.json").write_text(json.dumps({"ada": {"role": "learner", "scrypt": ""}}))
        if settings is not None:
            (tmp_path / "login.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
        command = [python, "-c", LOAD, HUB, tmp_path, login, ask]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
        if done.returncode:
            assert "Traceback" not in done.stderr
            return done.stderr.strip()
        return json.loads(done.stdout)

    return run


OAUTH = {
    "client_id": "hub",
    "client_secret": "s3cret",
    "authorize_url": "https://login.example.org/authorize",
    "token_url": "https://login.example.org/token",
    "userdata_url": "https://login.example.org/userinfo",
    "callback_url": "https://hub.example.org/hub/oauth_callback",
    "username_claim": "preferred_username",
}


class TestOAuth:
    def test_the_settings_arrive(self, load):
        names = ["client_id", "client_secret", "authorize_url", "token_url", "userdata_url", "oauth_callback_url"]
        assert load("oauth", OAUTH, f"[getattr(authenticator, name) for name in {names}]") == list(OAUTH.values())[:6]

    def test_the_class_list_says_who_gets_in_by_what_the_provider_calls_the_name(self, load):
        name = "authenticator.user_info_to_username({'preferred_username': 'ada', 'email': 'eve@example.org'})"
        right = "[authenticator.validate_username(name) for name in ('ada', 'eve', '')]"
        ask = f"[{name}, {right}, sorted(authenticator.admin_users)]"
        assert load("oauth", OAUTH, ask) == ["ada", [True, False, False], []]


TOKEN = {
    "sub": "0f3a",
    "email": "ada@example.org",
    "https://purl.imsglobal.org/spec/lti/claim/custom": {"login": "ada"},
}
ENDPOINTS = "[authenticator.issuer, authenticator.authorize_url, authenticator.jwks_endpoint]"


class TestLti:
    def test_moodle_s_addresses_are_those_of_the_site(self, load):
        settings = {"platform": "moodle", "site": "https://moodle.example.org/", "client_id": ["abc"]}
        assert load("lti13", settings, ENDPOINTS) == [
            "https://moodle.example.org",
            "https://moodle.example.org/mod/lti/auth.php",
            "https://moodle.example.org/mod/lti/certs.php",
        ]

    def test_canvas_is_instructure_s(self, load):
        issuer, *others = load("lti13", {"platform": "canvas", "client_id": ["1"]}, ENDPOINTS)
        assert issuer == "https://canvas.instructure.com"
        assert all(address.startswith("https://sso.canvaslms.com/api/lti/") for address in others)

    def test_names_are_logins_of_the_platform(self, load):
        settings = {"platform": "canvas", "client_id": ["1"]}
        names = ("ada.b-1", "ada@example.org", "../ada", "a" * 40)
        right = f"[authenticator.validate_username(name) for name in {names}]"
        ask = f"[authenticator.get_username({TOKEN}), {right}]"
        assert load("lti13", settings, ask) == ["ada", [True, False, False, False]]

    def test_who_was_removed_gets_in_neither_by_the_platform_nor_by_a_session(self, load, tmp_path):
        settings = {"platform": "canvas", "client_id": ["1"]}
        (tmp_path / "removed.json").write_text('["ben"]')
        user = "__import__('types').SimpleNamespace(name=name)"
        refreshed = f"__import__('asyncio').run(authenticator.refresh_user({user}))"
        ask = f"[[authenticator.validate_username(name), {refreshed}] for name in ('ada', 'ben')]"
        assert load("lti13", settings, ask) == [[True, True], [False, False]]

    def test_the_addresses_that_the_platform_is_told(self, load):
        ask = "[authenticator.login_url('/hub'), authenticator.callback_url('/hub')]"
        addresses = load("lti13", {"platform": "canvas", "client_id": ["1"]}, ask)
        text = (HUB / "logins" / "lti13.py").read_text()
        assert all(f"https://hub.example.org{address}\n" in text for address in addresses)


# A user who logs in, has a token, and gets a new password; what the cookie's id and the tokens are then.
NEW_PASSWORD = """
import asyncio, json, pathlib, sys, types
hub, file = sys.argv[1], pathlib.Path(sys.argv[2])
sys.path.insert(0, hub)
from class_list import ClassList
from jupyterhub import orm, roles
from passwords import hash_password

def write(password):
    file.write_text(json.dumps({"ada": {"role": "learner", "scrypt": hash_password(password)}}))

def wrapper():
    row = orm.User.find(db, "ada")
    return row and types.SimpleNamespace(name="ada", orm_user=row)

def login(password):
    return asyncio.run(ada.authenticate(handler, {"username": "ada", "password": password}))

def refresh():
    return asyncio.run(ada.refresh_user(wrapper()))

def state():
    return [wrapper().orm_user.cookie_id, len(wrapper().orm_user.api_tokens)]

db = orm.new_session_factory("sqlite:///:memory:")()
for role in roles.get_default_roles():
    roles.create_role(db, role)
db.add(orm.OAuthClient(identifier="jupyterhub"))
handler = types.SimpleNamespace(find_user=lambda name: wrapper())
ada = ClassList(path=str(file), allow_all=True)
write("first")
said = {"login": login("first")}
db.add(orm.User(name="ada"))
db.commit()
ada.add_user(wrapper())
wrapper().orm_user.new_api_token()
said["logged in"], said["goes on"] = state(), refresh()
ada.add_user(wrapper().orm_user)  # the hub starts again
login("first")
said["again"] = state()
write("second")
said["new password"], said["then"] = refresh(), state()
wrapper().orm_user.new_api_token()
write("third")
said["old one"], said["old state"] = login("second"), state()
said["new one"], said["new state"], said["new goes on"] = login("third"), state(), refresh()
print(json.dumps(said))
"""


def test_a_new_password_ends_sessions_and_tokens_of_the_old_one(python, tmp_path):
    command = [str(python), "-c", NEW_PASSWORD, str(HUB), str(tmp_path / "class.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = json.loads(done.stdout or done.stderr)
    first, second, third = (said[name][0] for name in ("logged in", "then", "new state"))
    assert said["login"] == "ada" and said["goes on"] and said["logged in"] == said["again"] == [first, 1]
    assert not said["new password"] and said["then"] == [second, 0]
    assert said["old one"] is None and said["old state"] == [second, 1]
    assert said["new one"] == "ada" and said["new state"] == [third, 0] and said["new goes on"]
    assert len({first, second, third}) == 3, "a cookie of one password does not fit to another's"


@pytest.mark.parametrize(
    "login, settings, sentence",
    [
        ("oauth", None, "There is no login.json in the class's state folder: write it, with client_id, client_secret"),
        ("oauth", {**OAUTH, "client_secret": ""}, "lacks client_secret: add it."),
        ("oauth", "{", "login.json in the class's state folder cannot be read"),
        ("oauth", "[]", "lacks client_id, client_secret"),
        ("lti13", {"platform": "canvas"}, "lacks client_id: add it."),
        ("lti13", {"platform": "moodle", "client_id": ["1"]}, "lacks site: add it."),
        ("lti13", {"client_id": ["1"]}, "lacks issuer, authorize_url, jwks_endpoint: add it."),
    ],
)
def test_what_is_missing_is_a_sentence(load, login, settings, sentence):
    said = load(login, settings)
    assert sentence in said and "\n" not in said


CONFIG = """
import pathlib, runpy, sys
sys.path.insert(0, {hub!r})
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.command = [{node!r}, {proxy!r}]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.redirect_to_server = False
c.JupyterHub.spawner_class = "simple"
c.Authenticator.allow_all = True
runpy.run_path({login!r}, {{"c": c, "settings": {{}}, "state": pathlib.Path({state!r})}})
"""


class Browser:
    """What a browser does at a login: it sends cookies back, and shows where it is sent next."""

    def __init__(self, port: int) -> None:
        self.port, self.cookies = port, SimpleCookie()

    def ask(
        self, method: str, path: str, form: dict | None = None, headers: dict | None = None
    ) -> tuple[int, str, str]:
        """Status, address of a redirection, text."""
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in self.cookies.items())
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
        headers = {"Cookie": cookies, **kind, **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, urlencode(form) if form else None, headers)
            answer = connection.getresponse()
            for header in answer.msg.get_all("Set-Cookie", []):
                self.cookies.load(header)
            return answer.status, answer.getheader("Location", ""), answer.read().decode(errors="replace")

    def login(self, name: str, password: str) -> None:
        """Fill in the form of the class list's login."""
        self.ask("GET", "/hub/login")
        form = {"_xsrf": self.cookies["_xsrf"].value, "username": name, "password": password}
        self.ask("POST", "/hub/login?next=/hub/home", form)

    def user(self) -> str:
        """Who the hub says has logged in; nobody: "" """
        status, _, text = self.ask("GET", "/hub/home")
        return text.split('user: "')[1].split('"')[0] if status == 200 and 'user: "' in text else ""


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


@pytest.fixture(scope="module")
def provider(python):
    """The port of provider.py."""
    script = Path(__file__).with_name("provider.py")
    with subprocess.Popen([str(python), str(script)], stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.kill()


@pytest.fixture(scope="module")
def hubs(python, tmp_path_factory):
    """hub(login, settings): the port of a hub with this login, which may be a file; the class list has ada."""
    with contextlib.ExitStack() as stack:

        def start(login, settings, file=None):
            folder = tmp_path_factory.mktemp(login)
            (folder / "class.json").write_text(json.dumps({"ada": {"role": "learner", "scrypt": ""}}))
            (folder / "login.json").write_text(json.dumps(settings))
            port, hub_port, api_port = free_port(), free_port(), free_port()
            environment = python.parent.parent
            proxy = environment / "node_modules/configurable-http-proxy/bin/configurable-http-proxy"
            text = CONFIG.format(
                hub=str(HUB),
                port=port,
                hub_port=hub_port,
                api_port=api_port,
                node=str(environment / "bin/node"),
                proxy=str(proxy),
                login=str(file or HUB / "logins" / f"{login}.py"),
                state=str(folder),
            )
            (folder / "config.py").write_text(text)
            log = stack.enter_context((folder / "log").open("w"))
            command = [str(python), "-m", "jupyterhub", "--config", str(folder / "config.py")]
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            stack.callback(process.wait, 60)
            stack.callback(process.send_signal, signal.SIGTERM)
            deadline = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError):
                    if Browser(port).ask("GET", "/hub/health")[0] == 200:
                        return port
                assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)

        yield start


@pytest.fixture(scope="module")
def oauth_hub(hubs, provider):
    address = f"http://127.0.0.1:{provider}"
    urls = {"authorize_url": f"{address}/authorize", "token_url": f"{address}/token"}
    return hubs("oauth", {**OAUTH, **urls, "userdata_url": f"{address}/userinfo"})


@pytest.mark.parametrize("name, user", [("ada", "ada"), ("eve", "")])
def test_a_login_at_the_provider(oauth_hub, name, user):
    browser = Browser(oauth_hub)
    status, address, _ = browser.ask("GET", "/hub/oauth_login")
    query = parse_qs(urlsplit(address).query)
    assert (status, query["client_id"], query["redirect_uri"]) == (302, ["hub"], [OAUTH["callback_url"]])
    answer = urlencode({"code": name, "state": query["state"][0]})
    status, _, text = browser.ask("GET", f"/hub/oauth_callback?{answer}")
    assert status == (302 if user else 403), text
    assert browser.user() == user
    assert Browser(oauth_hub).ask("GET", f"/hub/oauth_callback?{answer}")[0] == 400  # not in another browser


@pytest.fixture(scope="module")
def lti_hub(hubs, provider):
    address = f"http://127.0.0.1:{provider}"
    endpoints = {"issuer": address, "authorize_url": f"{address}/authorize", "jwks_endpoint": f"{address}/keys"}
    return hubs("lti13", {**endpoints, "client_id": ["tool"]})


@pytest.mark.parametrize(
    "launch, status, user",
    [
        ({"name": "ben"}, 302, "ben"),  # from the platform, not from the class list
        ({"name": "ben", "key": "other"}, 400, ""),  # signed by somebody else
        ({"name": "ben", "audience": "another"}, 401, ""),
        ({"name": "ben", "nonce": "0"}, 400, ""),
        ({"name": "../ada"}, 403, ""),
    ],
)
def test_a_launch_from_a_course_page(lti_hub, provider, launch, status, user):
    browser = Browser(lti_hub)
    issuer = f"http://127.0.0.1:{provider}"
    form = {"iss": issuer, "login_hint": "7", "client_id": "tool", "target_link_uri": "https://hub.example.org/hub"}
    code, address, _ = browser.ask("POST", "/hub/lti13/oauth_login", form)
    assert code == 302 and address.startswith(f"{issuer}/authorize?")
    query = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
    assert query["redirect_uri"] == f"https://127.0.0.1:{lti_hub}/hub/lti13/oauth_callback"
    claims = {"nonce": query["nonce"], "audience": query["client_id"], **launch}
    token = json.loads(Browser(provider).ask("GET", f"/launch?{urlencode(claims)}")[2])
    code, _, text = browser.ask("POST", "/hub/lti13/oauth_callback", {"id_token": token, "state": query["state"]})
    assert code == status, text
    assert browser.user() == user


CLASS_LOGIN = """
from class_list import ClassList
c.JupyterHub.authenticator_class = ClassList
c.ClassList.path = {path!r}
c.Authenticator.auth_refresh_age = 1
c.Authenticator.auth_refresh_strict = True
"""


def test_sessions_of_the_class_list_end_with_their_password(hubs, tmp_path):
    def write(password):
        (tmp_path / "class.json").write_text(json.dumps({"ada": {"role": "", "scrypt": hash_password(password)}}))
        time.sleep(1.1)  # until the hub examines sessions again

    (tmp_path / "login.py").write_text(CLASS_LOGIN.format(path=str(tmp_path / "class.json")))
    write("first")
    old, new = (Browser(port) for port in [hubs("class", {}, tmp_path / "login.py")] * 2)
    old.login("ada", "first")
    assert old.user() == "ada"
    xsrf = {"X-XSRFToken": old.cookies["_xsrf"].value, "Content-Type": "application/json"}
    token = json.loads(old.ask("POST", "/hub/api/users/ada/tokens", headers=xsrf)[2])["token"]

    def status():
        return Browser(old.port).ask("GET", "/hub/api/user", headers={"Authorization": f"token {token}"})[0]

    time.sleep(1.1)
    assert (status(), old.user()) == (200, "ada")
    write("first")  # which has another hash
    assert (status(), old.user()) == (403, "")
    new.login("ada", "first")
    assert new.user() == "ada"
    time.sleep(1.1)
    assert (new.user(), status(), old.user()) == ("ada", 403, "")
    (tmp_path / "class.json").write_text("{}")
    time.sleep(1.1)
    assert new.user() == ""
