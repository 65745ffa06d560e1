"""The learner's workspace: what is put into it, what stays, and JupyterLab on top of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import psutil
import pytest

from course_lib.authoring import masters
from course_lib.command.classroom import lab, workspace
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

FIXTURES = ROOT / "tests" / "notebooks" / "fixtures"
NOTEBOOK, SCRIPT = "lab0_tiny/0a_two_exercises.ipynb", "lab0_tiny/script.py"


@pytest.fixture
def course(tmp_path):
    """A course folder of our own, with things in it that learners must not get."""
    course = tmp_path / "course"
    shutil.copytree(FIXTURES, course)
    tiny = course / "labs" / "lab0_tiny"
    (tiny / "experiments").mkdir()
    (tiny / "experiments" / "sweep.py").write_text("print(1)\n")
    (tiny / "notes.txt").write_text("for the instructor\n")
    (tiny / "Untitled.ipynb").write_text("{}")
    return course


@pytest.fixture
def place(tmp_path):
    return tmp_path / "workspace"


def files(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


class TestFill:
    def test_learners_get_notebooks_scripts_recordings_and_a_welcome_page(self, course, place):
        assert workspace.fill(place, course) == []
        recording = "lab0_tiny/recorded/slopes.json"
        assert files(place) == {NOTEBOOK, SCRIPT, recording, "Welcome.md", ".course/manifest.json"}

    def test_of_the_assessment_learners_get_the_notebook_and_the_script_that_they_convert(self, course, place):
        assessment = course / "assessment"
        for name in ("master/assessment.py", "reference/assessment.py", "assessment.py", "contract.toml", "README.md"):
            (assessment / name).parent.mkdir(parents=True, exist_ok=True)
            (assessment / name).write_text("# %%\n" if name.startswith("master/") else "print(1)\n")
        shutil.copyfile(course / "labs" / NOTEBOOK, assessment / "assessment.ipynb")
        workspace.fill(place, course)
        assert {name for name in files(place) if name.startswith("assessment/")} == {
            "assessment/assessment.ipynb",
            "assessment/assessment.py",
        }

    def test_no_answer_and_no_reference_is_in_reach(self, place):
        workspace.fill(place, ROOT)
        contents = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
        texts = {path: content.decode(errors="replace") for path, content in contents.items()}
        for path in masters.find(ROOT):
            master = masters.read(path)
            assert {at: lines for at, text in texts.items() if (lines := masters.leaks(master, [text]))} == {}
        for path in (*ROOT.glob("labs/*/reference/**/*"), *ROOT.glob("assessment/reference/**/*")):
            assert path.is_dir() or path.read_bytes() not in contents.values(), "under whatever name"

    def test_a_second_time_changes_nothing(self, course, place):
        workspace.fill(place, course)
        before = {name: (place / name).stat().st_mtime_ns for name in files(place) if "manifest" not in name}
        assert workspace.fill(place, course) == []
        assert {name: (place / name).stat().st_mtime_ns for name in before} == before

    def test_an_untouched_file_follows_the_course_and_a_deleted_one_comes_back(self, course, place):
        workspace.fill(place, course)
        for change in ((course / "labs" / SCRIPT).write_text, lambda text: (place / SCRIPT).unlink()):
            change("newer\n")
            assert workspace.fill(place, course) == []
            assert (place / SCRIPT).read_text() == "newer\n"

    def test_work_is_kept_beside_the_courses_newer_file(self, course, place):
        workspace.fill(place, course)
        (place / SCRIPT).write_text("mine\n")
        assert workspace.fill(place, course) == []  # while the course stays
        (course / "labs" / SCRIPT).write_text("newer\n")
        (line,) = workspace.fill(place, course)
        assert SCRIPT in line and "script.new.py" in line
        assert (place / SCRIPT).read_text() == "mine\n"
        assert (place / "lab0_tiny" / "script.new.py").read_text() == "newer\n"
        assert workspace.fill(place, course) == []  # said once

    def test_what_to_do_with_old_cells_is_said_once_where_notebooks_are_kept(self, course, place):
        workspace.fill(place, course)
        for name in (NOTEBOOK, SCRIPT):
            (place / name).write_text("mine\n")
            newer = course / "labs" / name
            newer.write_text(newer.read_text() + "\n")
        *kept, last = workspace.fill(place, course)
        assert len(kept) == 2 and "replace the cell with the one from the newer notebook" in last
        (course / "labs" / SCRIPT).write_text("newest\n")
        (line,) = workspace.fill(place, course)
        assert SCRIPT in line

    def test_work_on_the_newer_file_is_kept_too(self, course, place):
        workspace.fill(place, course)
        (place / SCRIPT).write_text("mine\n")
        for count, expected in ((1, "script.new.py"), (2, "script.new2.py"), (3, "script.new2.py")):
            (course / "labs" / SCRIPT).write_text(f"newer {count}\n")
            (line,) = workspace.fill(place, course)
            assert expected in line
            assert (place / "lab0_tiny" / expected).read_text() == f"newer {count}\n"
            if count == 1:
                (place / "lab0_tiny" / expected).write_text("mine as well\n")
        assert (place / "lab0_tiny" / "script.new.py").read_text() == "mine as well\n"

    def test_files_that_were_there_before_the_course_are_kept(self, course, place):
        (place / "lab0_tiny").mkdir(parents=True)
        (place / SCRIPT).write_text("mine\n")
        (line,) = workspace.fill(place, course)
        assert SCRIPT in line and (place / SCRIPT).read_text() == "mine\n"

    @pytest.mark.parametrize("manifest", ["", "{", "[]", "null", '{"lab0_tiny/script.py": 3}'])
    def test_a_broken_manifest_costs_no_work(self, course, place, manifest):
        workspace.fill(place, course)
        (place / SCRIPT).write_text("mine\n")
        (place / ".course" / "manifest.json").write_text(manifest)
        workspace.fill(place, course)
        assert (place / SCRIPT).read_text() == "mine\n"

    def test_welcome_page_links_every_notebook_with_time_and_needs(self, course, place):
        workspace.fill(place, course)
        welcome = (place / "Welcome.md").read_text()
        assert "## Lab 0: Tiny" in welcome
        assert f"| [0a Two exercises]({NOTEBOOK}) | 5 minutes on 2 CPU cores | nothing |" in welcome
        assert all((place / link).exists() for link in re.findall(r"\]\((.*?)\)", welcome))


class TestWay:
    def test_is_kept_for_later_starts(self, place):
        workspace.fill(place, ROOT, "day")
        assert "## Your way: One day" in (place / "Welcome.md").read_text()
        workspace.fill(place, ROOT)
        assert "## Your way: One day" in (place / "Welcome.md").read_text()

    def test_is_chosen_from_within_the_workspace(self, course, place):
        workspace.fill(place, course)
        assert workspace.choose("two-days", place / "lab0_tiny") == "Your way is “Two days”: open Welcome.md again."
        assert "### Second day" in (place / "Welcome.md").read_text()

    def test_an_unknown_one_makes_no_workspace(self, place):
        with pytest.raises(CourseError, match="afternoon, day, two-days, term, systems, methods"):
            workspace.open_lab(place, None, False, ROOT, "night")
        assert not place.exists()


class TestBadInput:
    def test_workspace_that_cannot_be_written(self, tmp_path, course):
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(CourseError, match=r"cannot be written \(Not a directory\): choose another workspace"):
            workspace.open_lab(tmp_path / "file" / "workspace", None, False, course)

    @pytest.mark.parametrize("inside", [".", "labs", "labs/lab0_tiny/mine"])
    def test_workspace_within_the_course(self, course, inside):
        before = files(course)
        with pytest.raises(CourseError, match="belongs to the course itself"):
            workspace.open_lab(course / inside, None, False, course)
        assert files(course) == before

    def test_busy_port(self, place, course):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(CourseError, match=f"Port {port} cannot be used .*: choose another with --port"):
                workspace.open_lab(place, port, False, course)
        assert not place.exists()

    @pytest.mark.parametrize("port", [0, -1, 65536])
    def test_no_port_at_all(self, port):
        with pytest.raises(CourseError, match=f"{port} is not a port"):
            lab.check_port(port)

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("JUPYTER_TOKEN", "short", "must have 16 or more characters"),
            ("JUPYTER_TOKEN", "with a blank, and so no link", "must have 16 or more characters"),
            ("JUPYTER_TOKEN", "sixteen-and-ümlaut", "must have 16 or more characters"),
            ("COURSE_ADDRESS", "laptop.example", r"is 'laptop.example': set it to 127\.0\.0\.1"),
        ],
    )
    def test_a_token_or_address_that_cannot_be_one(self, place, course, monkeypatch, name, value, words):
        monkeypatch.setenv(name, value)
        with pytest.raises(CourseError, match=f"{name} {words}") as error:
            workspace.open_lab(place, None, False, course)
        assert name != "JUPYTER_TOKEN" or value not in str(error.value)

    def test_a_server_that_does_not_start_says_why(self, place, course, tmp_path, monkeypatch):
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\necho 'The disk is full.'\nexit 3\n")
        broken.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(broken))
        with pytest.raises(CourseError, match=r"JupyterLab did not start: The disk is full"):
            workspace.open_lab(place, None, False, course)

    def test_a_port_lost_at_the_last_moment_is_replaced(self, place, course, tmp_path, monkeypatch):
        """Thirty learners on one host start at the same time."""
        late = tmp_path / "python"
        late.write_text(
            f"#!/bin/sh\n[ -e {tmp_path}/tried ] && echo 'Second try.' && exit 3\n"
            f"touch {tmp_path}/tried\necho 'The port 8888 is already in use.'\nexit 1\n"
        )
        late.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(late))
        with pytest.raises(CourseError, match=r"Second try"):
            workspace.open_lab(place, None, False, course)


class Lab:
    """A running `course lab` on the fixture course, with a home folder of its own."""

    def __init__(self, place, home):
        code = (
            "import sys; from pathlib import Path; from course_lib.command.classroom import workspace;"
            f"sys.exit(workspace.open_lab(Path({str(place)!r}), None, False, Path({str(FIXTURES)!r})))"
        )
        hidden = ("JUPYTER", "IPYTHON", "XDG")
        env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        env.update(HOME=str(home), JUPYTER_PATH=str(home / "more"))
        self.workspace = place
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
            start_new_session=True,
        )
        said = []
        for line in self.process.stdout:
            said.append(line)
            if match := re.search(r"(http://127\.0\.0\.1:\d+)(/\S+)\?token=(\w+)", line):
                self.url, self.page, self.token = match.groups()
                return
        raise AssertionError("".join(said))

    def get(self, path, token=True, data=None):
        """(status, text)"""
        headers = {"Authorization": f"token {self.token}"} if token else {}
        request = urllib.request.Request(self.url + path, headers=headers, data=data)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    def stop(self):
        """Press Ctrl-C; return what it printed since it was up."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def tree(self):
        return [self.process, *psutil.Process(self.process.pid).children(recursive=True)]


