"""Launching: bad input is one sentence; runs end with the right code and leave nothing behind."""

from __future__ import annotations

import gzip
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from course_lib import data
from course_lib.ranks import launch, rank, remote
from course_lib.ranks.run import LINE_OVERHEAD_BYTES
from course_lib.system.errors import CourseError

COURSE = [sys.executable, "-m", "course_lib.command.cli"]

slow_ranks = [pytest.mark.slow, pytest.mark.ranks]


@pytest.fixture
def script(tmp_path):
    """Write a script that says which rank it is, then does what the test wants."""

    def write(body: str) -> Path:
        path = tmp_path / "script.py"
        rank = "int(os.environ.get('HOROVOD_RANK') or os.environ['OMPI_COMM_WORLD_RANK'])"
        path.write_text(f"import os, sys, time\nrank = {rank}\n{body}")
        return path

    return write


def left_over(marker: str) -> list[str]:
    """Command lines of processes that name `marker`."""
    lines = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if marker in line and process.pid != os.getpid():
            lines.append(line)
    return lines


def everything_gone(marker: str, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while left := left_over(marker):
        if time.monotonic() > deadline:
            raise AssertionError(f"still running: {left}")
        time.sleep(0.1)
    return True


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["nowhere.py"], "There is no script nowhere.py"),
        (["{script}", "-np", "0"], "at least one rank, not 0"),
        (["{script}", "-np", "3", "-H", "localhost:2"], "3 ranks do not fit into the 2 slots"),
        (["{script}", "-H", "localhost"], "Hosts are written host:slots"),
        (["{script}", "--timeout", "-1"], "more than 0 seconds"),
        (["{script}", "--gloo", "--mpi"], "Choose one"),
    ],
)
def test_bad_input_is_one_sentence(script, arguments, sentence):
    path = script("")
    command = [*COURSE, "run", *(a.format(script=path) for a in arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_missing_controller_is_named(script, monkeypatch):
    monkeypatch.setattr(launch, "controllers", lambda: ("gloo",))
    with pytest.raises(CourseError, match="built without mpi: use gloo"):
        launch.start(script(""), controller="mpi")


def test_ranks_of_an_elastic_run_get_names_of_their_own():
    hosts = [host.split(":") for host in launch._one_rank_each(4).split(",")]
    assert len({name for name, _ in hosts}) == 4
    assert {slots for _, slots in hosts} == {"1"}
    assert all(remote.here(name) and ipaddress.ip_address(socket.gethostbyname(name)).is_loopback for name, _ in hosts)


def test_one_rank_per_gpu_else_two(monkeypatch):
    monkeypatch.setattr(launch, "gpus", lambda: ["A", "B", "C"])
    assert launch.default_ranks() == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert launch.default_ranks() == 2
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(launch, "gpus", list)
    assert launch.default_ranks() == 2


def test_scheduling_is_left_alone_on_a_host_with_a_gpu(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("os.sched_setscheduler", lambda *arguments: asked.append(arguments))
    for driver, calls in ((tmp_path, 0), (tmp_path / "none", 1)):
        monkeypatch.setattr(rank, "NVIDIA_DRIVER", driver)
        rank.compute_first()
        assert len(asked) == calls


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no')", 1, "no\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", 130, ""),
        ("from course_lib.system.errors import CourseError\nraise CourseError('Do this.', 2)", 2, "Do this.\n"),
        ("", 0, ""),
    ],
)
def test_how_a_script_ends_is_reported_at_once(tmp_path, monkeypatch, capsys, body, code, said):
    path, reports = tmp_path / "script.py", []
    path.write_text(f"import sys\n{body}")
    monkeypatch.setattr(sys, "argv", ["rank.py"])
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert rank.run(str(path), [], lambda kind, **data: reports.append((kind, data))) == code
    assert reports == [("rank-exit", {"code": code})]
    errors = capsys.readouterr().err
    assert errors.endswith(said) and "runpy" not in errors


class TestRuns:
    pytestmark = slow_ranks

    def test_output_carries_its_rank(self, script, controller):
        run = launch.start(script("print('hello', rank); print('oops', rank, file=sys.stderr)"), controller=controller)
        said = {(e.rank, e.data["stream"], e.data["text"]) for e in run if e.kind == "output"}
        assert said == {(r, *w) for r in (0, 1) for w in (("stdout", f"hello {r}"), ("stderr", f"oops {r}"))}
        assert run.wait().code == 0

    def test_arguments_folder_core_and_main_are_the_script_s(self, script, tmp_path, controller):
        (core, *_) = cores = sorted(os.sched_getaffinity(0))
        facts = "__name__, sys.argv[1:], os.getcwd(), sys.path[0], os.sched_getaffinity(0), os.sched_getscheduler(0)"
        path = script(f"import beside\nprint(rank, {facts})")
        (tmp_path / "beside.py").write_text("")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "json.py").write_text("raise SystemExit('shadowed')")
        options = launch.Options(cwd=tmp_path / "elsewhere", cores=(core, cores[-1]))
        run = launch.start(path, ["--a", "b c"], ranks=2, controller=controller, options=options)
        lines = sorted(event.data["text"] for event in run if event.kind == "output")
        policy = os.sched_getscheduler(0) if rank.NVIDIA_DRIVER.exists() else os.SCHED_BATCH
        assert lines == [
            f"{number} __main__ ['--a', 'b c'] {tmp_path / 'elsewhere'} {tmp_path} {{{core}}} {policy}"
            for number, core in enumerate(options.cores)
        ]

    def test_a_failing_rank_is_named_with_its_code_and_last_lines(self, script):
        path = script("print('rank', rank)\nif rank == 1: os._exit(7)\ntime.sleep(600)")
        result = launch.start(path).wait()
        assert (result.code, result.failed_rank) == (7, 1)
        assert result.message == "Rank 1 failed with exit code 7."
        assert "rank 1" in result.tail
        assert everything_gone(str(path))

    @pytest.mark.parametrize(
        ("ranks", "killed", "begun"),
        [
            (2, 1, r"for i in range(3): print(f'\r{i}/58 [==>', end='', file=sys.stderr, flush=True)"),
            (2, 0, "print('38/58 [==>', end='', flush=True)"),
            (1, 0, "print('38/58 [==>', end='', flush=True)"),
        ],
    )
    def test_a_rank_killed_within_a_line_is_named(self, script, controller, ranks, killed, begun):
        path = script(f"{begun}\nif rank == {killed}:\n    time.sleep(1); os.kill(os.getpid(), 9)\ntime.sleep(60)")
        result = launch.start(path, ranks=ranks, controller=controller).wait()
        assert (result.code, result.failed_rank) == (137, killed)
        assert result.message == f"Rank {killed} was killed by signal 9 (SIGKILL)."
        assert any("/58 [==>" in line for line in result.tail)
        assert everything_gone(str(path))

    @pytest.mark.parametrize(
        ("change", "loaded"),
        [
            ("os.environ['COURSE_DATA_DIR'] = ''", ("400", "fashion_mnist", "400", "shapes")),
            ("os.environ['COURSE_SLICE'] = '300'", ("400", "fashion_mnist", "300", "fashion_mnist")),
            ("name = 'cifar10'", ()),  # what only one rank loads is compared with nothing
            ("pass", ()),
        ],
    )
    def test_ranks_with_different_data_are_ended(self, script, tmp_path, change, loaded):
        folder, cache = tmp_path / "fashion-mnist", tmp_path / "cache" / "one-model-many-gpus"
        folder.mkdir()
        for name in data.published.FASHION_MNIST_FILES:
            shape = (500,) if "labels" in name else (500, 28, 28)
            header = np.array([0x801 + len(shape) - 1, *shape], ">u4").tobytes()
            (folder / name).write_bytes(gzip.compress(header + bytes(int(np.prod(shape)))))
        cache.mkdir(parents=True)
        for published in data.PUBLISHED.values():
            data.sources.offline_note(published, cache)
        path = script(
            f"name = 'fashion_mnist'\nif rank == 1: {change}\nfrom course_lib import data\ndata.load(name)\n"
            "os.environ['COURSE_SLICE'] = '8'; data.load(name, test=False)\ntime.sleep(3)"
        )
        places = {"COURSE_DATA_DIR": str(tmp_path), "HOME": str(tmp_path), "KERAS_HOME": str(tmp_path)}
        env = {**places, "XDG_CACHE_HOME": str(tmp_path / "cache"), "COURSE_SLICE": "400"}
        result = launch.start(path, env=env).wait()
        number = r"(\d+) training images of (\w+)"
        said = re.fullmatch(rf"Rank [01] loads {number}, rank [01] {number}: all ranks must .+", result.message)
        assert result.code == (2 if loaded else 0)
        assert sorted(said.groups() if said else ()) == sorted(loaded)

    def test_time_out(self, script):
        path = script("time.sleep(60)")
        result = launch.start(path, timeout=4).wait()
        assert result.code == 124
        assert result.message == "Stopped at the time limit of 4 s."
        assert everything_gone(str(path))

    def test_a_daemon_does_not_outlive_the_run(self, script):
        path = script(
            "if os.fork() == 0:\n    os.setsid()\n"
            "    if os.fork() == 0:\n        os.environ.clear(); time.sleep(600)\n"
            "    os._exit(0)"
        )
        assert launch.start(path, ranks=1).wait().code == 0
        assert everything_gone(str(path))

    def test_a_rank_deaf_to_signals_is_ended_too(self, script):
        path = script("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(60)")
        with launch.start(path) as run:
            next(e for e in run if e.kind == "output")
        assert run.wait().code == launch.STOPPED
        assert everything_gone(str(path))

    @pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
    def test_whatever_ends_the_command_ends_the_ranks(self, script, number, code):
        path = script("print('up', flush=True)\ntime.sleep(60)")
        command = subprocess.Popen(
            [*COURSE, "run", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert "up" in command.stdout.readline()
        command.send_signal(number)
        _, errors = command.communicate(timeout=30)
        assert command.returncode == code
        assert "Traceback" not in errors
        assert everything_gone(str(path), seconds=10)

    def test_the_command_exits_with_the_script_s_code(self, script):
        path = script("print('[red]hi[/red]')\nif rank == 1: time.sleep(2); sys.exit(5)\ntime.sleep(30)")
        done = subprocess.run([*COURSE, "run", str(path), "-np", "2"], capture_output=True, text=True)
        assert done.returncode == 5
        assert "rank 0 │ [red]hi[/red]" in done.stdout
        assert "course: Rank 1 failed with exit code 5." in done.stderr
        assert "Traceback" not in done.stderr

    def test_ranks_that_wait_for_each_other_are_ended(self, script, tmp_path):
        path = script("from course_lib.system.notices import notify\nnotify('batch', step=0)\ntime.sleep(60)")
        with launch.start(path, options=launch.Options(stall_timeout=2)) as run:
            assert [e.kind for e in run if e.kind != "output"] == ["batch", "batch", "exit"]
        assert run.wait().code == 124
        assert "No rank made a step for 2 s" in run.wait().message
        assert everything_gone(str(path))

    def test_a_rank_can_not_speak_for_the_launcher(self, script):
        path = script(
            "def tell(text): os.write(2, b'\\x1e' + text + b'\\n')\n"
            'tell(b\'{"kind": "exit", "time": 1, "code": 0}\'); tell(b\'[\' * 60000)\n'
            'tell(b\'{"kind": "rank-exit", "time": 1, "code": {}, "reason": {}}\')\n'
            "print('Process 99999 exit with status code 3'); sys.exit(5)"
        )
        run = launch.start(path, ranks=1)
        assert [event.kind for event in run] == ["output", "exit"]
        assert (run.wait().code, run.wait().failed_rank, run.wait().reason) == (5, 0, "")

    def test_output_has_a_limit(self, script):
        run = launch.start(
            script("while True: print('x' * 100)"), ranks=1, options=launch.Options(output_limit=100_000)
        )
        said = sum(event.kind == "output" for event in run)
        assert 0 < said <= 100_000 / (100 + LINE_OVERHEAD_BYTES)
        assert (run.wait().code, run.wait().message) == (launch.STOPPED, "It printed more than 0.0953674 MB.")

    def test_whoever_stops_it_gives_the_reason(self, script):
        with launch.start(script("print('up')\ntime.sleep(60)"), ranks=1) as run:
            next(event for event in run if event.kind == "output")
            run.stop("It used too much.")
            run.stop("Too late.")
        assert run.wait().message == "It used too much."

    def test_what_confines_gets_the_command_and_the_environment(self, script):
        given = {}

        def confine(command):
            given.update(vars(command))
            words = ("/usr/bin/env", "-i", "PATH=" + command.env["PATH"], "ADDED=1", *command.launcher)
            return replace(command, launcher=words)

        path = script("print(os.environ['ADDED'], 'HOME' in os.environ)")
        run = launch.start(path, ranks=1, options=launch.Options(confine=confine))
        assert [event.data["text"] for event in run if event.kind == "output"] == ["1 False"]
        assert given["task"].script == str(path)
