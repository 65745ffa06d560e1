"""The hub with a real engine: learners who log in, fetch, submit and pry; what breaks in the middle.

The class's host is `hub_host.Hub`: Podman, as root, in namespaces of its own.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import requests
from nbgrader.utils import notebook_hash
from playwright.sync_api import Page, sync_playwright

from course_lib.system import paths
from tests.containers.hub_host import DOMAIN, LAB, PATIENCE, Hub, User, build_images, until

pytestmark = [pytest.mark.alone, pytest.mark.container, pytest.mark.long, pytest.mark.slow]


@pytest.fixture(scope="module")
def hub(debian, new_engine) -> Iterator[Hub]:
    engine = new_engine(network=True)
    engine.make_base(debian)
    build_images(engine)
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


class TestSubmissions:
    """What goes wrong between a learner's lab and the instructor's."""

    def test_a_late_submission_is_collected_after_an_extension(self, hub, ben, grace):
        deadline = datetime.now(timezone.utc).isoformat()
        assert ben.submit(LAB)["success"]
        collected = hub.state / "workspaces/grace/class/ben" / LAB
        said = hub.collect("2", "--deadline", deadline)
        assert "late by 1 min" in said and not collected.exists(), said
        said = hub.collect("2", "--extend", f"ben={datetime.now(timezone.utc).isoformat()}")
        assert "late" not in said and collected.is_dir(), said

    def test_a_lab_that_is_killed_in_the_middle_of_a_submission_can_submit_again(self, hub, grace):
        finn = User(hub, "finn").enter()
        hub.inside("finn", f"mkdir {LAB}/many; cd {LAB}/many; seq 5000 | xargs touch")  # copying takes a second
        end = "until ls -d /exchange/course/inbound/*/ 2>/dev/null; do :; done; kill -KILL -1"
        hub.podman("exec", "--detach", "course-lab-finn", "sh", "-c", end)
        with contextlib.suppress(requests.RequestException, ValueError):
            finn.submit(LAB)
        (broken,) = (hub.state / "exchange/inbound/finn").iterdir()
        assert not (broken / "timestamp.txt").exists(), "it was copied before the lab ended"
        assert "It is not complete" in hub.collect("2", "--deadline", "none")
        finn.start_lab()
        hub.inside("finn", f"rm -r {LAB}/many")
        assert finn.submit(LAB)["success"] and (LAB, "submitted") in finn.assignments()
        assert "complete" not in hub.collect("2")
        assert (hub.state / "workspaces/grace/class/finn" / LAB / "2a_meet_the_ranks.ipynb").is_file()

    def test_a_full_disk_is_named_and_costs_no_submission(self, hub, grace):
        inbound = hub.state / "exchange/inbound/hana"
        inbound.mkdir()
        options = "uid=1000,gid=1000,size="
        assert hub.engine.run("mount", "-t", "tmpfs", "-o", f"{options}64k", "full", str(inbound)).returncode == 0
        hana = User(hub, "hana").enter()
        answer = hana.submit(LAB)
        assert not answer["success"] and "No space left on device" in answer["value"]
        assert (LAB, "submitted") not in hana.assignments()
        assert hub.engine.run("mount", "-o", f"remount,{options}64m", str(inbound)).returncode == 0
        assert hana.submit(LAB)["success"] and (LAB, "submitted") in hana.assignments()

    def test_two_labs_that_assess_at_the_same_time_both_get_the_cores(self, hub, ada, ben):
        code = (
            "import os, time; from course_grader.script import leases\n"
            "with leases.lease(os.environ['COURSE_SLOTS'], print) as cores:\n"
            "    begin = time.monotonic(); time.sleep(5); print(cores, begin, time.monotonic())"
        )
        command = ("/course/.venv/bin/python", "-c", code)
        running = [hub.engine.start("podman", "exec", f"course-lab-{name}", *command) for name in ("ada", "ben")]
        said = [process.communicate(timeout=PATIENCE) for process in running]
        assert [process.returncode for process in running] == [0, 0], said
        outputs = [out.splitlines() for out, _ in said]
        cores = str(hub.settings["cores"]["slots"][0])
        times = sorted([float(time) for time in lines[-1].removeprefix(cores).split()] for lines in outputs)
        assert times[0][1] <= times[1][0], "both had the cores at the same time"
        assert any("You are next: an assessment uses the cores." in lines for lines in outputs)


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
        for name in ("ada", "ben"):
            hub.podman("exec", "--detach", f"course-lab-{name}", "sh", "-c", count)
            until((hub.state / "workspaces" / name / "count").exists, "nothing counts")
        hub.end()
        before = {name: int(hub.inside(name, "cat count")) for name in ("ada", "ben")}
        for name in before:
            reached = lambda name=name: int(hub.inside(name, "cat count") or 0) > before[name] + 5  # noqa: E731
            until(reached, f"the lab of {name} stopped with the hub")
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

    def test_an_idle_lab_ends_and_opens_again_with_its_files(self, hub):
        hub.end()
        hub.settings["hours"] = 0.001
        hub.start()
        ida = User(hub, "ida").enter()
        hub.inside("ida", "echo kept > own")
        running = ("ps", "--quiet", "--filter", "name=course-lab-ida")
        until(lambda: not hub.podman(*running), "an idle lab goes on")  # it looks once a minute
        hub.end()
        hub.settings["hours"] = 1
        hub.start()
        ida.start_lab()
        assert hub.inside("ida", "cat own") == "kept\n"

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
