"""The first process in the sandbox: `python -m course_lib.command.assess.sandbox.entry SPEC COMMAND [ARG …]`.

It sets the limits that processes hand down, runs the command, ends what is left of it, and hands out the weights and
the evidence (see `outbox`). SIGTERM ends the command early. SPEC is a JSON object:

    work     the folder that the script works in
    out      the FIFO that they go to
    data     bytes of memory of its own for each process; 0: as many as there are
    file     bytes that a file may have
    cores    the cores that everything runs on; []: all
    private  true where all processes that can be seen are the sandbox's own
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from course_lib.command.assess.sandbox import outbox

GRACE_S = 2.0  # between asking processes to end and killing them


def main() -> int:
    """Entry point."""
    spec = json.loads(sys.argv[1])
    work = Path(spec["work"])
    for name in ("home", "tmp", outbox.EVIDENCE):
        (work / name).mkdir(parents=True, exist_ok=True)
    _limit(spec)
    stream = open(spec["out"], "wb")  # noqa: SIM115 (now, while it is sure to be read)
    ending: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(time.monotonic()))
    code = _run(sys.argv[2:], ending)
    # Process 1 is asked too: on the host itself this would end everything.
    private = spec["private"] and Path("/proc/1/comm").read_text() == "bwrap\n"
    _end_the_rest(private, GRACE_S if ending else 0.0)
    with contextlib.suppress(OSError), stream:
        outbox.write(work, stream)
    return code


def _limit(spec: dict) -> None:
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": spec["file"], "RLIMIT_DATA": spec["data"] or resource.RLIM_INFINITY}
    for name, limit in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])


def _run(command: list[str], ending: list[float]) -> int:
    """Run the command until it ends or, once `ending` holds when its end was asked for, GRACE_S later."""
    process = subprocess.Popen(command)
    while process.poll() is None:
        if ending:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, ending[0] + GRACE_S - time.monotonic()))
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _end_the_rest(private: bool, patience: float) -> None:
    """End all other processes of the sandbox: what is handed out afterwards changes no more."""
    deadline = time.monotonic() + patience
    while others := _others(private):
        number = signal.SIGKILL if time.monotonic() >= deadline else signal.SIGTERM
        for pid in [-1] if private else others:  # -1: all at once, so that none can fork away
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.02)


def _others(private: bool) -> list[int]:
    """Numbers of the sandbox's processes, without this one, the first one and those that have ended."""
    mine = psutil.process_iter() if private else psutil.Process().children(recursive=True)
    found = []
    for process in mine:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid not in (1, os.getpid()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


if __name__ == "__main__":
    sys.exit(main())
