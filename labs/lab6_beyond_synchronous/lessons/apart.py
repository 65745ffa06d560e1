"""Processes of one run: a root, called apart, and its workers. However the run ends, all of them are gone.

    python apart.py FOLDER

calls what FOLDER/call.pkl holds, and leaves FOLDER/answer.pkl.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cloudpickle

from course_lib.ranks.environment import ONE_THREAD
from course_lib.ranks.messages.output import signal_name
from course_lib.system.errors import CourseError, last_line
from course_lib.system.processes import Supervised
from course_lib.system.supervise import TIMED_OUT


def call(what: str, function: Callable[..., Any], *arguments: Any, timeout: float = 120.0) -> Any:
    """What `function(*arguments)` returns in a process of its own, the root, with one thread for NumPy.

    The root and all that it starts end at an interrupt, after `timeout` seconds, and with this process.

    Args:
        what: the root in words, as "the server".
        function: goes there by cloudpickle, as do its arguments.

    Raises:
        CourseError: with what the function raised, or how the root ended, in a sentence.
    """
    with tempfile.TemporaryDirectory(prefix="course-") as name:
        folder = Path(name)
        (folder / "call.pkl").write_bytes(cloudpickle.dumps((function, arguments)))
        command, env = [sys.executable, __file__, name], {**os.environ, **ONE_THREAD, "OPENBLAS_NUM_THREADS": "1"}
        with (
            (folder / "said").open("w") as said,
            Supervised(command, timeout=timeout, temporary=folder, env=env, stderr=said) as process,
        ):
            code = process.wait()
        answer = folder / "answer.pkl"
        if answer.exists():
            succeeded, value = pickle.loads(answer.read_bytes())
            if succeeded:
                return value
            raise CourseError(value)
        words = last_line((folder / "said").read_text(errors="replace"))
    if code == TIMED_OUT:
        raise CourseError(f"{what[0].upper()}{what[1:]} was ended: its {timeout:g} seconds are over.")
    how = f"was killed by {signal_name(code - 128)}" if code > 128 else f"ended with exit code {code} ({words})"
    raise CourseError(f"{what[0].upper()}{what[1:]} {how}: the run has ended.")


class Workers:
    """Processes of this one, each of them with a socket: `target(socket, *task)` is called in each, one for each task.

    A worker that finds its socket closed has to end. Use it as a context: at its end the workers are ended.
    """

    def __init__(self, target: Callable[..., None], tasks: Sequence[tuple]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._sockets: list[Connection] = []
        self._processes: list[multiprocessing.Process] = []
        for task in tasks:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_call_in_worker, args=(target, theirs, *task), daemon=True)
            process.start()
            theirs.close()  # so that a worker's death closes its socket
            self._sockets.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join()

    def send(self, worker: int, message: Any) -> None:
        """Raises CourseError where the worker has died."""
        try:
            self._sockets[worker].send(message)
        except OSError:
            self._died(worker)

    def receive(self, worker: int) -> Any:
        """The worker's next message, waited for. Raises CourseError where the worker has died."""
        try:
            return self._sockets[worker].recv()
        except (EOFError, OSError):
            self._died(worker)

    def waiting(self, seconds: float) -> list[int]:
        """The workers from which there is something to receive (a death, too), after so many seconds at most."""
        return [self._sockets.index(socket) for socket in wait(self._sockets, seconds)]

    def _died(self, worker: int) -> None:
        process = self._processes[worker]
        process.join()
        code = process.exitcode
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        raise CourseError(f"Worker {worker} {how}: the run has ended.") from None


def _call_in_worker(target: Callable[..., None], socket: Connection, *task: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started the run ends it
    try:
        target(socket, *task)
    except (EOFError, OSError):  # nobody is at the other end
        return


def _main(folder: Path) -> None:
    function, arguments = cloudpickle.loads((folder / "call.pkl").read_bytes())
    try:
        found = True, function(*arguments)
    except CourseError as error:
        found = False, str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1].name
        found = False, f"`{place}` raised {type(error).__name__}: {error}".splitlines()[0].rstrip(": ") + "."
    draft = folder / "draft.pkl"
    draft.write_bytes(cloudpickle.dumps(found))
    draft.rename(folder / "answer.pkl")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
