"""What runs around a learner's script in each rank: `python rank.py SCRIPT`.

The script runs as `python SCRIPT` would run it, in the folder and with the arguments that the launcher names in
`COURSE_FOLDER` and `COURSE_ARGUMENTS` (a JSON list). Beside it, the rank tells the launcher in JSON lines how it
ended and, where `COURSE_TRAINING_EVENTS` asks for it, how it trains (see `events`). The lines travel through the rank's
standard error, so they cross hosts wherever the output does. Where `COURSE_RECORD` names a folder, the rank logs its
training there (see `instrumentation`).
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import sys
import threading
import traceback
from pathlib import Path

import psutil

from course_lib.ranks import environment
from course_lib.ranks.channel import open_channel, tell
from course_lib.system.errors import CourseError

NVIDIA_DRIVER = Path("/proc/driver/nvidia")  # there where the kernel drives a GPU of theirs


def end_with_the_launcher() -> None:
    """End this process and its children as soon as nobody reads its standard error any more.

    On this host `supervise` ends all ranks; on another nobody does: when `ssh` ends, what it started goes on.
    """
    stream = os.dup(2)

    def wait() -> None:
        poll = select.poll()
        poll.register(stream, 0)  # an error or a hang-up is always told
        poll.poll()
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def keep_to_one_core() -> None:
    """Where `COURSE_CORES` lists cores, one for each rank, keep this one and what it starts to its own."""
    cores = [int(core) for core in os.environ.get(environment.CORES, "").split(",") if core]
    if cores:
        names = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
        number = next((int(os.environ[name]) for name in names if name in os.environ), 0)
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def compute_first() -> None:
    """On a host without a GPU, let no thread of this rank that wakes take the core from one that computes.

    Gloo's thread wakes with each message. If it then displaces the thread that holds the lock which it needs, it
    spins for as long as its turn lasts: a fifth of a training with one core for each rank was lost to that.
    """
    if hasattr(os, "SCHED_BATCH") and not NVIDIA_DRIVER.exists():
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def run(script: str, args: list[str]) -> int:
    """Run `script` as `__main__` with `args`; return its exit code after telling the launcher."""
    sys.argv = [script, *args]
    sys.path[0] = str(Path(script).resolve().parent)
    code = 1
    try:
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    except KeyboardInterrupt:
        code = 130
    except CourseError as error:
        print(error, file=sys.stderr)
        code = error.code
    except BaseException as error:
        _print_traceback(error, script)
    finally:
        # Said now: what follows (interpreter and Horovod shutting down) takes seconds, in which other ranks fail too.
        tell("rank-exit", code=code)
    return code


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException, script: str) -> None:
    """Print the traceback from the script on, without the frames of this module and of runpy."""
    frames = error.__traceback__
    target = os.path.abspath(script)
    while frames is not None and os.path.abspath(frames.tb_frame.f_code.co_filename) != target:
        frames = frames.tb_next
    # Written at once: launchers that tag output by write would cut it to pieces.
    sys.stderr.write("".join(traceback.format_exception(type(error), error, frames)))
    sys.stderr.flush()


def main() -> int:
    """Entry point of a rank."""
    script = sys.argv[1]
    args = json.loads(os.environ.pop(environment.ARGUMENTS, "[]"))
    os.chdir(os.environ.pop(environment.FOLDER, "."))
    keep_to_one_core()
    compute_first()
    open_channel()
    end_with_the_launcher()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)
    if folder := os.environ.get(environment.RECORD):
        from course_lib.ranks.instrumentation.install import install

        install(Path(folder))
    elif os.environ.get(environment.TRAINING_EVENTS):
        from course_lib.ranks import events

        events.install()
    return run(script, args)


if __name__ == "__main__":
    sys.exit(main())