def forge_kernels(home):
    """Give the user a python3 kernel of their own, in both places where it would come before ours."""
    for data in (home / ".local" / "share" / "jupyter", home / "more"):
        folder = data / "kernels" / "python3"
        folder.mkdir(parents=True)
        (folder / "kernel.json").write_text(json.dumps({"argv": ["false"], "display_name": "Theirs"}))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    forge_kernels(home)
    (home / ".jupyter").mkdir()
    (home / ".jupyter" / "jupyter_server_config.json").write_text('{"ServerApp": {"token": "theirs"}}')
    return home


@pytest.fixture(scope="module")
def running(tmp_path_factory, home):
    with Lab(tmp_path_factory.mktemp("lab") / "workspace", home) as running:
        yield running


@pytest.mark.slow
class TestLab:
    def test_opens_the_welcome_page_as_rendered_markdown(self, running):
        assert running.page == "/lab/tree/Welcome.md"
        assert running.get("/api/contents/Welcome.md")[0] == 200
        assert self.setting(running, "docmanager-extension:plugin")["defaultViewers"] == {
            "markdown": "Markdown Preview"
        }

    def test_asks_for_the_token(self, running):
        assert running.get("/api/contents", token=False)[0] == 403
        assert running.get("/api/contents")[0] == 200

    def test_a_second_one_beside_it_takes_another_port(self, running, home):
        with Lab(running.workspace, home) as second:
            assert second.url != running.url
            assert second.get("/api/contents/Welcome.md")[0] == running.get("/api/contents/Welcome.md")[0] == 200

    def test_listens_on_this_machine_only(self, running):
        port = int(running.url.rpartition(":")[2])
        listening = [
            connection.laddr.ip
            for process in running.tree()[1:]
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        ]
        assert listening == ["127.0.0.1"]

    def test_brings_no_news_and_no_authoring_panels(self, running):
        page = running.get("/lab")[1]
        config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
        assert config["news"] == {"disabled": True}
        disabled = {
            "@jupyter/nbgrader",
            "jupyterlab-jupytext",
            "@jupyterlab/apputils-extension:announcements",
        }
        assert disabled <= set(config["disabledExtensions"])
        notifications = self.setting(running, "apputils-extension:notification")
        assert (notifications["fetchNews"], notifications["checkForUpdates"]) == ("false", False)
        for path in ("/formgrader", "/assignments", "/assignments/validate", "/courses"):
            assert running.get(path)[0] == 404

    def test_scripts_are_text_and_never_notebooks(self, running):
        """Jupytext's contents manager would make notebooks of them, and pair notebooks with text."""
        assert json.loads(running.get(f"/api/contents/{SCRIPT}")[1])["type"] == "file"

    def test_saves_by_itself(self, running):
        assert self.setting(running, "docmanager-extension:plugin")["autosave"] is True

    def test_the_only_kernel_is_this_python(self, running):
        specs = json.loads(running.get("/api/kernelspecs")[1])["kernelspecs"]
        assert {name: spec["spec"]["argv"][0] for name, spec in specs.items()} == {"python3": sys.executable}

    def test_ctrl_c_ends_it_with_its_kernels_and_leaves_the_users_jupyter_alone(self, tmp_path, home):
        before = {path: path.is_file() and path.read_bytes() for path in home.rglob("*")}
        with Lab(tmp_path / "workspace", home) as running:
            assert running.get("/api/kernels", data=b'{"name": "python3"}')[0] == 201
            tree = running.tree()
            assert any("ipykernel_launcher" in " ".join(process.cmdline()) for process in tree[1:])
            said = running.stop()
        assert running.process.returncode == 0
        assert "The lab is closed." in said and "Traceback" not in said
        assert not any(psutil.pid_exists(process.pid) for process in tree[1:])
        made = {path for path in home.rglob("*") if "jupyter" in str(path).lower() or "python" in path.name}
        assert {path: path.is_file() and path.read_bytes() for path in made} == {
            path: content for path, content in before.items() if path in made
        }

    def test_it_ends_when_its_command_is_killed(self, tmp_path, home):
        with Lab(tmp_path / "workspace", home) as running:
            tree = running.tree()
            running.process.kill()
            running.process.wait()
        _, alive = psutil.wait_procs(tree[1:], timeout=30)
        assert not alive

    def setting(self, running, name):
        """A setting as the browser sees it when the learner has changed nothing."""
        schema = json.loads(running.get(f"/lab/api/settings/@jupyterlab/{name}")[1])["schema"]
        return {key: value.get("default") for key, value in schema["properties"].items()}
