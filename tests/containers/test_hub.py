"""The hub with a real engine: Podman, as root, in namespaces of its own; learners who log in, fetch, submit and pry.

The labs' image is the learner's without TensorFlow and Horovod: what the hub meets is the same (`course lab`, the
single-user server, nbgrader's Assignment List). The hub's image is the real one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
from nbgrader.utils import notebook_hash
from playwright.sync_api import Page, sync_playwright

from course_lib.command.classroom import handout
from course_lib.system import paths

if TYPE_CHECKING:
    from conftest import Engine

pytestmark = [pytest.mark.alone, pytest.mark.container, pytest.mark.long, pytest.mark.slow]

CONTAINERS = paths.ROOT / "containers"
PATIENCE = 600  # seconds for a build, or for what a busy machine takes its time for
NETWORK_NAMESPACE = 0x40000000
LAB = "lab2_horovod"
DOMAIN = "hub.test"
LAB_IMAGE = """\
FROM localhost/empty-debian
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv tini && apt-get clean
RUN python3 -m venv /course/.venv
COPY environment /tmp/environment
RUN cd /tmp/environment && /course/.venv/bin/pip install --quiet --no-cache-dir -c requirements.lock \
    jupyterlab nbgrader numpy psutil rich typer \
    && /course/.venv/bin/pip install --quiet --no-cache-dir --no-deps -r requirements.txt
RUN useradd --uid 1000 --create-home learner && install -d -o learner -g learner /workspace /exchange
COPY image/course-start image/course-health course-command /usr/local/bin/
COPY course /course
ENV PATH=/course/.venv/bin:$PATH LANG=C.UTF-8 XDG_CACHE_HOME=/workspace/.cache PYTHONPATH=/course:/course/assessment
RUN ln -s /usr/local/bin/course-command /course/.venv/bin/course
USER learner
WORKDIR /workspace
VOLUME /workspace
ENTRYPOINT ["tini", "--", "course-start"]
"""
COURSE = "#!/course/.venv/bin/python\nfrom course_lib.command.cli import main\n\nmain()\n"


def hub_module(name: str):
    spec = importlib.util.spec_from_file_location(name, CONTAINERS / "hub" / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@contextlib.contextmanager
def network_of(process: int) -> Iterator[None]:
    """This thread in the network of another process: sockets that it opens are there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as own, open(f"/proc/{process}/ns/net") as other:
        assert libc.setns(other.fileno(), NETWORK_NAMESPACE) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(own.fileno(), NETWORK_NAMESPACE) == 0


def until(condition, what: str):
    """Wait for `condition`; return what it returns."""
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return result


