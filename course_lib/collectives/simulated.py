"""Simulated ranks: run a program on N ranks in one process, and record every message.

    outcome = run(program, [x0, x1, x2])     # program(me, x) → result; me is a Rank
    outcome.results, outcome.messages

Sending never blocks; receiving blocks until a message from the given rank arrives. Each rank is a thread. The result
does not depend on the timing of the threads, since messages between two ranks keep their order.

`marked` makes numbers that encode their origin: element c of rank r is (c + 1) · 10^r, so the digits of a sum show
which ranks it includes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.collectives import plans
from course_lib.collectives.plans import Trace

MOST_MESSAGES = 50_000  # of one rank in one run


class DeadlockError(RuntimeError):
    """All running ranks wait for messages that no rank will send."""


class EndlessError(RuntimeError):
    """A rank has sent more than MOST_MESSAGES messages, probably in an endless loop."""


@dataclass(frozen=True, eq=False)
class Message:
    """A message and the round in which it travelled.

    A rank sends and receives at most one message in a round, and forwards a message in a later round at the earliest.
    """

    round: int
    source: int
    target: int
    payload: np.ndarray


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a run.

    Attributes:
        results: return value of each rank.
        messages: received messages, in the order of their rounds.
        unread: number of messages that were sent but not received.
    """

    results: list[Any]
    messages: list[Message]
    unread: int

    @property
    def trace(self) -> Trace:
        """The messages as arrays, without their content."""
        rows = [(m.round, m.source, m.target, m.payload.size) for m in self.messages]
        return Trace(*np.array(rows, int).reshape(-1, 4).T)


class Rank:
    """The interface of a program to its rank.

    Attributes:
        rank: 0 … size − 1.
        size: number of ranks.
    """

    def __init__(self, rank: int, network: _Network) -> None:
        self.rank, self.size = rank, network.size
        self._network = network

    def send(self, array: np.ndarray, to: int) -> None:
        """Send a copy of `array` to rank `to`; return at once. Raises ValueError for an invalid rank."""
        self._network.send(self.rank, to, np.array(array))

    def receive(self, source: int) -> np.ndarray:
        """Wait for the next message from rank `source` and return it.

        Raises DeadlockError if none can arrive, ValueError for an invalid rank.
        """
        return self._network.receive(self.rank, source)

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of all ranks' arrays, of their shape. Each rank sends its array to all others."""
        # Each rank starts with its neighbour, so that the ranks do not all send to the same rank in one round.
        others = [(self.rank + distance) % self.size for distance in range(1, self.size)]
        for rank in others:
            self.send(array, rank)
        arrived = {self.rank: np.array(array), **{rank: self.receive(rank) for rank in reversed(others)}}
        return sum((arrived[rank] for rank in range(self.size)), start=np.array(0))  # in the same order on all ranks


def run(program: Callable[[Rank, Any], Any], values: Sequence[Any]) -> Outcome:
    """Run `program(me, values[rank])` on len(values) simulated ranks; `me` is a `Rank`.

    An interrupt ends each rank at its next message.

    Raises:
        DeadlockError: the ranks wait for messages that no rank will send.
        EndlessError: a rank has sent more than MOST_MESSAGES messages.
        Exception: the exception of the rank that failed first.
    """
    network = _Network(len(values))
    results: list[Any] = [None] * len(values)

    def body(rank: int) -> None:
        try:
            results[rank] = program(Rank(rank, network), values[rank])
        except BaseException as error:
            network.fail(error)
        finally:
            network.end(rank)

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(len(values))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as error:  # an interrupt: ranks in an endless loop would continue
        network.fail(error)
        raise
    if network.error:
        raise network.error
    messages = sorted(network.delivered, key=lambda message: (message.round, message.source, message.target))
    return Outcome(results, messages, sum(map(len, network.queues.values())))


