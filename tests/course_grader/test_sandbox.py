"""The sandbox: what runs in it reads, writes and reaches nothing else, keeps to its limits, and ends as a whole."""

from __future__ import annotations

import contextlib
import errno
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

from course_grader import sandbox
from course_grader.sandbox import Sandbox, bubblewrap, outbox, system_calls
from course_grader.script.contract import Limits
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
        env = {"COURSE_RECORD": "", "MARK": mark, **settings.pop("env", {})}  # without a record: TensorFlow is slow
        with Sandbox(script, settings.pop("limits", LIMITS), np, env=env, seconds=seconds, **settings) as box:
            self.kind, self.weaknesses = box.kind, box.weaknesses
            with box.start(np, patience=patience) as run:
                self.said = [event.data["text"] for event in run if event.kind == "output"]
            self.result = run.wait()
            self.ended_by, self.use, self.others = box.ended_by, box.use, box.others
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
import course_lib, ctypes
libc = ctypes.CDLL(None, use_errno=True)
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
    "calls": {name: (libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno())[1] for name, number in CALLS.items()},
    "memory": outcome(lambda: len(bytearray(2**30))), "core": __import__("resource").getrlimit(4),
}
os.chdir("/sandbox/evidence")
os.symlink("/etc/passwd", "rank-0.link")
os.mkfifo("rank-0.fifo")
os.mkdir("rank-0.folder")
write("rank-0.BAD name"), write("rank-1.jsonl"), write("other.json")
pathlib.Path("rank-0.report").write_text(json.dumps(report))
open("rank-0.jsonl", "a").write("a record")
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
            "CALLS": system_calls.calls(),
            "HOST": "127.0.0.1",
            "PORT": server.getsockname()[1],
        }
        text = "\n".join(f"{name} = {value!r}" for name, value in names.items()) + PROBES
        # The second rank waits, so that the two do not fill the disk at the same time.
        second = "rank = os.environ.get('HOROVOD_RANK')\nif rank == '1': print(os.listdir('/sandbox/evidence'), "
        second += "open('/marks.json').read()); time.sleep(1); raise SystemExit\n"
        text = second + text
        marks = [folder / f"marks-{rank}" for rank in range(2)]
        for path in marks:
            path.write_text(f"those of {path.name}")
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SECRET", "1")
        done = Ran(
            text,
            folder,
            30,
            2,
            60,
            files={folder / "images": Path("/data/set/images")},
            env={"EXTRA": "1"},
            marks=marks,
        )
    assert done.result.code == 0, done.said
    return done, json.loads(done.came["evidence/rank-0.report"])


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

    def test_calls_that_no_training_makes_are_refused(self, inside):
        _, report = inside
        assert {"ptrace", "process_vm_writev", "unshare"} <= set(report["calls"])
        assert set(report["calls"].values()) == {errno.EPERM}

    def test_disk_and_memory_have_an_end(self, inside):
        _, report = inside
        assert all(0 < filled <= LIMITS.disk * 2**20 for filled in report["filled"])
        assert (report["large"], report["memory"], report["core"]) == ("OSError", "MemoryError", [0, 0])

    def test_the_script_has_one_name_and_one_core_and_no_rights(self, inside):
        _, report = inside
        assert (report["script"], report["path"]) == ("/script/assessment.py", "/script")
        assert report["uid"] != 0
        assert report["cores"] == sorted(os.sched_getaffinity(0))[:1]
        assert len(report["processes"]) <= 3  # its own and bubblewrap's: not the other rank's, not the launcher's
        assert report["environment"]["OMP_NUM_THREADS"] == "1"
        assert report["environment"]["EXTRA"] == "1"
        assert "SECRET" not in report["environment"]

    def test_only_plain_files_of_known_names_come_out(self, inside):
        done, _ = inside
        appended = {f"evidence/rank-{rank}.{kind}" for rank in range(2) for kind in outbox.PIPED}
        assert set(done.came) - {"evidence/timeline.json"} == {"weights.h5", "evidence/rank-0.report", *appended}
        assert (done.came["weights.h5"], done.came["evidence/rank-0.jsonl"]) == (b"saved", b"a record")
        assert done.came["evidence/rank-1.jsonl"] == b""  # rank 0 has written into its own folder only
        assert (done.kind, done.weaknesses, done.ended_by) == ("bubblewrap", (), "")

    def test_a_rank_has_its_own_marks_and_records(self, inside):
        done, _ = inside
        (said,) = [line for line in done.said if "those of" in line]
        assert "those of marks-1" in said
        assert "rank-1.jsonl" in said
        assert "rank-0" not in said

    def test_the_host_sees_what_each_rank_computes_and_what_they_say_to_each_other(self, inside):
        done, _ = inside
        assert done.use[-1].traffic >= 0
        assert [len(moment.computed) for moment in done.use] == [2] * len(done.use)
        assert done.use[-1].computed[1] > 0  # rank 0 may be gone before it is looked at


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

    @pytest.mark.parametrize("victims", ["os.getppid()", "1"])
    def test_one_that_kills_what_runs_it(self, ran, victims):
        done = ran(f"save()\nos.kill({victims}, 9)\ntime.sleep(60)", seconds=4)
        assert done.result.code in (137, launch.TIMED_OUT)
        assert done.came["weights.h5"] == b"saved"

    def test_a_daemon_is_ended_before_the_weights_are_taken(self, ran, monkeypatch):
        monkeypatch.setattr(run, "SHUTDOWN_LIMIT_S", 0.5)
        done = ran(
            "save()\nif os.fork() == 0:\n    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)"
        )
        assert (done.result.code, done.came["weights.h5"]) == (0, b"saved")

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
            "import sys\nfrom pathlib import Path\nfrom course_grader.script.contract import Limits\n"
            "from course_grader.sandbox import Sandbox\n"
            f"box = Sandbox(Path(sys.argv[1]), {LIMITS!r}, 1, env={{'COURSE_RECORD': '', 'MARK': {mark!r}}})\n"
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
        with Sandbox(script, LIMITS, 1, env={"COURSE_RECORD": ""}) as box:
            run = box.start(1, patience=60)
            next(event for event in run if event.kind == "output")
        assert run.wait().message == "Stopped."


