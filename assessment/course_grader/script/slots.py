"""Reserve cores and GPUs of this host, so that no two timed runs share one.

A slot is a locked file; the lock ends with the process that holds it, even if that is killed. Processes of all accounts
get slots in the order of their requests. The files are in `/tmp`, or in the cache if XDG_CACHE_HOME is set, as in
containers that share only a volume. In a lab of a hub, the hub assigns the cores (see `leases`).
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

from course_grader.script import leases
from course_lib.ranks import launch
from course_lib.system import paths, variables
from course_lib.system.errors import CourseError
from course_lib.system.gpus import visible

count = launch.visible_gpus
POLL_INTERVAL_S = 0.1
_SHARED = Path("/tmp/one-model-many-gpus")  # not TMPDIR, which may differ between jobs and accounts


@contextlib.contextmanager
def take(
    ranks: int,
    *,
    gpus: int = 0,
    on_wait: Callable[[str], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[list[int]]:
    """Reserve a core for each of `ranks`, or a GPU if there are `gpus` (see `count`); yield their numbers.

    If there are fewer cores than ranks, all cores are reserved.

    Args:
        on_wait: called with a sentence if the slots are not free at once.
        stopping: set this event to end the wait with CourseError (code 130).

    Raises CourseError (code 2) for more ranks than GPUs, and as `leases.lease` does.
    """
    if gpus and ranks > gpus:
        raise CourseError(f"{ranks} ranks need {ranks} GPUs, but this host has {gpus}: use fewer ranks.", code=2)
    kind, available = ("GPU", visible(gpus)[:gpus]) if gpus else ("core", sorted(os.sched_getaffinity(0)))
    wanted = min(ranks, len(available))
    reported = False

    def wait() -> None:
        nonlocal reported
        if on_wait and not reported:
            on_wait(f"Waiting for {wanted} free {kind}{'s' if wanted > 1 else ''}: another assessment uses them.")
        reported = True
        _pause(stopping)

    hub = "" if gpus else os.environ.get(variables.SLOTS)
    with contextlib.ExitStack() as locks:
        gate = _open("gate")
        with gate:
            while not _lock(gate):  # the first process in the queue holds this lock, and the others wait for it
                wait()
            if hub:  # the gate stays locked: a lab has one place in the hub's queue
                yield locks.enter_context(leases.lease(hub, on_wait, stopping))[:ranks]
                return
            numbers: list[int] = []
            while len(numbers) < wanted:
                _lock_more(numbers, wanted, kind, available, locks)
                if len(numbers) < wanted:
                    wait()
        yield sorted(numbers)


def environment(numbers: list[int], gpus: int) -> dict[str, str]:
    """Return the environment variables that make only these GPUs visible; {} if the slots are cores."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))} if gpus else {}


@contextlib.contextmanager
def on_cores(numbers: list[int], gpus: int) -> Iterator[None]:
    """Restrict this thread and its children to these cores during the block; do nothing if the slots are GPUs."""
    before = os.sched_getaffinity(0)
    if not gpus:
        try:
            os.sched_setaffinity(0, numbers)
        except OSError:
            raise CourseError(f"The cores {numbers} cannot be used here: tell your instructor.", code=2) from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _lock_more(numbers: list[int], wanted: int, kind: str, available: list[int], locks: contextlib.ExitStack) -> None:
    """Lock slots that are free, until there are as many `numbers` as wanted."""
    for number in available:
        if number not in numbers and len(numbers) < wanted:
            slot = _open(f"{kind}-{number}")
            if _lock(slot):
                locks.enter_context(slot)
                numbers.append(number)
            else:
                slot.close()


def _open(name: str) -> IO[str]:
    folder = paths.cache() / "slots" if os.environ.get("XDG_CACHE_HOME") else _SHARED
    path = folder / f"{_machine()}-{name}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # mkdir's mode would be reduced by the umask
        # Two calls: in a sticky folder the kernel refuses O_CREAT for another account's file.
        with contextlib.suppress(FileExistsError):
            created = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            os.fchmod(created, 0o666)
            os.close(created)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "w")
    except OSError as error:
        raise CourseError(f"{folder} cannot be written ({error.strerror}): correct its permissions.", code=2) from None


@functools.cache
def _machine() -> str:
    """Return an id of this machine: it differs between hosts that share a home, not between containers of a host."""
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


def _pause(stopping: threading.Event | None) -> None:
    if stopping is not None and stopping.wait(POLL_INTERVAL_S):
        raise CourseError("Stopped.", code=130)
    if stopping is None:
        time.sleep(POLL_INTERVAL_S)