def ring_among(me: Rank, array: np.ndarray, members: Sequence[int]) -> np.ndarray:
    """The sum of the arrays [L] of the ranks in `members`, by a ring all-reduce. All members must call it."""
    place, held = list(members).index(me.rank), np.array(array)
    for messages in plans.ring(len(members), len(held)):
        (out,), (into,) = np.flatnonzero(messages.source == place), np.flatnonzero(messages.target == place)
        me.send(held[messages.first[out] : messages.last[out]], members[messages.target[out]])
        came = me.receive(members[messages.source[into]])
        here = slice(messages.first[into], messages.last[into])
        held[here] = held[here] + came if messages.add else came
    return held


class _Network:
    def __init__(self, size: int) -> None:
        self.size = size
        self.queues: dict[tuple[int, int], deque[tuple[int, np.ndarray]]] = {}
        self.delivered: list[Message] = []
        self.error: BaseException | None = None
        self._changed = threading.Condition()
        self._waiting: dict[int, int] = {}  # rank → the rank that it waits for
        self._running = size
        # For each rank: the first round after its last receive, the next free round for a send, for a receive.
        self._knows, self._sends, self._receives = [0] * size, [0] * size, [0] * size
        self._sent = [0] * size  # number of messages

    def send(self, source: int, target: int, payload: np.ndarray) -> None:
        if not 0 <= target < self.size or target == source:
            raise ValueError(f"rank {source} of {self.size} can't send to rank {target}")
        with self._changed:
            if self.error is not None:
                raise self.error
            self._sent[source] += 1
            if self._sent[source] > MOST_MESSAGES:
                raise EndlessError(
                    f"Rank {source} has sent {MOST_MESSAGES:,} messages and goes on: does its loop come to an end?"
                )
            departs = max(self._knows[source], self._sends[source])
            self._sends[source] = departs + 1
            self.queues.setdefault((source, target), deque()).append((departs, payload))
            self._changed.notify_all()

    def receive(self, target: int, source: int) -> np.ndarray:
        if not 0 <= source < self.size or source == target:
            raise ValueError(f"rank {target} of {self.size} can't receive from rank {source}")
        with self._changed:
            queue = self.queues.setdefault((source, target), deque())
            while not queue and self.error is None:
                self._waiting[target] = source
                self._check()
                if self.error is None:
                    self._changed.wait()
                self._waiting.pop(target, None)
            if self.error is not None:
                raise self.error
            departs, payload = queue.popleft()
            arrives = max(departs, self._receives[target])
            self._receives[target] = self._knows[target] = arrives + 1
            self.delivered.append(Message(arrives, source, target, payload))
            return payload

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def end(self, rank: int) -> None:
        with self._changed:
            self._running -= 1
            self._check()

    def _check(self) -> None:
        stuck = {rank: source for rank, source in self._waiting.items() if not self.queues.get((source, rank))}
        if stuck and len(stuck) == self._running and self.error is None:
            who = ", ".join(f"rank {rank} for rank {source}" for rank, source in sorted(stuck.items())[:4])
            self.error = DeadlockError(f"Deadlock: {who}{' …' if len(stuck) > 4 else ''} wait, and nobody sends.")
            self._changed.notify_all()


def marked(rank: int, elements: int) -> np.ndarray:
    """The numbers (c + 1) · 10^rank for c = 0 … elements − 1, int64 [elements]. For at most nine ranks and elements."""
    return (np.arange(elements, dtype=np.int64) + 1) * 10**rank


def origin(number: float) -> tuple[int, tuple[int, ...]]:
    """Decode a sum of marked numbers: (element c, ranks). A rank that was added twice occurs twice.

    Raises ValueError if the number is not a sum of one element over several ranks.
    """
    digits = [int(digit) for digit in reversed(str(round(number)))]
    nonzero = [digit for digit in digits if digit]
    element = min(nonzero, default=0)
    if not nonzero or any(digit % element for digit in nonzero):
        raise ValueError(f"{number} is no sum of one element over several ranks")
    return element - 1, tuple(rank for rank, digit in enumerate(digits) for _ in range(digit // element))
