"""One training step with tensor fusion: when is which gradient sent, and how much of it hides behind the computation?

As in Horovod (arXiv:1802.05799) a thread wakes up once in a cycle. It takes the gradients that have become ready,
packs them in the order in which they did into messages of at most `threshold` bytes, and sends one after the other.
A gradient that is larger than the threshold travels alone.

The other rule is that of Jia et al. (arXiv:1807.11205): no cycles, and a message leaves as soon as at *least*
`threshold` bytes are together. Notebooks 4b and 4c and `cost.predict` all simulate with `step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

TOLERANCE = 1e-9  # seconds: what rounding may add to the time of a gradient that a cycle just catches


@dataclass(frozen=True)
class Message:
    """An all-reduce: start and duration in seconds, bytes, and the indices of the tensors in it, in their order."""

    start: float
    seconds: float
    nbytes: float
    tensors: tuple[int, ...]

    @property
    def end(self) -> float:
        """Seconds from the start of the step."""
        return self.start + self.seconds


@dataclass(frozen=True)
class Step:
    """A backward pass with its messages. All times in seconds from the start of the backward pass."""

    backward: float
    messages: tuple[Message, ...]
    next_cycle: float  # when the thread wakes up next

    @property
    def seconds(self) -> float:
        """Until the backward pass is over and the last message is through."""
        return max([self.backward, *(message.end for message in self.messages)])

    @property
    def communication(self) -> float:
        """Seconds in which a message travels."""
        return sum(message.seconds for message in self.messages)

    @property
    def hidden(self) -> float:
        """Seconds of communication that pass during the backward pass."""
        return sum(max(0.0, min(message.end, self.backward) - message.start) for message in self.messages)

    @property
    def exposed(self) -> float:
        """Seconds by which the step is longer than the backward pass: what overlap could not hide."""
        return self.seconds - self.backward


def ready_times(flops: ArrayLike, backward: float) -> np.ndarray:
    """When each tensor's gradient is ready, [T], in seconds from the start of the backward pass.

    Args:
        flops: of each tensor's layer, [T], in forward order; the backward pass goes from the last to the first.
        backward: seconds of the whole backward pass; each layer takes its share of the operations.
    """
    flops = np.asarray(flops, float)
    return backward * np.cumsum(flops[::-1])[::-1] / flops.sum()


def step(
    ready: ArrayLike, nbytes: ArrayLike, all_reduce: Callable, threshold: float, cycle: float, *,
    first: float = 0.0, copy: float = 0.0, negotiation: float = 0.0, blocking: bool = False, at_least: bool = False,
) -> Step:  # fmt: skip
    """Simulate a backward pass with its all-reduces.

    Args:
        ready: when each gradient is ready, [T], in seconds from the start of the backward pass.
        nbytes: of each gradient, [T].
        all_reduce: bytes [M] → seconds [M] of an all-reduce.
        threshold: bytes of a fused message; 0 sends every tensor alone.
        cycle: seconds between two cycles; 0 looks at all times.
        first: when the thread wakes up first.
        copy: seconds for each byte of a message with more than one tensor: into the fusion buffer and out again.
        negotiation: seconds that a cycle with work spends before its first message, in which the ranks agree on what
            is ready everywhere.
        blocking: True where the thread itself carries out the all-reduce, as Horovod's does on CPUs; the next cycle
            waits for it. With NCCL the GPU does it, and cycles go on.
        at_least: the rule of Jia et al.: a message leaves when it has `threshold` bytes; cycles play no part.
    """
    ready_at, sizes = np.asarray(ready, float).tolist(), np.asarray(nbytes, float).tolist()
    order = np.argsort(ready_at, kind="stable").tolist()
    messages: list[Message] = []
    packed: list[tuple[float, list[int]]] = []  # not yet sent: (when, tensors)
    clock, free = first, -math.inf

    def send() -> None:
        nonlocal free
        totals = [sum(sizes[tensor] for tensor in group) for _, group in packed]
        for (moment, group), total, seconds in zip(packed, totals, np.asarray(all_reduce(np.array(totals))).tolist()):
            start = max(free, moment + negotiation)
            seconds += copy * total * (len(group) > 1)
            messages.append(Message(start, seconds, total, tuple(group)))
            free = start + seconds
        packed.clear()

    if at_least:
        packed += _when_full(order, ready_at, sizes, threshold)
    done = len(order) if at_least else 0
    while done < len(order):
        wait = ready_at[order[done]] - clock
        if wait > TOLERANCE:
            clock = clock + math.ceil((wait - TOLERANCE) / cycle) * cycle if cycle else clock + wait
        size = None  # of the message that is being packed
        while done < len(order) and ready_at[order[done]] <= clock + TOLERANCE:
            tensor = order[done]
            if size is None or size + sizes[tensor] > threshold:
                packed.append((clock, []))
                size = 0.0
            packed[-1][1].append(tensor)
            size += sizes[tensor]
            done += 1
        if blocking:
            send()
        clock = max(clock + cycle, free) if blocking else clock + cycle
    if packed:
        send()
    return Step(max(ready_at, default=0.0), tuple(messages), clock)


def _when_full(
    order: Sequence[int], ready: Sequence[float], nbytes: Sequence[float], threshold: float
) -> list[tuple[float, list[int]]]:
    """Messages of at least `threshold` bytes, and what is left at the end: (when, tensors)."""
    packed: list[tuple[float, list[int]]] = []
    held: list[int] = []
    for place, tensor in enumerate(order, 1):
        held.append(tensor)
        if place == len(order) or sum(nbytes[one] for one in held) >= threshold:
            packed.append((ready[tensor], held))
            held = []
    return packed
