"""The program of each rank, which runs the learner's script: `python rank.py TASK`, with a `RankTask` in JSON.

The script runs as with `python SCRIPT`, with the arguments and in the folder of the task. The rank reports to the
launcher, in JSON lines, how the script ended, where it waits (see `idle`) and, if the task asks for it, its training
(see `events`). The lines use the rank's standard error, so they also arrive from other hosts. If the task names a
folder for a record, the rank logs its training there (see `instrumentation`).
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

NVIDIA_DRIVER = Path("/proc/driver/nvidia")  # exists if the kernel has NVIDIA's driver
MARK = "\x1e"  # ASCII record separator: the start of a line for the launcher, not for the user

Report = Callable[..., None]  # report(kind, **data)


@dataclass(frozen=True)
class RankTask:
    """The task of each rank of a run.

    Attributes:
        script: path of the script.
        args: the script's arguments.
        folder: working folder of the script.
        record: folder for the log of the training (see `instrumentation`); None: no log.
        profile: folder for a profile of the steps (see `step_profile`); None: no profile.
        training_events: whether the rank reports its training (see `events`); with a `record` it always does.
        cores: the core of each rank, by rank; () : no binding. Only if all ranks are on this host.
        fake_gpus: with a `record`, the number of GPUs that the script sees although they do not exist, by rank. So its
            choice of a GPU can be checked on a host without GPUs. Both lists repeat if there are more ranks.
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
        """The command of a rank. The task is one argument: horovodrun would parse `--hosts` as its own option."""
        return sys.executable, __file__, json.dumps(asdict(self))


def prepare() -> Report:
    """Prepare this process as a rank: scheduling, end with the launcher, line-buffered output.

    Returns:
        The function that reports to the launcher; it also reports notices of modules, and where this rank waits.
    """
    compute_first()
    sys.meta_path.insert(0, HorovodAsItIs())
    report = _reporter()
    notices.listeners.append(report)
    idle.watch(report)
    end_with_the_launcher()
    for stream in (sys.stdout, sys.stderr):  # whole lines, because mpirun tags every write
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    return report


class HorovodAsItIs(importlib.abc.MetaPathFinder):
    """When Horovod is imported, exclude its functions from AutoGraph, because they need no translation.

    The first training step of the assessment's reference took 3.6 s on one core with the translation, 2.0 s without.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Called for each import; returns None, so that the next finder continues."""
        if name == "horovod.tensorflow":
            sys.meta_path.remove(self)
            from tensorflow.python.autograph.core import config

            config.CONVERSION_RULES = (config.DoNotConvert("horovod"), *config.CONVERSION_RULES)


def _reporter() -> Report:
    """A thread-safe function that sends one record to the launcher."""
    errors = os.dup(2)  # a copy, because the script may redirect its standard error

    def report(kind: str, **data: object) -> None:
        line = MARK + json.dumps({"kind": kind, "time": time.time(), **data}) + "\n"
        os.write(errors, line.encode())  # a single write below PIPE_BUF is atomic

    return report


def end_with_the_launcher() -> None:
    """End this process and its children when the reader of its standard error closes it.

    On this host `supervise` ends all ranks. On another host the ranks would continue after the end of `ssh`.
    """
    stream = os.dup(2)

    def wait() -> None:
        poll = select.poll()
        poll.register(stream, 0)  # errors and hang-ups are always reported
        poll.poll()
        end_tree(grace=0.0)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def keep_to_one_core(cores: Sequence[int]) -> None:
    """Bind this rank and its children to one core, given the core of each rank; () : no binding."""
    if cores:
        os.sched_setaffinity(0, {cores[rank() % len(cores)]})


def compute_first() -> None:
    """On a host without a GPU, schedule this rank as SCHED_BATCH: a thread that wakes up does not preempt another.

    Gloo's thread wakes up with each message. If it preempts the thread that holds the lock that it needs, it spins
    until its time slice ends: this took a fifth of the time of a training with one core for each rank.
    """
    if hasattr(os, "SCHED_BATCH") and not NVIDIA_DRIVER.exists():
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def run(script: str, args: Sequence[str], report: Report) -> int:
    """Run `script` as `__main__` with `args`; report its exit code, then return it."""
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
        # Report now: the shutdown of Python and Horovod takes seconds, in which other ranks fail too.
        report("rank-exit", code=code)
    return code


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _print_traceback(error: BaseException, script: str) -> None:
    """Print the traceback, starting at the script: without the frames of this module and runpy."""
    frames = error.__traceback__
    target = os.path.abspath(script)
    while frames is not None and os.path.abspath(frames.tb_frame.f_code.co_filename) != target:
        frames = frames.tb_next
    # A single write, because mpirun tags every write.
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
