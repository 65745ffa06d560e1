"""Run a command and end its whole process tree, whatever happens to the process that asked for it.

    python supervise.py TIMEOUT GRACE LEASE FOLDER COMMAND [ARG …]      (`command_line` writes it)

LEASE is a file descriptor: when its other end closes, because the asker wants the end or has died, the tree is ended.
So it is when the command itself ends (what it left behind goes too) and when TIMEOUT seconds (0: no limit) are over.
The tree has GRACE seconds to end by itself. The exit code is the command's, 124 on time-out, 128 + n for signal n.
Where the asker has died, FOLDER ("": none) is removed. What the kernel does not let go is named on stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

GRACE_S = 2.0  # between asking processes to end and killing them
KILL_LIMIT_S = 10.0  # after killing them, until processes are given up that the kernel does not let go
TIMED_OUT = 124  # exit code, as of timeout(1)
LEFT = "Could not be ended: "  # begins the line on standard error that names what is left
LEFT_ADVICE = "Such a process waits for a file server or a device: it ends once that answers, or with a restart."
STDIN, STDERR = 0, 2
_LEASE_POLL_MS = 50
_END_POLL_S = 0.1
_PR_SET_CHILD_SUBREAPER = 36


def command_line(
    command: Sequence[str],
    timeout: float = 0.0,
    grace: float = GRACE_S,
    lease: int = STDIN,
    temporary: Path | None = None,
) -> list[str]:
    """What runs `command` as this module's docstring says; `temporary` is the folder to remove."""
    return [sys.executable, __file__, str(timeout), str(grace), str(lease), str(temporary or ""), *command]


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, so that a daemon cannot leave the tree (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_tree(grace: float = GRACE_S) -> str:
    """End every descendant of this process: first politely, once, after `grace` seconds by force; reap all of them.

    A process that waits in the kernel for a disk or a device ends when the kernel lets it: after KILL_LIMIT_S more,
    return a sentence that names what is left; "" mostly.
    """
    deadline = time.monotonic() + grace
    terminated: set[psutil.Process] = set()
    while children := psutil.Process().children(recursive=True):
        if time.monotonic() >= deadline + KILL_LIMIT_S:
            return f"{LEFT}{', '.join(map(_described, children))}. {LEFT_ADVICE}"
        force = time.monotonic() >= deadline
        for child in children if force else set(children) - terminated:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill() if force else child.terminate()
        terminated.update(children)
        psutil.wait_procs(children, timeout=_END_POLL_S)
    return ""


def _described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} ({process.name()}, state {process.status()})"
    except psutil.Error:
        return f"process {process.pid}"


def supervise(
    command: Sequence[str], timeout: float = 0.0, grace: float = GRACE_S, lease: int = STDIN, temporary: str = ""
) -> int:
    """Run `command` until it ends, its time is up or the lease closes; end its tree; return the exit code."""
    asker = os.getppid()
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the asker, who closes the lease
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    deadline = time.monotonic() + timeout if timeout else float("inf")
    closed = select.poll()
    closed.register(lease, select.POLLIN if lease == STDIN else 0)  # an error or a hang-up is always reported
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        while process.poll() is None:
            if time.monotonic() >= deadline:
                return TIMED_OUT
            if closed.poll(_LEASE_POLL_MS):
                return 128 + signal.SIGTERM
        return process.returncode if process.returncode >= 0 else 128 - process.returncode
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the tree is ended whatever comes now
        if left := end_tree(grace):
            with contextlib.suppress(OSError):  # nobody may read it any more
                print(left, file=sys.stderr, flush=True)
        if temporary and os.getppid() != asker:
            shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    _timeout, _grace, _lease, _temporary, *_command = sys.argv[1:]
    sys.exit(supervise(_command, float(_timeout), float(_grace), int(_lease), _temporary))
