"""The sandbox: what runs in it reads, writes and reaches nothing else, keeps to its limits, and ends as a whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from course_grader.sandbox import Sandbox, bubblewrap, gpu_kernels, limits, outbox, seccomp
from course_grader.sandbox.resource_monitor import cores_cpu_seconds
from course_grader.script.contract import Limits
from course_lib.ranks import launch, run
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

LIMITS = Limits(memory=0.25, gpu_memory=0.5, processes=10, disk=16, output=1)
TOO_MUCH = (
    "It used more than 0.25 GB of memory, 0.25 GB for each rank. This counts the host memory of its "
    "processes, but not cached files or GPU memory."
)
SAVE = "import os, sys, time, signal\nsave = lambda: open(os.environ['COURSE_WEIGHTS'], 'w').write('saved')\n"
DEADLINE_S = 60  # for what only has to come

confined = pytest.mark.skipif(bool(bubblewrap.available()), reason=bubblewrap.available())
ranks = [pytest.mark.alone, pytest.mark.ranks, pytest.mark.slow]  # within limits of seconds


class Ran:
    """A script that has run in a sandbox, and what came out."""

    def __init__(
        self, text: str, folder: Path, seconds: float = 20, np: int = 1, stall_timeout: float = 60, **settings: object
    ) -> None:
        mark = uuid.uuid4().hex
        script = folder / "learner.py"
        script.write_text(SAVE + text)
        settings = {"files": {}, "limits": LIMITS, **settings}
        settings["env"] = {"MARK": mark, **settings.get("env", {})}
        with Sandbox(script, settings.pop("limits"), np, seconds=seconds, **settings) as box:
            self.kind, self.weaknesses = box.kind, box.weaknesses
            # Without a record, for which TensorFlow would be loaded.
            with box.start(np, stall_timeout=stall_timeout, record=False) as run:
                self.said = [event.data["text"] for event in run if event.kind == "output"]
            self.result = run.wait()
            self.ended_by, self.samples, self.others = box.ended_by, box.samples, box.others
            self.device_processes = box.device_processes
            self.came = came(box.folder)
            private = box._private
        assert not private.exists()
        assert not [pid for pid in psutil.pids() if mark in environment(pid)]


def came(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def wait_until(condition) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def ran(tmp_path):
    return lambda text, **settings: Ran(text, tmp_path, **settings)


@pytest.fixture
def no_bubblewrap(monkeypatch):
    monkeypatch.setattr(bubblewrap, "available", lambda: "bubblewrap is not installed.")


TRIES = """
import contextlib, ctypes, json, pathlib, shutil, socket, subprocess, threading
import course_lib
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
libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()
def call(number, first=0):
    ended = libc.syscall(number, first, 0, 0, 0, 0)
    if os.getpid() != parent:
        os._exit(0)
    return ctypes.get_errno() if ended == -1 else 0
