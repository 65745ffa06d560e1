"""The sandbox: what runs in it reads, writes and reaches nothing else, keeps to its limits, and ends as a whole."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
import pytest

from course_lib.command.assess import sandbox
from course_lib.command.assess.contract import Limits
from course_lib.command.assess.sandbox import Sandbox, bubblewrap, outbox
from course_lib.ranks import launch, run
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

LIMITS = Limits(memory=0.25, processes=10, disk=16, output=1)
SAVE = "import os, sys, time, signal\nsave = lambda: open(os.environ['COURSE_WEIGHTS'], 'w').write('saved')\n"

confined = pytest.mark.skipif(bool(bubblewrap.available()), reason=bubblewrap.available())
ranks = [pytest.mark.alone, pytest.mark.ranks, pytest.mark.slow]  # within limits of seconds


class Ran:
    """A script that has run in a sandbox, and what came out."""

    def __init__(self, text: str, folder: Path, seconds: float, np: int, patience: float, **settings: object) -> None:
        mark = uuid.uuid4().hex
        script = folder / "learner.py"
        script.write_text(SAVE + text)
        env = {"COURSE_PROBE": "", "MARK": mark, **settings.pop("env", {})}  # without the probe: TensorFlow is slow
        with Sandbox(script, settings.pop("limits", LIMITS), np, env=env, seconds=seconds, **settings) as box:
            self.kind, self.weaknesses = box.kind, box.weaknesses
            with box.start(np, patience=patience) as run:
                self.said = [event.data["text"] for event in run if event.kind == "output"]
            self.result = run.wait()
            self.ended_by, self.traffic, self.others = box.ended_by, box.traffic, box.others
            self.came = {
                str(path.relative_to(box.folder)): path.read_bytes() for path in box.folder.rglob("*") if path.is_file()
            }
            private = box._private
        assert not private.exists()
        assert not [pid for pid in psutil.pids() if mark in marks(pid)]


def marks(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def ran(tmp_path):
    def run(text: str, seconds: float = 20, np: int = 1, patience: float = 60, **settings) -> Ran:
        return Ran(text, tmp_path, seconds, np, patience, **settings)

    return run


PROBES = """
import contextlib, json, pathlib, shutil, socket
def outcome(action, *args):
    try:
        return action(*args)
    except Exception as error:
        return type(error).__name__
def connect(*address):
    return str(socket.create_connection(address, 3))
def write(path):
    return pathlib.Path(path).write_text("x")
def fill(folder):
    folder, filled = pathlib.Path(folder, "full"), 0
    folder.mkdir()
    for number in range(50):
        with contextlib.suppress(OSError), open(folder / str(number), "wb", 0) as file:
            filled += file.write(b"x" * 2**20)
    shutil.rmtree(folder)
    return filled
