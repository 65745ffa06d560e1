"""How efficient is training on N GPUs? A prediction from first principles.

What a single GPU does in a second, the sizes of a network's layers, and α and β of the wire give the seconds of a
step: the forward pass, then the backward pass with the all-reduces of fused gradients beside it. Nothing else is in
the model: no stragglers, no input pipeline, no optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.cost.networks import Tensor
from course_lib.cost.overlap import ready_times

ALGORITHMS = ("naive ring", "fused ring", "hierarchical", "hybrid")


@dataclass(frozen=True)
class System:
    """All that a prediction knows of a cluster and its software.

    alpha: seconds for each message, whatever its size; gigabits: Gbit/s of a server's link, in each direction;
    group: k of the hierarchical all-reduce; threshold: bytes from which on fused gradients are sent;
    itemsize: bytes of a gradient's number; backward: share of a step's computation that is the backward pass.
    """

    alpha: float
    gigabits: float = 100.0
    group: int = 16
    threshold: float = 0.4e6
    itemsize: int = 4
    backward: float = 2 / 3

    @property
    def link(self) -> Link:
        """Between neighbours in a ring: a server's link carries one message of a round in each direction."""
        return Link(self.alpha, 8 / (self.gigabits * 1e9))


@dataclass(frozen=True)
class Prediction:
    """A step: seconds of its computation, seconds and bytes of each all-reduce, and of the whole step."""

    compute: float
    messages: np.ndarray
    nbytes: np.ndarray
    seconds: float

    @property
    def communication(self) -> float:
        """Seconds in which something travels."""
        return float(self.messages.sum())

    @property
    def efficiency(self) -> float:
        """Throughput in multiples of that of as many GPUs without communication."""
        return self.compute / self.seconds


def predict(
    network: Sequence[Tensor], ranks: int, images: float, throughput: float, system: System, algorithm: str = "hybrid"
) -> Prediction:
    """One training step on `ranks` GPUs with `images` images each.

    Args:
        network: its tensors in forward order, from `networks`.
        throughput: images/s of a single GPU at this number of images.
        algorithm: one of ALGORITHMS; the naive ring sends each tensor alone, the others fuse. The hybrid takes, for
            each message, the quicker of ring and hierarchical all-reduce: a threshold where the two cross.
    """
    compute = images / throughput
    backward = system.backward * compute
    ready = ready_times([tensor.flops for tensor in network], backward)
    sizes = np.array([tensor.elements for tensor in network], float) * system.itemsize
    ready, nbytes = fuse(ready, sizes, 0 if algorithm == "naive ring" else system.threshold)
    messages = all_reduce(algorithm, ranks, nbytes, system)
    # The wire carries one message at a time. Whichever it last had to wait for, all from that one on follow.
    remaining = np.cumsum(messages[::-1])[::-1]
    seconds = compute - backward + max(backward, float((ready + remaining).max()))
    return Prediction(compute, messages, nbytes, seconds)


def all_reduce(algorithm: str, ranks: int | np.ndarray, nbytes: np.ndarray, system: System) -> np.ndarray:
    """Seconds of an all-reduce of `nbytes` by one of ALGORITHMS."""
    ring = allreduce.ring(ranks, nbytes, system.link)
    if algorithm in ("naive ring", "fused ring"):
        return ring
    grouped = allreduce.hierarchical(ranks, nbytes, system.link, system.group)
    if algorithm == "hierarchical":
        return grouped
    if algorithm == "hybrid":
        return np.minimum(ring, grouped)
    raise ValueError(f"there is no all-reduce called {algorithm!r}: choose one of {', '.join(ALGORITHMS)}")


def fuse(ready: np.ndarray, nbytes: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """(ready [M], bytes [M]) of fused messages: one leaves as soon as `threshold` bytes are together (Jia et al. 2018).

    Args:
        ready, nbytes: of each gradient, [T].
        threshold: in bytes; 0 sends each gradient alone. What is left at the end goes as it is.
    """
    order = np.argsort(ready, kind="stable")
    ends, together = [], 0.0
    for place, size in enumerate(nbytes[order].tolist()):
        together += size
        if together >= threshold:
            ends.append(place)
            together = 0.0
    if together:
        ends.append(len(order) - 1)
    total = np.cumsum(nbytes[order])[ends]
    return ready[order][ends], np.diff(total, prepend=0.0)


def fewest_rounds(ranks: int) -> int:
    """The power of two k for which a hierarchical all-reduce has the fewest rounds, 4(k−1) + 2(N/k−1)."""
    sizes = [2**power for power in range(int(math.log2(ranks)) + 1)]
    return min(sizes, key=lambda k: 4 * (k - 1) + 2 * (ranks / k - 1))


def fit(efficiency: Callable[[float], float], published: float, low: float, high: float) -> float:
    """The parameter between `low` and `high` at which `efficiency`, which falls with it, equals `published`.

    Raises:
        ValueError: if it does not lie between the efficiencies at the two ends.
    """
    if not efficiency(high) <= published <= efficiency(low):
        raise ValueError(f"no value between {low:g} and {high:g} gives {published:g}")
    width = high - low
    while width > 1e-9 * high:
        width /= 2
        if efficiency(low + width) > published:
            low += width
    return low


def training_seconds(examples: int, epochs: float, ranks: int, images: float, step: float) -> float:
    """Seconds of a training run: as many steps of ranks · images as all epochs together need."""
    return step * math.ceil(epochs * examples / ranks / images)