@confined
class TestFullDisk:
    pytestmark = ranks

    def test_what_this_host_cannot_hold_is_no_fault_of_the_script(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("open('evidence/rank-0.jsonl', 'a').write('a record')")
        with Sandbox(script, LIMITS, 1, env={"COURSE_RECORD": ""}, seconds=20) as box:
            evidence = box._private / "taken" / "evidence"
            evidence.mkdir(parents=True)
            (evidence / "rank-0.jsonl").symlink_to("/dev/full")
            with box.start(1, patience=60) as run:
                assert run.wait().code == 0
            with pytest.raises(OSError, match="No space left") as caught:
                _ = box.folder
        assert caught.value.errno == errno.ENOSPC


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
        assert (done.kind, done.result.code, done.use) == ("none", 0, ())
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


NAMES_A_THREAD = """
import os, threading, errno
def outcome(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        return error.errno
    return 0
def of_no_process():
    for folder, folders, files in os.walk("/proc"):
        if folder == "/proc":
            folders[:] = [name for name in folders if not name.isdigit()]
        yield from (os.path.join(folder, name) for name in files)
kept = {path: outcome(path) for path in of_no_process() if not os.path.islink(path)}
print(outcome(f"/proc/self/task/{threading.get_native_id()}/comm"))
print(kept["/proc/sys/kernel/core_pattern"] == errno.EROFS, sorted(path for path, code in kept.items() if code == 0))
"""


@confined
class TestGpus:
    """As on a host with GPUs; the device that is bound here is no GPU."""

    def test_a_rank_names_its_threads_and_changes_nothing_of_the_kernel(self, monkeypatch):
        monkeypatch.setattr(bubblewrap, "gpu_devices", lambda: ["/dev/null"])
        done = bubblewrap._tried(NAMES_A_THREAD)
        assert (done.stdout, done.stderr) == ("0\nTrue []\n", "")

    def test_without_gpus_all_of_proc_is_for_reading(self, monkeypatch):
        monkeypatch.setattr(bubblewrap, "gpu_devices", list)
        assert bubblewrap._tried(NAMES_A_THREAD).stdout == f"{errno.EROFS}\nTrue []\n"

    @pytest.mark.parametrize(
        ("python", "said"),
        [
            ("", ""),
            ("import sys; sys.exit('error 304')", "CUDA does not start in the sandbox (error 304), so that the ranks"),
            ("import time; time.sleep(60)", "CUDA does not start in the sandbox (no answer within 1 s)"),
        ],
    )
    def test_cuda_is_tried_in_the_sandbox(self, python, said, monkeypatch):
        monkeypatch.setattr(bubblewrap, "_START_CUDA", python)
        monkeypatch.setattr(bubblewrap, "TRIAL_LIMIT_S", 1 if "sleep" in python else 60)
        problem = bubblewrap.cuda_problem.__wrapped__()
        assert problem.startswith(said) and bool(problem) == bool(said)

    @pytest.mark.skipif(bool(launch.gpus()), reason="This host has GPUs.")
    def test_a_host_without_cuda_says_what_is_missing(self):
        assert "libcuda.so.1" in bubblewrap.cuda_problem.__wrapped__()

    def test_who_is_no_rank_gets_no_gpu(self, tmp_path, monkeypatch):
        monkeypatch.setattr(bubblewrap, "gpu_devices", lambda: ["/dev/zero"])
        options = bubblewrap.rank_options(1000, [], {}, {})
        assert options[options.index("--dev-bind") :][:3] == ["--dev-bind", "/dev/zero", "/dev/zero"]
        assert "--dev-bind" not in bubblewrap.command(["true"], {}, {}, tmp_path)


def test_a_folder_that_was_left_behind_goes_with_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "script.py").write_text("")
    old, new = tmp_path / "course-sandbox-old", tmp_path / "course-sandbox-new"
    for folder, age in ((old, 2 * sandbox.STALE_AFTER_S), (new, 60)):
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    with Sandbox(tmp_path / "script.py", LIMITS, 1):
        assert (old.exists(), new.exists()) == (False, True)