thread = threading.Thread(target=save)
thread.start()
thread.join()
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
    "calls": {name: call(number) for name, number in CALLS.items()},
    "clone": call(CLONE, CLONE_NEWUSER | signal.SIGCHLD), "clone3": call(CLONE3),
    "unshare": subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True).stderr,
    "memory": outcome(lambda: len(bytearray(2**30))), "core": __import__("resource").getrlimit(4),
}
os.chdir("/sandbox/record")
os.symlink("/etc/passwd", "rank-0.link")
os.symlink("/dev/zero", "rank-0.device")
os.mkfifo("rank-0.fifo")
os.mkdir("rank-0.folder")
write("rank-0.BAD name"), write("rank-1.jsonl"), write("other.json")
pathlib.Path("rank-0.report").write_text(json.dumps(report))
"""
SECOND = """
print("own:", open("/data/own").read())
if os.environ["HOROVOD_RANK"] == "1":  # waits, so that the two do not fill the disk at the same time
    print("record:", os.listdir("/sandbox/record"))
    open("/sandbox/record/rank-1.jsonl", "w").write("of rank 1")
    time.sleep(1)
    raise SystemExit
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """A script on two ranks that tries everything; rank 0 reports."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "images").write_text("pixels")
    (folder / "secret").write_text("secret")
    own = [folder / f"own-{rank}" for rank in range(2)]
    for path in own:
        path.write_text(path.name)
    course = [str(ROOT / name) for name in ("course_lib", "assessment")]
    places = ["/", "/usr", "/etc", "/dev", "/script", *course]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # of the host
        names = {
            "LISTED": [*(str(ROOT / name) for name in ("assessment", "tests", "labs")), str(Path.home()), str(folder)],
            "READ": [str(folder / "secret"), "/etc/shadow", str(ROOT / "pyproject.toml")],
            "WRITTEN": ["/script/assessment.py", *(f"{place}/x" for place in places)],
            "CALLS": seccomp.refused(),
            "CLONE": seccomp.clone(),
            "CLONE3": seccomp.CLONE3,
            "CLONE_NEWUSER": seccomp.CLONE_NEWUSER,
            "HOST": "127.0.0.1",
            "PORT": server.getsockname()[1],
        }
        text = SECOND + "\n".join(f"{name} = {value!r}" for name, value in names.items()) + TRIES
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SECRET", "1")
        done = Ran(
            text,
            folder,
            seconds=30,
            np=2,
            files={folder / "images": Path("/data/set/images")},
            own_files=[{path: Path("/data/own")} for path in own],
            env={"EXTRA": "1"},
        )
    assert done.result.code == 0, done.said
    return done, json.loads(done.came["record/rank-0.report"])


@confined
class TestInside:
    pytestmark = ranks

    def test_nothing_of_the_course_but_its_packages_and_nothing_of_the_user_is_there(self, inside):
        _, report = inside
        seen = [*bubblewrap.python_folders(), *map(str, bubblewrap.PACKAGES)]
        for path, found in report["files"].items():
            # Where Python itself lies below a folder, that folder is there, with nothing else in it.
            assert found == "FileNotFoundError" or all(
                any(str(Path(path) / name) in (library, *map(str, Path(library).parents)) for library in seen)
                for name in found
            ), path
        assert report["files"][str(ROOT / "assessment")] == ["course_grader"]
        assert set(report["read"].values()) == {"FileNotFoundError"}
        assert report["course"] == str(ROOT / "course_lib" / "__init__.py")

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
        assert {"ptrace", "process_vm_writev", "unshare", "open_tree", "fsmount"} <= set(report["calls"])
        assert set(report["calls"].values()) == {errno.EPERM}
        assert (report["clone"], report["clone3"]) == (errno.EPERM, errno.ENOSYS)
        assert "Operation not permitted" in report["unshare"]  # said by a child process, which starts as ever

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
        assert done.came.keys() == {"weights.h5", "record/rank-0.report", "record/rank-1.jsonl"}
        assert done.came["weights.h5"] == b"saved"
        assert done.came["record/rank-1.jsonl"] == b"of rank 1"  # rank 0 has written into its own folder only
        assert (done.kind, done.weaknesses, done.ended_by) == ("bubblewrap", (), "")

    def test_a_rank_has_files_and_a_record_of_its_own(self, inside):
        done, _ = inside
        assert sorted(done.said) == ["own: own-0", "own: own-1", "record: []"]

    def test_the_host_sees_what_each_rank_computes_and_what_they_say_to_each_other(self, inside):
        done, _ = inside
        assert done.samples[-1].traffic >= 0
        assert [len(sample.user_seconds) for sample in done.samples] == [2] * len(done.samples)
        assert done.samples[-1].user_seconds[1] > 0  # rank 0 may be gone before it is looked at
        assert done.device_processes is None  # here no driver lists any


@confined
class TestEnds:
    pytestmark = ranks

    def test_at_the_time_limit_what_is_saved_comes_out(self, ran):
        text = "save(); open('record/rank-0.log', 'w').write('a line')\n"
        done = ran(text + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)", seconds=6)
        assert (done.result.code, done.ended_by) == (launch.TIMED_OUT, "Stopped at the time limit of 6 s.")
        assert done.came == {"weights.h5": b"saved", "record/rank-0.log": b"a line"}

    def test_ranks_that_wait_for_each_other(self, ran):
        text = "save()\nfrom course_lib.system import notices\nnotices.notify('batch', step=0)\ntime.sleep(60)"
        done = ran(text, np=2, stall_timeout=1)
        assert "the ranks wait for each other" in done.ended_by
        assert done.came["weights.h5"] == b"saved"

    def test_a_fork_bomb(self, ran):
        done = ran("while True:\n    try: os.fork()\n    except OSError: pass")
        assert done.ended_by == "It started more than 10 processes for each rank."

    def test_memory_of_all_processes_together(self, ran):
        named = "__import__('ctypes').CDLL(None).prctl(15, b'\\xff\\nRssAnon: 0')\n"  # a name that is hard to read
        done = ran(named + "[os.fork() for _ in range(2)]\nkeep = bytearray(b'x') * (100 * 2**20)\ntime.sleep(60)")
        assert done.ended_by == TOO_MUCH

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

    def test_a_daemon_is_ended_before_the_weights_are_taken(self, ran):
        done = ran(
            "save()\nif os.fork() == 0:\n    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)"
        )
        assert (done.result.code, done.came["weights.h5"]) == (0, b"saved")

    @pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a core more than ranks")
    def test_one_that_takes_more_cores(self, ran, monkeypatch):
        monkeypatch.setattr(limits, "CORE_CHECK_POLLS", 3)
        done = ran("os.sched_setaffinity(0, range(os.cpu_count()))\ntime.sleep(60)")
        assert done.ended_by == "It ran on cores other than those assigned to its ranks."

    def test_what_others_compute_on_its_core_is_told_from_what_it_computes(self, ran, monkeypatch):
        def own(cores: list[int]) -> float:
            """As on a core that nobody else computes on."""
            times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
            return sum(time.user + time.system for time in times)

        monkeypatch.setattr(limits, "cores_cpu_seconds", own)
        assert ran("while time.thread_time() < 2: pass").others < 0.5
        monkeypatch.setattr(limits, "cores_cpu_seconds", lambda cores: own(cores) + time.monotonic())
        assert ran("time.sleep(2)").others > 0.5

    def test_the_clock_of_a_core(self):
        assert cores_cpu_seconds([min(os.sched_getaffinity(0))]) > 0
        assert cores_cpu_seconds([10**6]) is None

    def test_nothing_is_left_of_a_grader_that_is_killed(self, tmp_path):
        mark = uuid.uuid4().hex
        (tmp_path / "script.py").write_text("import time\nprint('up')\ntime.sleep(60)")
        program = (
            "import sys\nfrom pathlib import Path\nfrom course_grader.script.contract import Limits\n"
            "from course_grader.sandbox import Sandbox\n"
            f"env = {{'MARK': {mark!r}}}\n"
            f"box = Sandbox(Path(sys.argv[1]), {LIMITS!r}, 1, files={{}}, env=env, seconds=None)\n"
            "run = box.start(1, stall_timeout=60, record=False)\n"
            "next(event for event in run if event.kind == 'output')\n"
            "print(box._private, flush=True)\nrun.wait()"
        )
        words = [sys.executable, "-c", program, str(tmp_path / "script.py")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as grader:
            private = Path(grader.stdout.readline().strip())
            assert private.is_dir()
            grader.kill()
        wait_until(lambda: not (private.exists() or [pid for pid in psutil.pids() if mark in environment(pid)]))

    def test_stop_by_the_user(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("import time\nprint('up')\ntime.sleep(60)")
        with Sandbox(script, LIMITS, 1, files={}, env={}, seconds=None) as box:
            run = box.start(1, stall_timeout=60, record=False)
            next(event for event in run if event.kind == "output")
        assert run.wait().message == "Stopped."

    def test_what_this_host_cannot_hold_is_no_fault_of_the_script(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(SAVE + "save()")
        with Sandbox(script, LIMITS, 1, files={}, env={}, seconds=20) as box:
            (box._private / "copied").symlink_to("/dev/full")
            with box.start(1, stall_timeout=60, record=False) as run:
                assert run.wait().code == 0
            with pytest.raises(NotADirectoryError):
                _ = box.folder

    def test_tensorflow_starts_on_two_ranks_and_they_reach_each_other(self, ran):
        text = (
            "import horovod.tensorflow as hvd, tensorflow as tf\nhvd.init()\n"
            "print('sum', float(hvd.allreduce(tf.ones(1000), op=hvd.Sum)[0]))"
        )
        done = ran(text, np=2, seconds=120, limits=Limits(memory=2, processes=64, disk=16, output=1))
        assert (done.result.code, done.said.count("sum 2.0")) == (0, 2), done.said
        assert done.samples[-1].traffic > 0


class TestFallback:
    pytestmark = ranks

    def test_it_runs_with_what_can_be_done_and_says_what_can_not(self, ran, no_bubblewrap, monkeypatch, tmp_path):
        monkeypatch.setenv("SECRET", "1")
        (tmp_path / "images").write_text("pixels")
        done = ran(
            "print(open(os.environ['DATA'] + '/set/images').read(), os.environ['HOME'] == os.getcwd() + '/home')\n"
            "print('SECRET' in os.environ, __file__.endswith('/script/assessment.py')); save()\n"
            "open('record/rank-0.log', 'w').write('a line')",
            own_files=[{tmp_path / "images": Path("/data/set/images")}],
            env={"DATA": "/data"},
        )
        assert done.said == ["pixels True", "False True"]
        assert (done.kind, done.result.code, done.samples) == ("none", 0, ())
        assert done.came == {"weights.h5": b"saved", "record/rank-0.log": b"a line"}
        assert done.weaknesses[0] == "No sandbox: bubblewrap is not installed."
        assert any("network" in sentence for sentence in done.weaknesses)

    def test_limits_hold_there_too(self, ran, no_bubblewrap):
        done = ran("save()\nif os.fork() == 0: os.setsid()\ntime.sleep(60)", seconds=6)
        assert (done.ended_by, done.came["weights.h5"]) == ("Stopped at the time limit of 6 s.", b"saved")
        done = ran("[os.fork() for _ in range(2)]\nkeep = bytearray(b'x') * (100 * 2**20)\ntime.sleep(60)")
        assert done.ended_by == TOO_MUCH
        done = ran("for i in range(4): open(f'full{i}', 'wb').write(b'x' * 2**23)\ntime.sleep(60)")
        assert done.ended_by == "It wrote more than 16 MB of files."


@pytest.mark.parametrize("kind", [pytest.param("bubblewrap", marks=confined), "none"])
class TestTemporaryFolder:
    pytestmark = ranks

    def test_its_name_may_have_spaces_and_signs(self, kind, ran, request, monkeypatch, tmp_path):
        if kind == "none":
            request.getfixturevalue("no_bubblewrap")
        folder = tmp_path / """it's a $HOME; "here" """
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        rank = "rank = os.environ['HOROVOD_RANK']\n"
        done = ran(rank + "save(); open(f'record/rank-{rank}.log', 'w').write(rank)", np=2)
        assert (done.kind, done.result.code) == (kind, 0), done.result
        assert done.came == {"weights.h5": b"saved", "record/rank-0.log": b"0", "record/rank-1.log": b"1"}


