"""Cores and GPUs of this host, given out so that no two timed runs share one.

A slot is a file with a lock on it: it is free again when its holder ends, however it ends. Those who come first are
served first, also among processes that know nothing of each other, of whatever account: the files are in `/tmp`, or
in the cache where XDG_CACHE_HOME names one, as in containers that share nothing but a volume.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from course_lib.ranks import launch
from course_lib.system import paths
from course_lib.system.errors import CourseError
from course_lib.system.gpus import visible

count = launch.visible_gpus
POLL_INTERVAL_S = 0.1
_SHARED = Path("/tmp/one-model-many-gpus")  # not TMPDIR, which a job or an account may have for itself


@contextlib.contextmanager
def take(
    ranks: int,
    *,
    gpus: int = 0,
    waiting: Callable[[str], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[list[int]]:
    """Hold a core for each of `ranks`, or a GPU where there are `gpus` (see `count`); yield their numbers.

    Where there are fewer cores than ranks, all cores are taken. `waiting` is told once, in a sentence, where they are
    not free at once; `stopping` ends the waiting with CourseError (code 130). Raises CourseError (code 2) for more
    ranks than GPUs.
    """
    if gpus and ranks > gpus:
        raise CourseError(f"{ranks} ranks need {ranks} GPUs, and this host has {gpus}: ask for fewer ranks.", code=2)
    kind, places_ = ("GPU", visible(gpus)[:gpus]) if gpus else ("core", sorted(os.sched_getaffinity(0)))
    wanted = min(ranks, len(places_))
    told = False
    with contextlib.ExitStack() as held:
        gate = _open("gate")
        with gate:
            while not _lock(gate):  # whoever waits for slots holds the gate, so that the next one waits for the gate
                told = told or _tell(waiting, wanted, kind)
                _pause(stopping)
            taken: list[int] = []
            while len(taken) < wanted:
                for number in places_:
                    if number not in taken and len(taken) < wanted:
                        slot = _open(f"{kind}-{number}")
                        if _lock(slot):
                            held.enter_context(slot)
                            taken.append(number)
                        else:
                            slot.close()
                if len(taken) < wanted:
                    told = told or _tell(waiting, wanted, kind)
                    _pause(stopping)
        yield sorted(taken)


def environment(taken: list[int], gpus: int) -> dict[str, str]:
    """What ranks on these slots need in their environment: the GPUs that they may see."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, taken))} if gpus else {}


@contextlib.contextmanager
def on_cores(taken: list[int], gpus: int) -> Iterator[None]:
    """What this thread starts meanwhile runs on these cores; no restriction where the slots are GPUs."""
    before = os.sched_getaffinity(0)
    if not gpus:
        os.sched_setaffinity(0, taken)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _open(name: str) -> IO[str]:
    folder = paths.cache() / "slots" if os.environ.get("XDG_CACHE_HOME") else _SHARED
    path = folder / f"{_machine()}-{name}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # whatever the umask
        # Created and opened apart: the kernel denies O_CREAT for another account's file in such a folder.
        with contextlib.suppress(FileExistsError):
            created = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            os.fchmod(created, 0o666)
            os.close(created)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "w")
    except OSError as error:
        raise CourseError(f"{folder} cannot be written ({error.strerror}): correct its permissions.", code=2) from None


@functools.cache
def _machine() -> str:
    """What tells the machines apart that share a home, and not the containers of one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _tell(waiting: Callable[[str], None] | None, wanted: int, kind: str) -> bool:
    if waiting:
        waiting(f"Waiting for {wanted} free {kind}{'s' if wanted > 1 else ''}: another assessment uses them.")
    return True


def _pause(stopping: threading.Event | None) -> None:
    if stopping is not None and stopping.wait(POLL_INTERVAL_S):
        raise CourseError("Stopped.", code=130)
    if stopping is None:
        time.sleep(POLL_INTERVAL_S)
