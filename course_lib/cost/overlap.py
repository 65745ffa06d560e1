"""Simulate a training step with tensor fusion: when each gradient is sent, and how much communication is overlapped.

As in Horovod (arXiv:1802.05799), a thread wakes up once per cycle. It takes the gradients that are ready, packs them in
the order in which they became ready into messages of at most `threshold` bytes, and sends one message after the other.
A gradient larger than the threshold is sent alone.

The alternative is the rule of Jia et al. (arXiv:1807.11205): there are no cycles, and a message is sent as soon as it
has at *least* `threshold` bytes. Notebooks 4b and 4c and `cost.predict` use `step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

TOLERANCE = 1e-9  # seconds: rounding error of the time at which a gradient is ready, relative to a cycle


@dataclass(frozen=True)
class Message:
    """An all-reduce: start and duration in seconds, bytes, and the indices of its tensors, in order."""

    start: float
    seconds: float
    nbytes: float
    tensors: tuple[int, ...]

    @property
    def end(self) -> float:
        """End in seconds from the start of the backward pass."""
        return self.start + self.seconds


@dataclass(frozen=True)
class Step:
    """A backward pass and its messages. All times are seconds from the start of the backward pass."""

    backward: float
    messages: tuple[Message, ...]
    next_cycle: float  # when the thread wakes up next

    @property
    def seconds(self) -> float:
        """Seconds until the end of the backward pass and of the last message."""
        return max([self.backward, *(message.end for message in self.messages)])

    @property
    def communication(self) -> float:
        """Total seconds of the messages."""
        return sum(message.seconds for message in self.messages)

    @property
    def hidden(self) -> float:
        """Seconds of communication that overlap with the backward pass."""
        return sum(max(0.0, min(message.end, self.backward) - message.start) for message in self.messages)

    @property
    def exposed(self) -> float:
        """Seconds of communication after the backward pass, by which the step is longer."""
        return self.seconds - self.backward


def ready_times(flops: ArrayLike, backward: float) -> np.ndarray:
    """When each tensor's gradient is ready, [T], in seconds from the start of the backward pass.

    Args:
        flops: operations of each tensor's layer, [T], in forward order; the backward pass starts with the last.
        backward: seconds of the whole backward pass, divided among the layers in proportion to their operations.
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
        nbytes: size of each gradient in bytes, [T].
        all_reduce: bytes [M] → seconds [M] of an all-reduce.
        threshold: maximum bytes of a fused message; 0: no fusion.
        cycle: seconds between two cycles; 0: a gradient is noticed at once.
        first: time of the first cycle, in seconds from the start of the backward pass.
        copy: seconds per byte for the copies into the fusion buffer and out of it, for messages of several tensors.
        negotiation: seconds at the start of a cycle with messages, in which the ranks agree on the ready tensors.
        blocking: True: the thread executes the all-reduce itself, as Horovod's thread does on CPUs, and the next cycle
            starts afterwards. False: the GPU executes it, as with NCCL, and cycles continue.
        at_least: use the rule of Jia et al.: a message is sent when it has `threshold` bytes, without cycles.
    """
    ready_at, sizes = np.asarray(ready, float).tolist(), np.asarray(nbytes, float).tolist()
    order = np.argsort(ready_at, kind="stable").tolist()
    messages: list[Message] = []
    packed: list[tuple[float, list[int]]] = []  # messages to send: (time, tensors)
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
        size = None  # bytes of the current message
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
    """Messages of at least `threshold` bytes, and one with the remaining tensors: (time, tensors)."""
    packed: list[tuple[float, list[int]]] = []
    held: list[int] = []
    for place, tensor in enumerate(order, 1):
        held.append(tensor)
        if place == len(order) or sum(nbytes[one] for one in held) >= threshold:
            packed.append((ready[tensor], held))
            held = []
    return packed
