"""Four Horovod ranks that are started once and then do one piece of work after the other: starting takes the longest.

    ranks = StandingRanks()     # they start while the notebook goes on
    ranks.call(work)            # work(groups) on every rank; what each returned

`groups` are the groups that the rank is in, by the names of `GROUPS`. The ranks end with the notebook's process. One
that fails or does not answer ends all of them, as an interrupt does, and the next call starts new ones.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from course_lib.parallel.group import HorovodGroup
from course_lib.ranks import launch
from course_lib.system.errors import CourseError

GROUPS = {"all": [[0, 1, 2, 3]], "pairs": [[0, 1], [2, 3]], "across": [[0, 2], [1, 3]]}
POLL_S = 0.05
GRACE_S = 3  # in which a rank that has no work leaves by itself


def serve(folder: Path) -> None:
    """As one of the ranks: do the work that appears in the folder, until it is gone."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    threading.Thread(target=_leave_with, args=(folder,), daemon=True).start()
    tf.config.set_visible_devices([], "GPU")  # NumPy's arrays are on the host
    sets = {tuple(some): hvd.ProcessSet(some) for name in ("pairs", "across") for some in GROUPS[name]}
    hvd.init(process_sets=list(sets.values()))
    mine = {name: next(sets.get(tuple(some)) for some in every if hvd.rank() in some) for name, every in GROUPS.items()}
    number = 0
    while folder.exists():
        if not (job := folder / f"job-{number}").exists():
            time.sleep(POLL_S)
            continue
        found = cloudpickle.loads(job.read_bytes())({name: HorovodGroup(hvd, some) for name, some in mine.items()})
        _write(folder / f"found-{number}-{hvd.rank()}", cloudpickle.dumps(found))
        number += 1


def _leave_with(folder: Path) -> None:
    """End this process when the folder is gone, whatever it does or waits for."""
    while folder.exists():
        time.sleep(POLL_S)
    time.sleep(GRACE_S)
    os._exit(1)


def _write(path: Path, content: bytes) -> None:
    """All at once, so that nobody reads a part."""
    draft = path.with_name(f"draft-{path.name}")
    draft.write_bytes(content)
    os.replace(draft, path)


class StandingRanks:
    """Ranks that stand by; four, as `GROUPS` has them."""

    def __init__(self) -> None:
        self.size = 4
        self._folder: Path | None = None
        atexit.register(self.close)
        self._start()

    def _start(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="course-standing-"))
        self._folder, self._jobs, self._error = folder, 0, None

        def stand() -> None:
            try:
                launch.call(lambda: serve(folder), self.size, env=launch.ONE_THREAD)
            except BaseException as error:  # told by `call`, in the notebook's own thread
                self._error = error

        self._thread = threading.Thread(target=stand, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[dict[str, HorovodGroup]], Any], timeout: float = 120.0) -> list[Any]:
        """What `work(groups)` returns on each rank.

        Raises CourseError where a rank fails, or where some take longer than `timeout` seconds, and names those that
        have not answered. Then all are ended.
        """
        if self._folder is None or not self._thread.is_alive():
            self.close()
            self._start()
        number, folder = self._jobs, self._folder
        self._jobs += 1
        _write(folder / f"job-{number}", cloudpickle.dumps(work))
        paths = [folder / f"found-{number}-{rank}" for rank in range(self.size)]
        try:
            self._wait(paths, timeout)
        except BaseException:
            self.close()
            raise
        return [pickle.loads(path.read_bytes()) for path in paths]

    def _wait(self, paths: list[Path], timeout: float) -> None:
        began = time.monotonic()
        while not all(path.exists() for path in paths):
            if not self._thread.is_alive():
                raise self._error or CourseError("The ranks have ended: run the cell again.")
            if time.monotonic() - began > timeout:
                late = [str(rank) for rank, path in enumerate(paths) if not path.exists()]
                raise CourseError(
                    f"After {timeout:g} seconds there is no answer of rank {', '.join(late)}: do they wait in a "
                    "collective for those that have answered?"
                )
            time.sleep(POLL_S)

    def close(self, wait: bool = True) -> None:
        """Let the ranks end; they take a few seconds."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if wait:
            self._thread.join(10)