import course_lib
report = {
    "files": {path: outcome(os.listdir, path) for path in LISTED},
    "read": {path: outcome(lambda p: open(p).read(9), path) for path in READ},
    "network": outcome(connect, HOST, PORT),
    "written": {path: outcome(write, path) for path in WRITTEN},
    "filled": [outcome(fill, path) for path in ("/sandbox", "/tmp", "/dev/shm")],
    "large": outcome(lambda: open("/sandbox/large", "wb").truncate(10**12)),
    "uid": os.getuid(), "cwd": os.getcwd(), "path": sys.path[0], "script": __file__, "home": os.environ["HOME"],
    "course": course_lib.__file__, "processes": [int(name) for name in os.listdir("/proc") if name.isdigit()],
    "cores": sorted(os.sched_getaffinity(0)), "environment": dict(os.environ),
    "data": open("/data/set/images").read(), "change": outcome(write, "/data/set/images"),
    "settings": outcome(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY),
    "memory": outcome(lambda: len(bytearray(2**30))), "core": __import__("resource").getrlimit(4),
}
os.chdir("/sandbox/evidence")
os.symlink("/etc/passwd", "link.json")
os.mkfifo("fifo.json")
os.mkdir("folder.json")
write("BAD name.json")
if os.environ.get("HOROVOD_RANK", "0") == "0":
    write("report.json"), pathlib.Path("report.json").write_text(json.dumps(report))
    save()
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """One script on two ranks that tries everything; rank 0 reports."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "images").write_text("pixels")
    (folder / "secret").write_text("secret")
    listed = [str(ROOT / name) for name in ("assessment", "tests", "labs")] + [str(Path.home()), str(folder)]
    written = ["/x", "/usr/x", "/etc/x", "/dev/x", "/script/x", "/script/assessment.py", str(bubblewrap.PACKAGE / "x")]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # of the host
        names = {
            "LISTED": listed,
            "READ": [str(folder / "secret"), "/etc/shadow", str(ROOT / "pyproject.toml")],
            "WRITTEN": written,
            "HOST": "127.0.0.1",
            "PORT": server.getsockname()[1],
        }
        text = "\n".join(f"{name} = {value!r}" for name, value in names.items()) + PROBES
        # The second rank waits, so that the two do not fill the disk at the same time.
        text = "rank = os.environ.get('HOROVOD_RANK')\nif rank == '1': time.sleep(1); raise SystemExit\n" + text
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SECRET", "1")
        done = Ran(text, folder, 30, 2, 60, files={folder / "images": Path("/data/set/images")}, env={"EXTRA": "1"})
    assert done.result.code == 0, done.said
    return done, json.loads(done.came["evidence/report.json"])


@confined
class TestInside:
    pytestmark = ranks

    def test_nothing_of_the_course_but_its_library_and_nothing_of_the_user_is_there(self, inside):
        _, report = inside
        for path, found in report["files"].items():
            # Where Python itself lies below a folder, that folder is there, with nothing else in it.
            assert found == "FileNotFoundError" or all(
                any(str(Path(path) / name) in (library, *map(str, Path(library).parents)) for library in seen())
                for name in found
            ), path
        assert set(report["read"].values()) == {"FileNotFoundError"}
        assert report["course"] == str(bubblewrap.PACKAGE / "__init__.py")

    def test_no_network_not_even_this_host(self, inside):
        _, report = inside
        assert report["network"] in ("ConnectionRefusedError", "OSError")

    def test_nothing_can_be_written_but_the_work_folders(self, inside):
        _, report = inside
        writable = [path for path, outcome in report["written"].items() if outcome == 1]
        assert writable == []
        assert (report["change"], report["settings"]) == ("OSError", "OSError")
        assert (report["data"], report["cwd"], report["home"]) == ("pixels", "/sandbox", "/sandbox/home")

    def test_disk_and_memory_have_an_end(self, inside):
        _, report = inside
        assert all(0 < filled <= LIMITS.disk * 2**20 for filled in report["filled"])
        assert (report["large"], report["memory"], report["core"]) == ("OSError", "MemoryError", [0, 0])

    def test_the_script_has_one_name_and_one_core_and_no_rights(self, inside):
        _, report = inside
        assert (report["script"], report["path"]) == ("/script/assessment.py", "/script")
        assert report["uid"] != 0
        assert report["cores"] == sorted(os.sched_getaffinity(0))[:1]
        assert max(report["processes"]) < 100  # a namespace of its own
        assert report["environment"]["OMP_NUM_THREADS"] == "1"
        assert report["environment"]["EXTRA"] == "1"
        assert "SECRET" not in report["environment"]

    def test_only_plain_files_of_known_names_come_out(self, inside):
        done, _ = inside
        assert set(done.came) - {"evidence/timeline.json"} == {"weights.h5", "evidence/report.json"}
        assert done.came["weights.h5"] == b"saved"
        assert (done.kind, done.weaknesses, done.ended_by) == ("bubblewrap", (), "")
        assert done.traffic > 0  # the ranks' own launcher speaks over it


def seen() -> list[str]:
    return [*bubblewrap.python_folders(), str(bubblewrap.PACKAGE)]


@confined
class TestEnds:
    pytestmark = ranks

    def test_at_the_time_limit_what_is_saved_comes_out(self, ran):
        done = ran("save(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(60)", seconds=2)
        assert (done.result.code, done.ended_by) == (launch.TIMED_OUT, "Stopped at the time limit of 2 s.")
        assert done.came["weights.h5"] == b"saved"

    def test_ranks_that_wait_for_each_other(self, ran):
        text = "save()\nfrom course_lib.ranks import channel\nchannel.tell('batch', step=0)\ntime.sleep(60)"
        done = ran(text, np=2, patience=1)
        assert "the ranks wait for each other" in done.ended_by
        assert done.came["weights.h5"] == b"saved"

    def test_a_fork_bomb(self, ran):
        done = ran("while True:\n    try: os.fork()\n    except OSError: pass")
        assert done.ended_by == "It started more than 10 processes for each rank."

    def test_memory_of_all_processes_together(self, ran):
        named = "__import__('ctypes').CDLL(None).prctl(15, b'\\xff\\nRssAnon: 0')\n"  # a name that is hard to read
        done = ran(named + "[os.fork() for _ in range(2)]\nkeep = bytearray(b'x') * (100 * 2**20)\ntime.sleep(60)")
        assert done.ended_by == "It used more than 0.25 GB of memory."

    def test_a_flood_of_output(self, ran):
        done = ran("save()\nwhile True: sys.stdout.write('x\\n' * 1000)")
        assert done.ended_by == "It printed more than 1 MB."
        assert len(done.said) < 2**20 / run.LINE_OVERHEAD_BYTES
        assert done.came["weights.h5"] == b"saved"

    def test_disk_where_bubblewrap_sets_no_size(self, ran, monkeypatch):
        monkeypatch.setattr(bubblewrap, "options", lambda: "")  # as before version 0.7
        done = ran("file = open('full', 'wb')\nfor _ in range(16): file.write(b'x' * 2**21); file.flush()")
        assert "File too large" in " ".join(done.said)
        done = ran("for i in range(16): open(f'full{i}', 'wb').write(b'x' * 2**21)\ntime.sleep(60)")
        assert done.ended_by == "It wrote more than 16 MB of files."

    @pytest.mark.parametrize("victims", ["-1", "os.getppid()", "'inside'"])
    def test_one_that_kills_what_runs_it(self, ran, victims):
        text = (
            f"victims = {victims}\nimport psutil\nfor process in psutil.process_iter():\n"
            "    if victims == 'inside' and process.pid > 1 and "
            "'course_lib.command.assess.sandbox.entry' in process.cmdline():\n"
            "        victims = process.pid\n"
            "os.kill(victims, 9)\ntime.sleep(60)"
        )
        assert ran(text, seconds=4).result.code in (137, launch.TIMED_OUT)

    def test_one_that_holds_what_runs_it(self, ran, monkeypatch):
        monkeypatch.setattr(launch, "CONFINED_GRACE_S", 2.0)
        text = (
            "import psutil\nsave()\nfor process in psutil.process_iter():\n"
            "    if 'course_lib.command.assess.sandbox.entry' in process.cmdline(): process.suspend()\ntime.sleep(60)"
        )
        done = ran(text, seconds=2)
        assert (done.result.code, set(done.came)) == (launch.TIMED_OUT, set())

    def test_a_daemon_is_ended_before_the_weights_are_taken(self, ran, monkeypatch):
        monkeypatch.setattr(run, "SHUTDOWN_LIMIT_S", 0.5)
        done = ran(
            "save()\nif os.fork() == 0:\n    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)"
        )
        assert (done.result.code, done.came["weights.h5"]) == (0, b"saved")

    def test_one_that_speaks_in_the_name_of_the_sandbox(self, ran):
        text = "out = os.open('/out', os.O_WRONLY)\nos.write(out, b'weights.h5 99999999\\nx')\nos.close(out); save()"
        done = ran(text)
        assert (done.result.code, done.came) == (0, {})

    @pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core more than ranks")
    def test_one_that_takes_more_cores(self, ran, monkeypatch):
        monkeypatch.setattr(sandbox, "CORE_CHECK_POLLS", 3)
        done = ran("os.sched_setaffinity(0, range(os.cpu_count()))\ntime.sleep(60)")
        assert done.ended_by == "It left the cores that it was given, one for each rank."

    def test_what_others_compute_on_its_core_is_told_from_what_it_computes(self, ran, spinning):
        spin = "while time.thread_time() < {}: pass"
        assert ran(spin.format(2)).others < 0.5
        with spinning():
            assert ran("time.sleep(2)").others > 0.5

    def test_nothing_is_left_of_a_grader_that_is_killed(self, tmp_path):
        mark = uuid.uuid4().hex
        (tmp_path / "script.py").write_text("import time\nprint('up')\ntime.sleep(60)")
        program = (
            "import sys\nfrom pathlib import Path\nfrom course_lib.command.assess.sandbox import Limits, Sandbox\n"
            f"box = Sandbox(Path(sys.argv[1]), {LIMITS!r}, 1, env={{'COURSE_PROBE': '', 'MARK': {mark!r}}})\n"
            "run = box.start(1, patience=60)\nnext(event for event in run if event.kind == 'output')\n"
            "print(box._private, flush=True)\nrun.wait()"
        )
        words = [sys.executable, "-c", program, str(tmp_path / "script.py")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as grader:
            private = Path(grader.stdout.readline().strip())
            assert private.is_dir()
            grader.kill()
        deadline = time.monotonic() + 30
        while private.exists() or [pid for pid in psutil.pids() if mark in marks(pid)]:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def test_stop_by_the_user(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("import time\nprint('up')\ntime.sleep(60)")
        with Sandbox(script, LIMITS, 1, env={"COURSE_PROBE": ""}) as box:
            run = box.start(1, patience=60)
            next(event for event in run if event.kind == "output")
        assert run.wait().message == "Stopped."


class TestFallback:
    pytestmark = ranks

    def test_it_runs_with_what_can_be_done_and_says_what_can_not(self, ran, monkeypatch, tmp_path):
        monkeypatch.setattr(bubblewrap, "available", lambda: "bubblewrap is not installed.")
        monkeypatch.setenv("SECRET", "1")
        (tmp_path / "images").write_text("pixels")
        done = ran(
            "print(open(os.environ['DATA'] + '/set/images').read(), os.environ['HOME'] == os.getcwd() + '/home')\n"
            "print('SECRET' in os.environ, __file__.endswith('/script/assessment.py')); save()",
            files={tmp_path / "images": Path("/data/set/images")},
            env={"DATA": "/data"},
        )
        assert done.said == ["pixels True", "False True"]
        assert (done.kind, done.result.code, done.traffic) == ("none", 0, None)
        assert done.came["weights.h5"] == b"saved"
        assert done.weaknesses[0] == "No sandbox: bubblewrap is not installed."
        assert any("network" in sentence for sentence in done.weaknesses)

    def test_limits_hold_there_too(self, ran, monkeypatch):
        monkeypatch.setattr(bubblewrap, "available", lambda: "bubblewrap is not installed.")
        done = ran("save()\nif os.fork() == 0: os.setsid()\ntime.sleep(60)", seconds=2)
        assert (done.ended_by, done.came["weights.h5"]) == ("Stopped at the time limit of 2 s.", b"saved")
        done = ran("[os.fork() for _ in range(2)]\nkeep = bytearray(b'x') * (100 * 2**20)\ntime.sleep(60)")
        assert done.ended_by == "It used more than 0.25 GB of memory."
        done = ran("for i in range(4): open(f'full{i}', 'wb').write(b'x' * 2**23)\ntime.sleep(60)")
        assert done.ended_by == "It wrote more than 16 MB of files."


class TestCommand:
    @confined
    def test_another_process_reads_what_it_may_and_speaks_through_its_pipes(self, tmp_path):
        (tmp_path / "inbox").mkdir()
        program = (
            "import os, sys\nsys.stdin.readline(); print(os.listdir('/inbox'), os.environ['EXTRA'], flush=True)\n"
            "print(os.path.exists(sys.argv[1]), open('/proc/net/dev').read().count(':'))"
        )
        words = [sys.executable, "-c", program, str(ROOT / "pyproject.toml")]
        command = bubblewrap.command(words, {tmp_path / "inbox": Path("/inbox")}, {"EXTRA": "1"}, tmp_path)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            (tmp_path / "inbox" / "later").write_text("")
            said, _ = process.communicate("go\n", timeout=30)
        assert said == "['later'] 1\nFalse 1\n"

    def test_without_bubblewrap_the_environment_is_clean_and_paths_are_this_host_s(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bubblewrap, "available", lambda: "bubblewrap is not installed.")
        monkeypatch.setenv("SECRET", "1")
        (tmp_path / "images").write_text("")
        program = "import os; print(os.listdir(os.environ['DATA']), 'SECRET' in os.environ)"
        files = {tmp_path / "images": Path("/data/images")}
        words = bubblewrap.command([sys.executable, "-c", program], files, {"DATA": "/data"}, tmp_path / "links")
        assert subprocess.run(words, capture_output=True, text=True).stdout == "['images'] False\n"


def test_a_folder_that_was_left_behind_goes_with_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "script.py").write_text("")
    old, new = tmp_path / "course-sandbox-old", tmp_path / "course-sandbox-new"
    for folder, age in ((old, 2 * sandbox.STALE_AFTER_S), (new, 60)):
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    with Sandbox(tmp_path / "script.py", LIMITS, 1):
        assert (old.exists(), new.exists()) == (False, True)


def test_a_run_that_has_closed_its_pipe_is_waited_for(tmp_path):
    class Run:
        looks = joins = 0

        @property
        def running(self):
            self.looks += 1
            assert self.looks < 100
            return self.joins < 3

        def join(self, seconds):
            self.joins += 1

    (tmp_path / "script.py").write_text("")
    with Sandbox(tmp_path / "script.py", LIMITS, 1) as box:
        pipe = os.open(box._private / "out", os.O_RDONLY | os.O_NONBLOCK)
        os.close(os.open(box._private / "out", os.O_WRONLY))
        box._collect(Run(), pipe)


def test_a_script_that_is_not_there_is_one_sentence(tmp_path):
    before = set(Path(tempfile.gettempdir()).glob("course-sandbox-*"))
    with pytest.raises(CourseError, match=r"The script .*nowhere.py cannot be read: No such file") as caught:
        Sandbox(tmp_path / "nowhere.py", LIMITS, 1)
    assert caught.value.code == 2
    assert set(Path(tempfile.gettempdir()).glob("course-sandbox-*")) <= before


class TestParcel:
    def taken(self, stream: bytes, folder: Path, most: int = 1000) -> dict[str, bytes]:
        outbox.read(io.BytesIO(stream).read, folder, most)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_what_is_written_is_read(self, tmp_path):
        there = tmp_path / "there"
        (there / "evidence").mkdir(parents=True)
        (there / "weights.h5").write_bytes(b"w" * 10)
        (there / "evidence" / "rank-0.jsonl").write_bytes(b"{}\n")
        stream = io.BytesIO()
        outbox.write(there, stream)
        assert self.taken(stream.getvalue(), tmp_path / "here") == {
            "weights.h5": b"w" * 10,
            "evidence/rank-0.jsonl": b"{}\n",
        }

    @pytest.mark.parametrize(
        "bad",
        [
            b"evidence/../../x 1\nx",
            b"/etc/passwd 1\nx",
            b"other.h5 1\nx",
            b"weights.h5 2\nxy",  # a second time
            b"evidence/x 1001\n" + b"x" * 1001,  # more than may come
            b"evidence/x 100\nxx",  # cut short
            b"evidence/x -1\nxx",
            b"x" * 10_000,
        ],
    )
    def test_what_makes_no_sense_ends_it(self, tmp_path, bad):
        assert self.taken(b"weights.h5 1\nx" + bad + b"evidence/y 1\ny", tmp_path / "here") == {"weights.h5": b"x"}
