"""Processes that leave nothing running."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from course_lib.system import supervise
from course_lib.system.processes import Supervised

TREE = ["sh", "-c", "sleep 71 & echo $!; sleep 72"]


def await_end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("command, code", [("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_command_s(command, code):
    with Supervised(["sh", "-c", command]) as process:
        assert process.wait() == code


def test_after_its_time_the_tree_is_ended():
    with Supervised(TREE, timeout=0.5, stdout=subprocess.PIPE, text=True) as process:
        sleeper = int(process.stdout.readline())
        assert process.wait() == 124
    assert not psutil.pid_exists(sleeper)


def test_the_end_of_the_block_ends_the_tree():
    with Supervised(TREE, stdout=subprocess.PIPE, text=True) as process:
        sleeper = int(process.stdout.readline())
    assert process.returncode == 128 + 15
    assert not psutil.pid_exists(sleeper)


def test_one_that_ignores_signals_has_its_grace(tmp_path):
    command = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]
    with Supervised(command, grace=0.3, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        began = time.monotonic()
        process.end()
        process.wait()
    assert time.monotonic() - began >= 0.3


def test_each_process_is_asked_once_also_one_that_appears_later():
    program = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"  # which waits until it is asked for
        "print('up', flush=True)\n"
        "signal.sigwait([signal.SIGTERM])\n"
        "os.fork()\n"
        "while True:\n    signal.sigwait([signal.SIGTERM]); print('asked', flush=True)\n"
    )
    with Supervised([sys.executable, "-c", program], grace=1.0, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.end()
        assert process.stdout.read() == "asked\n"


@pytest.mark.parametrize("killed", [True, False])
def test_the_temporary_folder_of_a_process_that_was_killed_is_removed(tmp_path, killed):
    folder = tmp_path / "temporary: folder"
    folder.mkdir()
    program = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom course_lib.system.processes import Supervised\n"
        f"with Supervised({TREE!r}, temporary=Path(sys.argv[1]), stdout=subprocess.PIPE, text=True) as process:\n"
        "    print(process.stdout.readline(), end='', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asker:
        sleeper = int(asker.stdout.readline())
        asker.kill() if killed else asker.stdin.close()
        asker.wait()
    await_end(sleeper)
    deadline = time.monotonic() + 10
    while killed and folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert killed or folder.is_dir()


def test_a_signal_while_the_tree_is_being_ended_changes_nothing():
    stubborn = "trap '' TERM; sleep 71 & echo $!; wait"
    process = subprocess.Popen(
        supervise.command_line(["sh", "-c", stubborn], grace=1.0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        sleeper = int(process.stdout.readline())
        for _ in range(3):
            process.terminate()
            time.sleep(0.2)
        assert process.wait(10) == 128 + 15
    await_end(sleeper)


class Unkillable(psutil.Process):
    """A process that signals do nothing to, as one that waits for a disk."""

    def kill(self) -> None:
        pass

    terminate = kill


@pytest.mark.parametrize("ends", [True, False])
def test_what_the_kernel_does_not_let_go_is_named_and_left(monkeypatch, ends):
    kind = psutil.Process if ends else Unkillable
    with subprocess.Popen(["sleep", "71"]) as sleeper:
        alone = lambda *_, **__: [kind(sleeper.pid)] if sleeper.poll() is None else []  # noqa: E731
        monkeypatch.setattr(psutil.Process, "children", alone)
        monkeypatch.setattr(supervise, "KILL_LIMIT_S", 0.3)
        left = supervise.end_tree(grace=0.0)
        sleeper.kill()
    name = f"Could not be killed: process {sleeper.pid} (sleep, state sleeping). Such a process waits for"
    assert left.startswith(name) if not ends else left == ""