class TestCommand:
    @confined
    def test_another_process_reads_what_it_may_and_speaks_through_its_pipes(self, tmp_path):
        (tmp_path / "inbox").mkdir()
        program = (
            "import ctypes, os, sys, course_grader.sandbox.outbox\nsys.stdin.readline()\n"
            "print(os.listdir('/inbox'), os.environ['EXTRA'], flush=True)\n"
            "print(os.path.exists(sys.argv[1]), open('/proc/net/dev').read().count(':'), os.listdir(sys.argv[2]))\n"
            "print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000), ctypes.get_errno())"
        )
        words = [sys.executable, "-c", program, str(ROOT / "pyproject.toml"), str(ROOT / "assessment")]
        inbox = {tmp_path / "inbox": Path("/inbox")}
        command = bubblewrap.command(words, inbox, {"EXTRA": "1"}, tmp_path / "a folder")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            (tmp_path / "inbox" / "later").write_text("")
            said, _ = process.communicate("go\n", timeout=30)
        assert said == f"['later'] 1\nFalse 1 ['course_grader']\n-1 {errno.EPERM}\n"

    def test_without_bubblewrap_the_environment_is_clean_and_paths_are_this_host_s(
        self, no_bubblewrap, tmp_path, monkeypatch
    ):
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
class TestGpuDevices:
    """As on a host with GPUs; the device that is bound here is no GPU."""

    def test_a_rank_names_its_threads_and_changes_nothing_of_the_kernel(self, monkeypatch):
        monkeypatch.setattr(bubblewrap, "gpu_devices", lambda: ["/dev/null"])
        done = bubblewrap._try_out(NAMES_A_THREAD)
        assert (done.stdout, done.stderr) == ("0\nTrue []\n", "")

    def test_without_gpus_all_of_proc_is_for_reading(self, monkeypatch):
        monkeypatch.setattr(bubblewrap, "gpu_devices", list)
        assert bubblewrap._try_out(NAMES_A_THREAD).stdout == f"{errno.EROFS}\nTrue []\n"

    @pytest.mark.parametrize(
        ("python", "said"),
        [
            ("", ""),
            ("import sys; sys.exit('error 304')", "CUDA does not start in the sandbox (error 304), so the ranks"),
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


NVIDIA_SMI = """
if [ "$1" = -L ]; then
    printf 'GPU 0: Pretended (UUID: GPU-a)\\nGPU 1: Pretended (UUID: GPU-b)\\n'
elif [ "$*" = "--query-compute-apps=pid,gpu_uuid --format=csv,noheader,nounits" ]; then
    cat '{listed}'
elif [ "$1" = --query-gpu=name,driver_version ]; then
    echo 'Pretended, 580.1'; echo 'Pretended, 580.1'
fi
"""


@confined
class TestPretendedGpus:
    """As on a host with two GPUs; which processes `nvidia-smi` lists stands in a file."""

    pytestmark = ranks

    @pytest.fixture
    def listed(self, tmp_path, monkeypatch, nvidia_smi) -> Path:
        listed = tmp_path / "listed"
        listed.write_text("")
        nvidia_smi(NVIDIA_SMI.format(listed=listed))
        monkeypatch.setattr(gpu_kernels, "paths", SimpleNamespace(cache=lambda: tmp_path / "cache"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(limits, "DEVICE_POLL_INTERVAL_S", 0.1)
        return listed

    def test_the_driver_lists_which_rank_computes_on_which_gpu(self, listed, tmp_path):
        script, inbox, mark = tmp_path / "script.py", tmp_path / "inbox", uuid.uuid4().hex
        inbox.mkdir()
        wait = "while not os.path.exists('/inbox/end'): time.sleep(0.1)"
        script.write_text(f"import os, time\nchild = os.fork()\nprint('up')\n{wait}\nchild and os.wait()")
        env = {"MARK": mark}
        with Sandbox(script, LIMITS, 2, files={inbox: Path("/inbox")}, env=env, seconds=60) as box:
            with box.start(2, stall_timeout=60, record=False) as run:
                up = (event for event in run if event.data.get("text") == "up")
                for _ in range(4):  # two processes of each rank
                    next(up)
                found = {pid: text for pid in psutil.pids() if mark in (text := environment(pid))}
                uuids = {pid: "GPU-a" if "HOROVOD_RANK=0" in text else "GPU-b" for pid, text in found.items()}
                rows = [f"{pid}, {uuid}\n" for pid, uuid in {**uuids, 1: "GPU-b"}.items()]
                listed.write_text("".join([*rows, f"{max(uuids)}, GPU-a\n", "[N/A], GPU-b\n"]))
                own = {rank: {"GPU-a" if rank == 0 else "GPU-b"} for rank in range(2)}
                own[0 if uuids[max(uuids)] == "GPU-a" else 1].add("GPU-a")
                wait_until(lambda: box._monitor.device_processes == own)
                listed.write_text("")  # what has been seen stays
                (inbox / "end").touch()
                assert run.wait().code == 0
            assert box.device_processes == own

    def test_each_rank_gets_the_kept_kernels_and_cannot_change_them(self, ran, listed):
        kept = gpu_kernels.folder() / "0" / "a" / "kernel"
        kept.parent.mkdir(parents=True)
        kept.write_text("compiled")
        done = ran(
            "import os, pathlib\nfolder = pathlib.Path(os.environ['CUDA_CACHE_PATH'])\n"
            "kernel = folder / '0' / 'a' / 'kernel'\nprint(kernel.read_text())\n"
            "kernel.write_text('poison')\n(folder / 'index').write_text('new')\nprint(kernel.read_text())\n"
            f"print(os.path.exists({str(kept)!r}))"
        )
        assert (done.result.code, done.said) == (0, ["compiled", "poison", "False"])
        assert [file.read_text() for file in gpu_kernels.folder().rglob("*") if file.is_file()] == ["compiled"]

    def test_memory_on_the_host_has_another_limit_and_no_process_of_the_script_is_known(self, ran, listed):
        listed.write_text("1, GPU-a\n")
        take = "keep = bytearray(b'x') * ({} * 2**20)\nprint(os.environ['TF_FORCE_GPU_ALLOW_GROWTH'])\ntime.sleep({})"
        done = ran(take.format(300, 1))
        assert (done.result.code, done.said, done.device_processes) == (0, ["true"], None)
        assert ran(take.format(600, 60)).ended_by == TOO_MUCH.replace("0.25", "0.5")


def test_a_script_that_is_not_there_is_one_sentence(tmp_path):
    before = set(Path(tempfile.gettempdir()).glob("course-sandbox-*"))
    with pytest.raises(CourseError, match=r"The script .*nowhere.py cannot be read: No such file") as caught:
        Sandbox(tmp_path / "nowhere.py", LIMITS, 1, files={}, env={}, seconds=None)
    assert caught.value.code == 2
    assert set(Path(tempfile.gettempdir()).glob("course-sandbox-*")) <= before


def test_the_record_has_an_end(tmp_path):
    work, records, taken = tmp_path / "work", [tmp_path / f"rank-{rank}" for rank in range(2)], tmp_path / "taken"
    for folder in (work, *records):
        folder.mkdir()
    (work / "weights.h5").write_bytes(b"w" * 10)
    for rank, folder in enumerate(records):
        for name in ("rank-0.log", "rank-1.log", "rank-1.log.1", "rank-10.log", "rank-.log", "other"):
            (folder / name).write_bytes(b"%d" % rank)
    (records[1] / "rank-1.large").write_bytes(b"x" * 10)
    outbox.copy_out(work, records, taken, max_bytes=15)
    assert came(taken) == {
        "weights.h5": b"w" * 10,
        "record/rank-0.log": b"0",
        "record/rank-1.log": b"1",
        "record/rank-1.log.1": b"1",
    }


def answer(program: bytes, machine: int, number: int, argument: int = 0) -> int:
    """What the filter returns for a call: the kernel's interpreter, as far as the filter needs it."""
    data, line, word = struct.pack("IIQQ", number, machine, 0, argument), 0, 0
    while True:
        code, yes, no, operand = struct.unpack_from("HBBI", program, 8 * line)
        if code == 0x06:
            return operand
        if code == 0x20:
            (word,) = struct.unpack_from("I", data, operand)
            yes = no = 0
        line += 1 + (yes if {0x15: word == operand, 0x35: word >= operand, 0x45: word & operand}.get(code) else no)


@pytest.mark.parametrize(
    ("machine", "audit", "read", "ptrace", "clone"),
    [("x86_64", 0xC000003E, 0, 101, 56), ("aarch64", 0xC00000B7, 63, 117, 220)],
)
def test_the_filter_of_each_machine(machine, audit, read, ptrace, clone, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program = seccomp.program()
    allow, refuse, missing = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    assert answer(program, audit, read) == allow
    assert {answer(program, audit, number) for number in (ptrace, 428, 429, 430, 431, 432, 433, 442)} == {refuse}
    assert answer(program, audit, clone, 0x3D0F00) == allow  # a thread
    assert answer(program, audit, clone, 0x10000011) == refuse  # with a user namespace
    assert answer(program, audit, 435) == missing
    assert answer(program, 0x40000003, read) == refuse  # as a program for 32 bits calls


def test_a_machine_whose_calls_are_not_known_has_no_filter(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert seccomp.program() == b""
    assert "--seccomp" not in bubblewrap.rank_options(1000, [], {}, {})