class Hub:
    """A class on a host of its own: state folder, engine, hub."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.state = engine, engine.folder / "state"
        self.state.mkdir()
        passwords = hub_module("passwords")
        self.passwords = {name: passwords.new_password() for name in ("ada", "ben", "carl", "dan", "erin", "grace")}
        self.members = {
            name: {"role": "instructor" if name == "grace" else "learner", "scrypt": passwords.hash_password(password)}
            for name, password in self.passwords.items()
        }
        self.write_class()
        (self.state / "calibration").mkdir()
        (self.state / "calibration" / "calibration.json").write_text('{"key": "operator"}')
        self.service = None
        self.podman("network", "create", "course-hub")
        (network,) = json.loads(self.podman("network", "inspect", "course-hub"))
        self.address = network["subnets"][0]["gateway"].rpartition(".")[0] + ".100"
        self.url = f"http://{self.address}:8000"
        cores = sorted(os.sched_getaffinity(0))
        settings = {
            "engine": "podman",
            "state": str(self.state),
            "hostname": socket.gethostname(),
            "timezone": "Europe/Berlin",
            "images": {"learner": "localhost/course-learner", "instructor": "localhost/course-learner"},
            "hours": 1,
            "memory": 1024,
            "shared_memory": "64m",
            "processes": 1024,
            "ulimits": {"nofile": 4096, "nproc": 8192},
            "sandbox": ["seccomp=unconfined", "unmask=ALL"],
            "cores": {"labs": cores, "slots": [cores]},
            "cpuset": True,
            "gpus": [],
            "gpus_each": 0,
            "network": "course-hub",
            "connect": self.address,
            "data": "",
            "domain": "",
            "login": "",
        }
        self.settings = settings
        self.socket = engine.folder / "podman.sock"

    def open(self) -> None:
        """Start the engine's API, and the hub."""
        self.service = self.engine.start("podman", "system", "service", "--time=0", f"unix://{self.socket}")
        until(self.socket.exists, "Podman's API does not start")
        self.start()

    def write_class(self) -> None:
        (self.state / "class.json").write_text(json.dumps(self.members))

    def start(self) -> None:
        """Start the hub; wait until it answers."""
        (self.state / "hub.json").write_text(json.dumps(self.settings))
        mounts = ["--volume", f"{self.state}:/srv/state", "--volume", f"{self.socket}:/var/run/docker.sock"]
        name = ["--name", "course-hub", "--network", "course-hub", "--ip", self.address]
        limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=8192:8192"]
        self.podman("run", "--detach", *limits, *name, *mounts, "localhost/course-hub")
        until(self.answers, "the hub does not answer")

    def answers(self) -> bool:
        try:
            return self.get("/hub/health").ok
        except requests.ConnectionError:
            running = self.podman("inspect", "--format", "{{.State.Running}}", "course-hub").strip()
            assert running == "true", self.log()
            return False

    def end(self) -> None:
        """As when its host fails: nothing of it has time for anything."""
        self.podman("kill", "course-hub")
        self.podman("rm", "--force", "course-hub")

    def log(self) -> str:
        done = self.engine.run("podman", "logs", "course-hub")
        return done.stdout + done.stderr

    def podman(self, *arguments: str) -> str:
        done = self.engine.run("podman", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inside(self, name: str, script: str) -> str:
        """Run a shell script in a lab as its user; return all that it writes."""
        done = self.engine.run("podman", "exec", f"course-lab-{name}", "sh", "-c", script)
        return done.stdout + done.stderr

    def get(self, path: str, **options) -> requests.Response:
        with network_of(self.engine.pid):
            return requests.get(self.url + path, timeout=60, **options)

    def close(self) -> None:
        if self.service:
            self.service.terminate()
            self.service.communicate()


class User:
    """Somebody at a browser, and with a token of their own."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.name = hub, name
        self.session = requests.Session()
        self.session.trust_env = False
        self.token = ""

    def login(self, password: str) -> requests.Response:
        """The page after the form."""
        self._ask("GET", "/hub/login")
        return self._form("/hub/login?next=/hub/home", username=self.name, password=password)

    def enter(self) -> User:
        """Log in, ask for a token, start the lab and wait for it."""
        assert self.login(self.hub.passwords[self.name]).ok
        answer = self._ask("POST", f"/hub/api/users/{self.name}/tokens", headers=self._xsrf("/hub/"), json={})
        assert answer.status_code == 201, answer.text
        self.token = answer.json()["token"]
        return self.start_lab()

    def start_lab(self) -> User:
        """Start the lab, and wait for it."""
        self.ask("POST", f"/hub/api/users/{self.name}/server")
        until(self.lab_answers, f"the lab of {self.name} does not start: {self.hub.log()}")
        return self

    def lab_answers(self) -> bool:
        return self.ask("GET", f"/user/{self.name}/api/status").status_code == 200

    def ask(self, method: str, path: str, **options) -> requests.Response:
        """With the token, without cookies."""
        headers = {"Authorization": f"token {self.token}"}
        with network_of(self.hub.engine.pid):
            return requests.request(method, self.hub.url + path, headers=headers, timeout=PATIENCE, **options)

    def lab(self, method: str, path: str, **options) -> requests.Response:
        """Of one's own lab."""
        return self.ask(method, f"/user/{self.name}{path}", **options)

    def assignments(self) -> dict[tuple[str, str], dict]:
        """What the Assignment List shows: by name and status."""
        answer = self.lab("GET", "/assignments", params={"course_id": "course"}).json()
        assert answer["success"], answer["value"]
        return {(entry["assignment_id"], entry["status"]): entry for entry in answer["value"]}

    def submit(self, lab: str) -> dict:
        return self.lab("POST", "/assignments/submit", json={"course_id": "course", "assignment_id": lab}).json()

    def _form(self, path: str, **fields: str) -> requests.Response:
        return self._ask("POST", path, data={"_xsrf": self._cookie("/hub/"), **fields})

    def _xsrf(self, path: str) -> dict[str, str]:
        return {"X-XSRFToken": self._cookie(path), "Referer": f"{self.hub.url}/hub/home"}

    def _cookie(self, path: str) -> str:
        return next(cookie.value for cookie in self.session.cookies if (cookie.name, cookie.path) == ("_xsrf", path))

    def _ask(self, method: str, path: str, **options) -> requests.Response:
        with network_of(self.hub.engine.pid):
            return self.session.request(method, self.hub.url + path, timeout=PATIENCE, **options)


@pytest.fixture(scope="module")
def hub(debian, new_engine) -> Iterator[Hub]:
    engine = new_engine(network=True)
    engine.make_base(debian)
    context = engine.folder / "lab"
    handout.hand_out(context / "course")
    shutil.copytree(CONTAINERS / "image", context / "image")
    (context / "environment").mkdir()
    shutil.copy(paths.ROOT / "requirements.lock", context / "environment")
    shutil.copy(CONTAINERS / "image" / "requirements.txt", context / "environment")
    (context / "course-command").write_text(COURSE)
    (context / "course-command").chmod(0o755)
    (context / "Dockerfile").write_text(LAB_IMAGE)
    build = ("build", "--isolation", "chroot", "--format", "docker")
    engine.buildah(*build, "--tag", "localhost/course-learner", str(context), timeout=PATIENCE)
    base = ("--build-arg", "BASE=localhost/empty-debian")
    dockerfile = ("--file", "containers/hub/Dockerfile")
    engine.buildah(*build, *base, *dockerfile, "--tag", "localhost/course-hub", ".", timeout=PATIENCE)
    hub = Hub(engine)
    try:
        hub.open()
        yield hub
    finally:
        hub.close()


@pytest.fixture(scope="module")
def ada(hub) -> User:
    return User(hub, "ada").enter()


@pytest.fixture(scope="module")
def ben(hub) -> User:
    return User(hub, "ben").enter()


@pytest.fixture(scope="module")
def grace(hub) -> User:
    """The instructor."""
    return User(hub, "grace").enter()


class TestLogin:
    def test_the_right_password_opens_the_hub(self, hub):
        page = User(hub, "carl").login(hub.passwords["carl"])
        assert page.status_code == 200 and page.url.endswith("/hub/home")

    @pytest.mark.parametrize(("name", "password"), [("carl", "wrong"), ("nobody", "wrong"), ("nobody", ""), ("", "")])
    def test_a_wrong_password_and_an_unknown_name_get_the_same_answer(self, hub, name, password):
        user = User(hub, name)
        page = user.login(password)
        assert page.status_code == 403 and "Invalid username or password" in page.text
        assert "/hub/login" in user._ask("GET", "/hub/home").url

    def test_another_learners_password_opens_nothing(self, hub):
        assert User(hub, "carl").login(hub.passwords["ada"]).status_code == 403


class TestLearner:
    def test_the_lab_is_the_learners_own_and_without_rights(self, hub, ada):
        said = hub.inside("ada", "id -u; grep -E 'CapBnd|NoNewPrivs|Seccomp:' /proc/1/status; ls /workspace")
        user, capabilities, privileges, filters, *names = said.split("\n")
        assert user == "1000" and capabilities.split()[1].strip("0") == ""
        assert (privileges.split()[1], filters.split()[1]) == ("1", "2")
        assert {"Welcome.md", LAB, "assessment", "feedback"} <= set(names)
        assert ada.lab("GET", "/api/contents/Welcome.md").ok

    def test_the_first_page_is_the_welcome_page(self, ada):
        page = ada._ask("GET", "/hub/spawn")
        assert page.status_code == 200 and page.url.endswith("/user/ada/lab/tree/Welcome.md")

    def test_the_assignment_list_has_all_labs_as_downloaded(self, hub, ada):
        names = {path.name for path in (paths.ROOT / "labs").glob("lab*")} | {"assessment"}
        assert {name for name, status in ada.assignments() if status == "fetched"} == names
        assert {path.name for path in (hub.state / "exchange/outbound").iterdir()} == names

    def test_what_is_submitted_lies_in_the_learners_own_folder_on_the_host(self, hub, ada, ben):
        notebook = json.loads((hub.state / "workspaces/ada" / LAB / "2a_meet_the_ranks.ipynb").read_text())
        notebook["cells"][0]["source"] = "Ada's"
        body = {"type": "notebook", "format": "json", "content": notebook}
        assert ada.lab("PUT", f"/api/contents/{LAB}/2a_meet_the_ranks.ipynb", json=body).ok
        assert ada.submit(LAB)["success"]
        (submission,) = (hub.state / "exchange/inbound/ada").iterdir()
        assert submission.name.startswith(f"ada+{LAB}+")
        assert "Ada's" in (submission / "2a_meet_the_ranks.ipynb").read_text()
        assert (submission / "timestamp.txt").exists()
        assert list((hub.state / "exchange/inbound/ben").iterdir()) == []
        assert (LAB, "submitted") in ada.assignments() and (LAB, "submitted") not in ben.assignments()

    def test_feedback_is_read_where_it_lies(self, hub, ada, ben):
        (hub.state / "exchange/feedback/ada" / "page.html").write_text("well done")
        assert hub.inside("ada", "cat feedback/page.html /exchange/course/feedback/page.html") == "well done" * 2
        assert "No such file" in hub.inside("ben", "cat feedback/page.html")

    def test_the_calibration_is_the_operators(self, hub, ada):
        file = "$XDG_CACHE_HOME/one-model-many-gpus/calibration.json"
        assert "operator" in hub.inside("ada", f"cat {file}")
        assert "Read-only" in hub.inside("ada", f"echo mine > {file}")
        assert hub.inside("ada", "touch $XDG_CACHE_HOME/one-model-many-gpus/other") == ""


class TestReach:
    """Who reaches what."""

    def test_a_learner_sees_no_submission_but_their_own(self, hub, ada, ben):
        (hub.state / "exchange/inbound/ada/secret").write_text("Ada's answer")
        assert hub.inside("ben", "ls /exchange/course/inbound") == ""
        assert "Ada's answer" not in hub.inside("ben", "cd / && grep -rs answer exchange home tmp srv")

    @pytest.mark.parametrize(
        "folder", ["/exchange/course/outbound", "/exchange/course/feedback", "/workspace/feedback", "/course", "/etc"]
    )
    def test_a_learner_writes_to_no_shared_folder(self, hub, ben, folder):
        assert any(word in hub.inside("ben", f"touch {folder}/x") for word in ("Read-only", "Permission denied"))

    @pytest.mark.parametrize("name", ["ada", "grace"])
    def test_no_state_of_the_hub_and_no_socket_of_the_engine_is_in_a_lab(self, hub, ada, grace, name):
        mounted = hub.inside(name, "cut -d' ' -f5 /proc/self/mountinfo")
        for place in ("docker.sock", "podman.sock", "/srv/state", "class.json", "gradebook"):
            assert place not in mounted
        search = "find / -path /course/.venv -prune -o -name '*.sock' -print -o -name gradebook.db -print"
        files = hub.inside(name, f"{search} -o -name class.json -print 2>/dev/null")
        assert not any(place in files for place in ("docker.sock", "podman.sock", "gradebook.db", "class.json"))

    @pytest.mark.parametrize("other", ["ben", "grace"])
    def test_another_lab_refuses_a_learners_token(self, ada, ben, grace, other):
        for path in ("/api/contents", "/api/kernels", "/assignments?course_id=course", "/lab"):
            assert ada.ask("GET", f"/user/{other}{path}").status_code == 403, path
        assert ada.ask("POST", f"/user/{other}/api/kernels").status_code == 403

    def test_another_lab_refuses_a_token_on_the_engines_network_too(self, hub, ada, ben):
        url = f"http://{self.address(hub, 'ben')}:8888/user/ben/api/contents"
        ask = f"import urllib.request as r; r.urlopen(r.Request('{url}', headers=dict(Authorization='token TOKEN')))"
        for token in (ada.token, "$JUPYTERHUB_API_TOKEN", ""):
            code = ask.replace("TOKEN", token)
            assert "403" in hub.inside("ada", f'/course/.venv/bin/python -c "{code}"')

    @staticmethod
    def address(hub: Hub, name: str) -> str:
        (about,) = json.loads(hub.podman("inspect", f"course-lab-{name}"))
        return about["NetworkSettings"]["Networks"]["course-hub"]["IPAddress"]

    @pytest.mark.parametrize("name", ["ada", "grace"])
    def test_the_hubs_api_gives_nobody_more_than_their_own(self, hub, ada, ben, grace, name):
        user = {"ada": ada, "grace": grace}[name]
        assert user.ask("GET", f"/hub/api/users/{name}").json()["admin"] is False
        for method, path in [
            ("GET", "/users"),
            ("GET", "/users/ben"),
            ("POST", "/users/new"),
            ("DELETE", "/users/ben"),
            ("PATCH", "/users/ben"),
            ("POST", "/users/ben/server"),
            ("DELETE", "/users/ben/server"),
            ("POST", "/users/ben/tokens"),
            ("GET", "/users/ben/tokens"),
            ("GET", "/groups"),
            ("GET", "/services"),
            ("GET", "/proxy"),
            ("POST", "/shutdown"),
        ]:
            answer = user.ask(method, f"/hub/api{path}", json={})
            assert answer.status_code in (403, 404), (method, path, answer.status_code)
        assert user._ask("GET", "/hub/admin").status_code == 403
        assert ben.lab_answers()

    def test_the_proxys_own_api_is_not_to_be_had_from_a_lab(self, hub, ada):
        code = f"import socket; socket.create_connection(('{hub.address}', 8001), 5)"
        assert "Error" in hub.inside("ada", f'/course/.venv/bin/python -c "{code}"')

    def test_a_slot_for_an_assessment_is_given_for_a_labs_own_token(self, hub, ada):
        ask = (
            "import os, urllib.request as r; env = os.environ; "
            "token = env['JUPYTERHUB_API_TOKEN'] if {} else 'another'; "
            "ask = r.Request(env['COURSE_SLOTS'], method='POST', headers={{'Authorization': 'token ' + token}}); "
            "print(r.urlopen(ask).read().decode())"
        )
        assert "403" in hub.inside("ada", f'/course/.venv/bin/python -c "{ask.format(False)}"')
        lease = json.loads(hub.inside("ada", f'/course/.venv/bin/python -c "{ask.format(True)}"'))
        assert lease["cores"] == hub.settings["cores"]["slots"][0] and lease["seconds"] > 0

    def test_an_instructor_reads_submissions_and_cannot_change_them(self, hub, ada, grace):
        assert hub.inside("grace", "cat /exchange/course/inbound/ada/secret") == "Ada's answer"
        assert "Read-only" in hub.inside("grace", "touch /exchange/course/inbound/ada/x")
        assert hub.inside("grace", "touch /exchange/course/feedback/ada/x /exchange/course/feedback/y") == ""

    def test_the_sandboxs_namespaces_are_an_instructors_alone(self, hub, ada, grace):
        sandbox = "unshare --user --map-root-user --pid --fork --mount --mount-proc echo made"
        assert hub.inside("grace", sandbox) == "made\n"
        assert "not permitted" in hub.inside("ada", sandbox)


@pytest.fixture
def page(hub, tmp_path) -> Iterator[Page]:
    """A browser in the network of the hub."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    inside = tmp_path / "chromium"
    inside.write_text(f'#!/bin/sh\nexec nsenter --net --target {hub.engine.pid} {chromium} "$@"\n')
    inside.chmod(0o755)
    flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags.append(f"--host-resolver-rules=MAP {DOMAIN} {hub.address}, MAP *.{DOMAIN} {hub.address}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=inside, args=flags)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(1000 * PATIENCE)
        yield page
        browser.close()


@pytest.mark.browser
class TestInABrowser:
    def test_from_login_to_feedback(self, hub, page):
        """Clicking only. The instructor's commands are tested elsewhere: here a page of nbgrader's name is put."""
        self.login(hub, page, hub.url, "carl")
        page.wait_for_url("**/user/carl/lab/tree/Welcome.md")
        page.locator(".jp-RenderedMarkdown", has_text="One Model, Many GPUs").wait_for()

        page.locator(".lm-MenuBar-itemLabel", has_text="Nbgrader").click()
        menu = page.locator(".lm-Menu-itemLabel")
        menu.filter(has_text="Assignment List").wait_for()
        assert [entry for entry in menu.all_inner_texts() if entry] == ["Assignment List"]
        menu.filter(has_text="Assignment List").click()
        row = page.locator(".list_item", has=page.get_by_role("button", name="Submit")).filter(has_text=LAB)
        row.get_by_role("button", name="Submit").click()
        page.get_by_role("button", name="Fetch Feedback").wait_for()

        (submission,) = (hub.state / "exchange/inbound/carl").iterdir()
        secret = (submission / "submission_secret.txt").read_text()
        for notebook in submission.glob("*.ipynb"):
            name = f"{notebook_hash(secret=secret, notebook_id=notebook.stem)}.html"
            (hub.state / "exchange/feedback/carl" / name).write_text(f"<p>Well done in {notebook.stem}.</p>")
        page.get_by_role("button", name="Fetch Feedback").click()
        page.get_by_text("(view feedback)").wait_for()
        fetched = hub.state / "workspaces/carl" / LAB / "feedback"
        assert len(list(fetched.rglob("*.html"))) == len(list(submission.glob("*.ipynb")))

    @staticmethod
    def login(hub: Hub, page: Page, url: str, name: str) -> None:
        page.goto(url)
        page.fill("#username_input", name)
        page.fill("#password_input", hub.passwords[name])
        page.click("#login_submit")


class TestStartsThatFail:
    def test_a_lab_that_ends_at_once_says_why_on_the_page(self, hub):
        workspace = hub.state / "workspaces/dan"
        workspace.mkdir(mode=0o500)
        dan = User(hub, "dan")
        dan.login(hub.passwords["dan"])
        dan._ask("GET", "/hub/spawn")
        page = until(lambda: self.failed(dan), "the start does not fail")
        assert "/workspace cannot be written by user 1000" in page, hub.log()[-3000:]
        workspace.chmod(0o755)
        assert dan.enter().lab_answers(), "it must start when it can"

    @staticmethod
    def failed(user: User) -> str:
        page = user._ask("GET", f"/hub/spawn-pending/{user.name}").text
        return page if "did not start" in page else ""


class TestHubDies:
    """The last tests of this hub."""

    def test_labs_go_on_and_the_hub_finds_them_again(self, hub, ada, ben):
        running = hub.podman("ps", "--quiet", "--no-trunc", "--filter", "label=one-model-many-gpus.hub-lab")
        count = "i=0; while :; do i=$((i + 1)); echo $i > count; sleep 0.1; done"
        hub.podman("exec", "--detach", "course-lab-ada", "sh", "-c", count)
        until((hub.state / "workspaces/ada/count").exists, "nothing counts")
        hub.end()
        before = int(hub.inside("ada", "cat count"))
        until(lambda: int(hub.inside("ada", "cat count") or 0) > before + 5, "the lab stopped with the hub")
        hub.start()
        until(lambda: ada.lab_answers() and ben.lab_answers(), "the hub does not find the labs")
        assert hub.podman("ps", "--quiet", "--no-trunc", "--filter", "label=one-model-many-gpus.hub-lab") == running
        assert ada._ask("GET", "/hub/home").url.endswith("/hub/home"), "a session must go on"
        assert (LAB, "submitted") in ada.assignments()

    def test_after_a_crash_of_the_host_everything_is_as_it_was(self, hub, ada):
        count = int(hub.inside("ada", "cat count"))
        hub.podman("kill", "--all")
        hub.podman("rm", "--force", "course-hub")
        hub.start()
        assert not ada.lab_answers()
        assert ada._ask("GET", "/hub/home").url.endswith("/hub/home")
        ada.start_lab()
        assert int(hub.inside("ada", "cat count")) >= count
        assert (LAB, "submitted") in ada.assignments()

    def test_who_is_removed_has_no_session_and_no_token_any_more(self, hub, ada, ben):
        del hub.members["ben"]
        hub.write_class()
        hub.podman("rm", "--force", "course-lab-ben")
        hub.end()
        hub.start()
        assert ben.ask("GET", "/hub/api/user").status_code == 403
        assert "/hub/login" in ben._ask("GET", "/hub/home").url
        assert ben.login(hub.passwords["ben"]).status_code == 403
        assert ada.lab_answers()
        assert Path(hub.state / "workspaces/ben" / LAB).is_dir(), "work stays until it is deleted"

    @pytest.mark.browser
    def test_with_a_domain_each_lab_has_a_host_name_of_its_own(self, hub, page):
        hub.end()
        hub.settings["domain"] = f"http://{DOMAIN}:8000"
        hub.start()
        TestInABrowser.login(hub, page, f"http://{DOMAIN}:8000/hub/login", "erin")
        page.wait_for_url(f"http://erin.{DOMAIN}:8000/user/erin/lab/tree/Welcome.md")
        page.locator(".jp-RenderedMarkdown", has_text="One Model, Many GPUs").wait_for()
        assert hub.get("/user/erin/api", headers={"Host": f"erin.{DOMAIN}:8000"}).ok
        for host in (DOMAIN, f"ada.{DOMAIN}"):
            answer = hub.get("/user/erin/api", headers={"Host": f"{host}:8000"}, allow_redirects=False)
            assert not answer.ok or answer.is_redirect, host
