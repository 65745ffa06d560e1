"""Slots on several hosts, held for as long as an assessment runs there.

    python -m course_lib.command.assess.sandbox.slot_holder RANKS

On each other host a process takes what `slots` gives out there, tells what it has in JSON lines, and holds it until
its standard input ends: with the connection, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from course_lib.command.assess import slots
from course_lib.command.assess.sandbox import bubblewrap
from course_lib.ranks import remote
from course_lib.system.errors import CourseError

GRACE_S = 5.0  # that the process on another host gets to end


@dataclass(frozen=True)
class HeldSlots:
    """The numbers of the cores (or GPUs, of which the host has `gpus`) that are held on a host, and why there is no
    sandbox there ("" where there is one)."""

    taken: list[int]
    gpus: int
    problem: str


@contextlib.contextmanager
def hold(
    hosts: Sequence[remote.Host],
    waiting: Callable[[str], None] | None = None,
    stopping: threading.Event | None = None,
) -> Iterator[dict[str, HeldSlots]]:
    """Hold a slot for each rank on each of `hosts`; yield what is held, by the hosts' names.

    `waiting` and `stopping` as for `slots.take`. Raises CourseError as it does, and (code 2) for a host that can't be
    reached or has GPUs where others have none.
    """
    held: dict[str, HeldSlots] = {}
    with contextlib.ExitStack() as stack:
        for host in sorted(hosts, key=lambda host: host.name):  # in one order, so that no two wait for each other
            if remote.here(host.name):
                held[host.name] = stack.enter_context(hold_here(host.slots, waiting, stopping))
            else:
                held[host.name] = stack.enter_context(_hold_elsewhere(host, waiting, stopping))
        with_gpus = [name for name, one in held.items() if one.gpus]
        if without := held.keys() - with_gpus if with_gpus else ():
            raise CourseError(f"{with_gpus[0]} has GPUs and {min(without)} has none: name hosts of one kind.", code=2)
        yield held


@contextlib.contextmanager
def hold_here(
    ranks: int, waiting: Callable[[str], None] | None = None, stopping: threading.Event | None = None
) -> Iterator[HeldSlots]:
    """The same on this host alone."""
    gpus = slots.count()
    with slots.take(ranks, gpus=gpus, waiting=waiting, stopping=stopping) as taken:
        yield HeldSlots(taken, gpus, bubblewrap.available())


@contextlib.contextmanager
def _hold_elsewhere(
    host: remote.Host, waiting: Callable[[str], None] | None, stopping: threading.Event | None
) -> Iterator[HeldSlots]:
    same = [f"{name}={os.environ[name]}" for name in ("XDG_CACHE_HOME",) if name in os.environ]
    command = [
        "env",
        *same,
        sys.executable,
        "-I",
        "-m",
        "course_lib.command.assess.sandbox.slot_holder",
        str(host.slots),
    ]
    process = remote.open_on(host.name, command, stdin=subprocess.PIPE)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    try:
        yield _follow(host.name, process, lines, waiting, stopping)
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        process.kill()
        process.wait()


def _read(process: subprocess.Popen, lines: queue.Queue[str]) -> None:
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def _follow(
    host: str,
    process: subprocess.Popen,
    lines: queue.Queue[str],
    waiting: Callable[[str], None] | None,
    stopping: threading.Event | None,
) -> HeldSlots:
    deadline = time.monotonic() + remote.ANSWER_TIMEOUT_S
    while True:
        try:
            line = lines.get(timeout=slots.POLL_INTERVAL_S)
        except queue.Empty:
            if stopping is not None and stopping.is_set():
                raise CourseError("Stopped.", code=130) from None
            if time.monotonic() > deadline:
                raise CourseError(
                    f"The host {host} did not answer within {remote.ANSWER_TIMEOUT_S:g} s.", code=2
                ) from None
            continue
        if not line:
            raise remote.refusal(host, process.wait(), process.stderr.read())
        told = json.loads(line) if line.startswith("{") else {}  # a login may greet
        if "error" in told:
            raise CourseError(f"{host}: {told['error']}", code=2)
        if "waiting" in told:
            deadline = float("inf")
            if waiting:
                waiting(f"{host}: {told['waiting']}")
        if "taken" in told:
            return HeldSlots(**told)


def main() -> None:
    """Entry point: hold slots of this host."""

    def tell(**record: object) -> None:
        print(json.dumps(record), flush=True)

    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        with hold_here(int(sys.argv[1]), lambda text: tell(waiting=text)) as held:
            tell(**vars(held))
            threading.Event().wait()
    except CourseError as error:
        tell(error=str(error))


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    main()
