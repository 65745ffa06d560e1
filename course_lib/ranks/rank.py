"""What runs around a learner's script in each rank: `python rank.py TASK`, where TASK is a `RankTask` in JSON.

The script runs as `python SCRIPT` would run it, with the arguments and in the folder of the task. Beside it, the rank
reports to the launcher in JSON lines how the script ended, where it waits (see `idle`) and, where the task asks for it,
how it trains (see `events`). The lines travel through the rank's standard error, so they cross hosts wherever the
output does. Where the task names a folder for it, the rank logs its training there (see `instrumentation`).
"""

from __future__ import annotations

import contextlib
import importlib.abc
import io
import json
import os
import runpy
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from course_lib.ranks.messages import idle
from course_lib.system import notices
from course_lib.system.errors import CourseError
from course_lib.system.rank import rank
from course_lib.system.supervise import end_tree

NVIDIA_DRIVER = Path("/proc/driver/nvidia")  # there where the kernel drives a GPU of theirs
MARK = "\x1e"  # ASCII record separator: starts a line meant for the launcher, not for the reader

Report = Callable[..., None]  # report(kind, **data)


@dataclass(frozen=True)
class RankTask:
    """What each rank of a run does.

    Attributes:
        script: path of the script that it runs.
        args: the script's arguments.
        folder: the folder that the script runs in.
        record: the folder for the record of its training (see `instrumentation`); None: there is none.
        profile: the folder for a profile of its steps (see `step_profile`); None: there is none.
        training_events: whether it reports how its training goes on (see `events`), as it does for a `record`, too.
        cores: where all ranks are on this host, the core that each of them keeps to, by the number of the rank.
        fake_gpus: with a `record`, how many GPUs that do not exist the script sees, by the number of the rank, so that
            its choice of one can be checked on a host without. Both lists start again from the front for more ranks.
    """

    script: str
    args: tuple[str, ...] = ()
    folder: str = "."
    record: str | None = None
    profile: str | None = None
    training_events: bool = False
    cores: tuple[int, ...] = ()
    fake_gpus: tuple[int, ...] = ()

    def command(self) -> tuple[str, ...]:
        """What a rank runs. The task is one word, since horovodrun would take `--hosts` for an option of its own."""
        return sys.executable, __file__, json.dumps(asdict(self))


def prepare() -> Report:
    """Make a rank of this process: scheduled as one, ended with its launcher, printing whole lines.

    Returns the function that reports to the launcher. It also gets what modules notify, and where this rank waits.
    """
    compute_first()
    sys.meta_path.insert(0, HorovodAsItIs())
    report = _reporter()
    notices.listeners.append(report)
    idle.watch(report)
    end_with_the_launcher()
    for stream in (sys.stdout, sys.stderr):  # a line at a time: mpirun would cut it to pieces
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    return report


class HorovodAsItIs(importlib.abc.MetaPathFinder):
    """Keep AutoGraph from translating Horovod's functions, which need no translation, when Horovod is imported.

    The first training step of the assessment's reference took 3.6 s on one core with it, and takes 2.0 s without.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Called for each import; finds nothing."""
        if name == "horovod.tensorflow":
            sys.meta_path.remove(self)
            from tensorflow.python.autograph.core import config

            config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)


def _reporter() -> Report:
    """A function that sends one record to the launcher. Any thread may call it."""
    errors = os.dup(2)  # a private copy: the script may redirect its own

    def report(kind: str, **data: object) -> None:
        line = MARK + json.dumps({"kind": kind, "time": time.time(), **data}) + "\n"
        os.write(errors, line.encode())  # one write below PIPE_BUF: never mixed with another rank's line

    return report


def end_with_the_launcher() -> None:
    """End this process and its children as soon as nobody reads its standard error any more.

    On this host `supervise` ends all ranks; on another nobody does: when `ssh` ends, what it started goes on.
    """
    stream = os.dup(2)

    def wait() -> None:
        poll = select.poll()
        poll.register(stream, 0)  # an error or a hang-up is always reported
        poll.poll()
        end_tree(grace=0.0)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def keep_to_one_core(cores: Sequence[int]) -> None:
    """Where `cores` are given, one for each rank, keep this one and what it starts to its own."""
    if cores:
        os.sched_setaffinity(0, {cores[rank() % len(cores)]})


def compute_first() -> None:
    """On a host without a GPU, let no thread of this rank that wakes take the core from one that computes.

    Gloo's thread wakes with each message. If it then displaces the thread that holds the lock which it needs, it
    spins for as long as its turn lasts: a fifth of a training with one core for each rank was lost to that.
    """
    if hasattr(os, "SCHED_BATCH") and not NVIDIA_DRIVER.exists():
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def run(script: str, args: Sequence[str], report: Report) -> int:
    """Run `script` as `__main__` with `args`; return its exit code after a `report` of it."""
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
        # Now: what follows (interpreter and Horovod shutting down) takes seconds, in which other ranks fail too.
        report("rank-exit", code=code)
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
    task = RankTask(**json.loads(sys.argv[1]))
    os.chdir(task.folder)
    keep_to_one_core(task.cores)
    report = prepare()
    if task.record:
        from course_lib.ranks.instrumentation.install import install

        install(Path(task.record), report, task.fake_gpus)
    elif task.profile:
        from course_lib.ranks.instrumentation import step_profile

        step_profile.install(Path(task.profile))
    elif task.training_events:
        from course_lib.ranks.instrumentation import events

        events.install(report)
    return run(task.script, task.args, report)


if __name__ == "__main__":
    sys.exit(main())
