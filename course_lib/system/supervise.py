"""Run a command and end its whole process tree, even if the calling process dies.

    python supervise.py TIMEOUT GRACE LEASE FOLDER COMMAND [ARG …]      (see `command_line`)

LEASE is a file descriptor. The tree is ended when the other end of LEASE closes (the caller closed it or died), when
the command ends (its remaining children are ended too), and after TIMEOUT seconds (0: no limit). The processes get
SIGTERM, and SIGKILL after GRACE seconds. The exit code is that of the command, 124 on time-out, 128 + n for signal n.
If the caller has died, FOLDER ("": none) is deleted. Processes that can't be ended are named on standard error.
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

GRACE_S = 2.0  # between SIGTERM and SIGKILL
KILL_LIMIT_S = 10.0  # wait so long after SIGKILL for processes in uninterruptible sleep
TIMED_OUT = 124  # exit code, as of timeout(1)
LEFT = "Could not be killed: "  # the start of the line on standard error that names the remaining processes
LEFT_ADVICE = "Such a process waits for a file server or a device: it ends when that answers, or with a restart."
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
    """The command line that runs `command` under this module; see the module's docstring for the arguments."""
    return [sys.executable, __file__, str(timeout), str(grace), str(lease), str(temporary or ""), *command]


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, so that no daemon leaves the tree (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_tree(grace: float = GRACE_S) -> str:
    """End all descendants of this process: SIGTERM, and SIGKILL after `grace` seconds; reap them.

    A process in uninterruptible sleep (it waits for a disk or a device) ignores SIGKILL. After KILL_LIMIT_S more
    seconds, return a sentence that names such processes; "" if there are none.
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
    """Run `command` until it ends, the time-out is reached or the lease closes; end its tree; return the exit code."""
    caller = os.getppid()
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the caller, which closes the lease
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    deadline = time.monotonic() + timeout if timeout else float("inf")
    closed = select.poll()
    closed.register(lease, select.POLLIN if lease == STDIN else 0)  # errors and hang-ups are always reported
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        while process.poll() is None:
            if time.monotonic() >= deadline:
                return TIMED_OUT
            if closed.poll(_LEASE_POLL_MS):
                return 128 + signal.SIGTERM
        return process.returncode if process.returncode >= 0 else 128 - process.returncode
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM must not interrupt `end_tree`
        if left := end_tree(grace):
            with contextlib.suppress(OSError):  # standard error may be closed
                print(left, file=sys.stderr, flush=True)
        if temporary and os.getppid() != caller:
            shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    _timeout, _grace, _lease, _temporary, *_command = sys.argv[1:]
    sys.exit(supervise(_command, float(_timeout), float(_grace), int(_lease), _temporary))
