"""Run a command and end its whole process tree, whatever happens to the one who asked for it.

    python supervise.py TIMEOUT[:GRACE[:LEASE]] COMMAND [ARG …]      (in seconds; TIMEOUT 0: none)

Standard input is the lease (LEASE 2: standard error): when its other end closes, because the asker wants the end
or has died, the tree is ended. So it is when the command itself ends (what it left behind goes too) and when TIMEOUT
is over. The exit code is the command's, 124 on time-out, 128 + n for signal n. Where the asker has died, the folder
that `COURSE_LITTER` names is removed too.
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

import psutil

GRACE = 2.0  # seconds between asking processes to end and killing them
TIMED_OUT = 124
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, so that a daemon cannot leave the tree (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_tree(grace: float = GRACE) -> None:
    """End every descendant of this process: first politely, after `grace` seconds by force; reap all of them."""
    deadline = time.monotonic() + grace
    while children := psutil.Process().children(recursive=True):
        force = time.monotonic() >= deadline
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill() if force else child.terminate()
        psutil.wait_procs(children, timeout=0.1 if force else max(0.0, deadline - time.monotonic()))


def supervise(command: list[str], timeout: float = 0.0, grace: float = GRACE, lease: int = 0) -> int:
    """Run `command` until it ends, its time is up or the lease (0: standard input) closes; return the exit code.

    Whatever is left of its tree then has `grace` seconds to end.
    """
    asker, litter = os.getppid(), os.environ.pop("COURSE_LITTER", "")
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the asker, who closes the lease
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    deadline = time.monotonic() + timeout if timeout else float("inf")
    held = select.poll()
    held.register(lease, select.POLLIN if lease == 0 else 0)  # an error or a hang-up is always told
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        while process.poll() is None:
            if time.monotonic() >= deadline:
                return TIMED_OUT
            if held.poll(50):
                return 128 + signal.SIGTERM
        return process.returncode if process.returncode >= 0 else 128 - process.returncode
    finally:
        end_tree(grace)
        if litter and os.getppid() != asker:
            shutil.rmtree(litter, ignore_errors=True)


if __name__ == "__main__":
    times = [float(part) for part in sys.argv[1].split(":")]
    sys.exit(supervise(sys.argv[2:], *times[:2], lease=int(times[2]) if len(times) > 2 else 0))