def test_a_script_that_is_not_there_is_one_sentence(tmp_path):
    before = set(Path(tempfile.gettempdir()).glob("course-sandbox-*"))
    with pytest.raises(CourseError, match=r"The script .*nowhere.py cannot be read: No such file") as caught:
        Sandbox(tmp_path / "nowhere.py", LIMITS, 1)
    assert caught.value.code == 2
    assert set(Path(tempfile.gettempdir()).glob("course-sandbox-*")) <= before


class TestOutbox:
    def taken(self, folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_what_ranks_append_is_taken_as_it_comes_and_cannot_be_taken_back(self, tmp_path):
        folders = {rank: tmp_path / f"rank-{rank}" for rank in range(2)}
        for folder in folders.values():
            folder.mkdir()
        taken = tmp_path / "taken"
        with outbox.Records(folders, taken, most=10):
            (folders[0] / "rank-0.jsonl").open("a").write("first ")
            deadline = time.monotonic() + 10
            while self.taken(taken)["evidence/rank-0.jsonl"] != b"first ":
                assert time.monotonic() < deadline
            (folders[0] / "rank-0.jsonl").open("w").write("more than may come")
            (folders[1] / "rank-1.steps").open("ab").write(b"1234")
        found = self.taken(taken)
        assert (found["evidence/rank-0.jsonl"], found["evidence/rank-1.steps"]) == (b"first more", b"1234")

    def test_the_rest_is_copied_at_the_end(self, tmp_path):
        work, folders = tmp_path / "work", {rank: tmp_path / f"rank-{rank}" for rank in range(2)}
        for folder in (work, tmp_path / "taken" / "evidence", *folders.values()):
            folder.mkdir(parents=True)
        (work / "weights.h5").write_bytes(b"w" * 10)
        for name in ("rank-0.weights", "rank-1.weights", "timeline.json", "other"):
            (folders[0] / name).write_bytes(b"0")
            (folders[1] / name).write_bytes(b"1")
        (folders[1] / "rank-1.large").write_bytes(b"x" * 10)
        outbox.hand_out(work, folders, tmp_path / "taken", most=15)
        assert self.taken(tmp_path / "taken") == {
            "weights.h5": b"w" * 10,
            "evidence/rank-0.weights": b"0",
            "evidence/timeline.json": b"0",
            "evidence/rank-1.weights": b"1",
        }
