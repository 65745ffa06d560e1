"""One training step with tensor fusion: when is which gradient sent, and how much of it hides behind the computation?

As in Horovod (arXiv:1802.05799) a thread wakes up once in a cycle. It takes the gradients that have become ready,
packs them in the order in which they did into messages of at most `threshold` bytes, and sends one after the other.
A gradient that is larger than the threshold travels alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

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


def ready_times(flops: Sequence[float], backward: float) -> np.ndarray:
    """When each tensor's gradient is ready, [T], in seconds from the start of the backward pass.

    Args:
        flops: of each tensor's layer, [T], in forward order; the backward pass goes from the last to the first.
        backward: seconds of the whole backward pass; each layer takes its share of the operations.
    """
    flops = np.asarray(flops, float)
    return backward * np.cumsum(flops[::-1])[::-1] / flops.sum()


def step(
    ready: Sequence[float], nbytes: Sequence[float], all_reduce: Callable, threshold: float, cycle: float, *,
    first: float = 0.0, copy: float = 0.0, negotiation: float = 0.0, blocking: bool = False,
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
    """
    ready = np.asarray(ready, float)
    order = np.argsort(ready, kind="stable").tolist()
    ready, nbytes = ready.tolist(), np.asarray(nbytes, float).tolist()
    messages: list[Message] = []
    clock, free, done = first, -math.inf, 0
    while done < len(order):
        wait = ready[order[done]] - clock
        if wait > TOLERANCE:
            clock = clock + math.ceil((wait - TOLERANCE) / cycle) * cycle if cycle else clock + wait
        groups: list[list[int]] = []
        sizes: list[float] = []
        while done < len(order) and ready[order[done]] <= clock + TOLERANCE:
            tensor = order[done]
            if not groups or sizes[-1] + nbytes[tensor] > threshold:
                groups.append([])
                sizes.append(0.0)
            groups[-1].append(tensor)
            sizes[-1] += nbytes[tensor]
            done += 1
        free = max(free, clock + negotiation)
        for group, size, seconds in zip(groups, sizes, np.asarray(all_reduce(np.array(sizes)), float).tolist()):
            seconds += copy * size * (len(group) > 1)
            messages.append(Message(free, seconds, size, tuple(group)))
            free += seconds
        clock = max(clock + cycle, free) if blocking else clock + cycle
    return Step(max(ready, default=0.0), tuple(messages), clock)
