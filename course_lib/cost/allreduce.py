"""The cost of all-reduces in the α–β model, in closed form.

A message of n bytes takes α + β n seconds; messages between different ranks travel at the same time. The formulas are
for the plans of `collectives` with the same names. They are exact if N and k divide the length; else they differ by the
rounding of chunks to whole numbers. All accept arrays, and all are linear in `nbytes`.

Common arguments:

    ranks: N.
    nbytes: n, the size of the tensor in bytes.
    link: the link between ranks, or between hosts if `group` > 1.
    group: k, ranks per host: ranks 0 … k − 1 are on one host, the next k on another, and so on. The ranks of a host
        share *one* link to other hosts.
    inner: the link between ranks of the same host; default: `link`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

Numbers = Union[float, np.ndarray]  # a number, or an array of them


@dataclass(frozen=True)
class Link:
    """A link between two ranks or two hosts.

    Attributes:
        latency: seconds per message.
        bandwidth: bytes/s in each direction.

    Raises ValueError for a negative latency, or a bandwidth that is not positive.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise ValueError(f"a link has a latency of 0 s or more and a bandwidth above 0 bytes/s, not {self}")

    @property
    def alpha(self) -> float:
        """Seconds per message."""
        return self.latency

    @property
    def beta(self) -> float:
        """Seconds per byte."""
        return 1 / self.bandwidth

    def seconds(self, nbytes: Numbers) -> Numbers:
        """Seconds of one message of `nbytes` bytes."""
        return self.alpha + self.beta * nbytes


def ring(ranks: Numbers, nbytes: Numbers, link: Link, group: Numbers = 1, inner: Link | None = None) -> Numbers:
    """Seconds of a ring all-reduce: 2(N−1) rounds of n/N bytes (Patarasuk and Yuan 2009).

    In each round one message leaves each host, so the ranks of a host never compete for its link. On a single host all
    messages use `inner`.
    """
    ranks, nbytes = np.asarray(ranks), np.asarray(nbytes, float)
    half, part = ranks - 1, nbytes / ranks
    return (2 * half * np.where(ranks > group, link.seconds(part), (inner or link).seconds(part)))[()]


def halving(
    ranks: Numbers, nbytes: Numbers, link: Link, group: Numbers = 1, inner: Link | None = None, far_first: bool = False
) -> Numbers:
    """Seconds of recursive halving and doubling: 2 log₂N rounds of n/2, n/4, … bytes (Thakur et al. 2005).

    If N is not a power of two: the formula for P, the largest power of two below N, plus two rounds of n bytes. In
    rounds of distance `group` or more, all ranks of a host have partners on other hosts, and their messages share the
    host's link. These are the small messages if the nearest partner comes first, the large ones with `far_first`.

    Args:
        group: a power of two.
        far_first: as in `collectives.halving`.
    """
    ranks, nbytes, inner = np.asarray(ranks), np.asarray(nbytes, float), inner or link
    size = _power_of_two(ranks)
    near = np.minimum(group, size)
    # As fractions of n: bytes that all ranks of a host send to other hosts, and that a rank sends within the host.
    out, within = (near * (1 - near / size), (near - 1) / size) if far_first else (1 - near / size, 1 - 1 / near)
    seconds = np.log2(size / near) * link.alpha + link.beta * nbytes * out
    seconds = seconds + np.log2(near) * inner.alpha + inner.beta * nbytes * within
    return (2 * (seconds + _fold_seconds(ranks, nbytes, link, group, inner)))[()]


def doubling(ranks: Numbers, nbytes: Numbers, link: Link, group: Numbers = 1, inner: Link | None = None) -> Numbers:
    """Seconds of recursive doubling: log₂N rounds of n bytes (Thakur et al. 2005).

    If N is not a power of two, there are two more rounds, as in `halving`.

    Args:
        group: a power of two; in rounds of distance `group` or more the messages of a host share its link.
    """
    ranks, nbytes, inner = np.asarray(ranks), np.asarray(nbytes, float), inner or link
    size = _power_of_two(ranks)
    near = np.minimum(group, size)
    seconds = np.log2(size / near) * link.seconds(near * nbytes) + np.log2(near) * inner.seconds(nbytes)
    return (seconds + 2 * _fold_seconds(ranks, nbytes, link, group, inner))[()]


def hierarchical(ranks: Numbers, nbytes: Numbers, link: Link, group: Numbers, inner: Link | None = None) -> Numbers:
    """Seconds of the hierarchical all-reduce: groups of k, ring of N/k leaders, groups (Jia et al. 2018).

    4(k−1) rounds of n/k bytes within groups, 2(N/k−1) rounds of n·k/N bytes between leaders.
    """
    ranks, nbytes, inner = np.asarray(ranks), np.asarray(nbytes, float), inner or link
    full, last, groups = np.minimum(group, ranks), ranks % group, -(-ranks // group)
    within = (full - 1) * inner.seconds(nbytes / full)
    # A last group with fewer ranks has larger chunks, and the other groups wait for it.
    waiting = np.where(groups > 1, np.maximum(last - 1, 0), 0)
    within = within + waiting * inner.beta * nbytes * (1 / np.maximum(last, 1) - 1 / full)
    return (4 * within + 2 * (groups - 1) * link.seconds(nbytes / groups))[()]


def sharded(
    ranks: Numbers, nbytes: Numbers, link: Link, group: Numbers, inner: Link | None = None, shared: bool = True
) -> Numbers:
    """Seconds of reduce-scatter in each host, k rings across hosts, all-gather in each host (Horovod 2018).

    2(k−1) rounds of n/k bytes within hosts, 2(N/k−1) rounds of n/N bytes across hosts.

    Args:
        ranks: a multiple of `group`, or less than `group`.
        shared: True: the k messages that leave a host in a round share its link. False: each rank has its own link.
    """
    ranks, nbytes, inner = np.asarray(ranks), np.asarray(nbytes, float), inner or link
    full = np.minimum(group, ranks)
    across = (ranks / full - 1) * link.seconds((full if shared else 1) * nbytes / ranks)
    return (2 * ((full - 1) * inner.seconds(nbytes / full) + across))[()]


def hybrid(
    ranks: Numbers, nbytes: Numbers, link: Link, group: Numbers, threshold: float, inner: Link | None = None
) -> Numbers:
    """Seconds of a ring for at least `threshold` bytes, else of the hierarchical all-reduce (Jia et al. 2018)."""
    large = np.asarray(nbytes) >= threshold
    long, short = (algorithm(ranks, nbytes, link, group, inner) for algorithm in (ring, hierarchical))
    return np.where(large, long, short)[()]


def counted(messages: Any, link: Link, group: int = 1, inner: Link | None = None, itemsize: int = 4) -> float:
    """Seconds of an all-reduce from its messages: each round takes as long as its slowest message.

    Args:
        messages: arrays round, source, target, elements, as in `collectives.Trace`.
        group: ranks of a host. The messages that leave a host in a round share its link; so do those that arrive.
        itemsize: bytes of an element.
    """
    rounds = int(messages.round[-1]) + 1 if len(messages.round) else 0
    nbytes = messages.elements * float(itemsize)
    homes = messages.source // group, messages.target // group
    outside = homes[0] != homes[1]
    seconds = np.zeros(rounds)
    for home in homes:
        place = messages.round * (home.max(initial=0) + 1) + home
        together = np.bincount(place[outside], nbytes[outside])[place[outside]]
        np.maximum.at(seconds, messages.round[outside], link.seconds(together))
    np.maximum.at(seconds, messages.round[~outside], (inner or link).seconds(nbytes[~outside]))
    return float(seconds.sum())


def crossing(one: Callable, other: Callable, ranks: Numbers) -> Numbers:
    """The number of bytes for which two all-reduces take equally long; NaN if one of them is always faster.

    Args:
        one, other: (ranks, nbytes) → seconds, linear in nbytes.
    """
    some = 1e9
    begin, end = (one(ranks, nbytes) - other(ranks, nbytes) for nbytes in (0.0, some))
    nearer = begin * (begin - end) > 1e-9 * begin**2  # the tolerance excludes rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(nearer, some * begin / (begin - end), np.nan)[()]


def fit(ranks: Numbers, nbytes: np.ndarray, seconds: np.ndarray) -> Link:
    """Fit α ≥ 0 and β ≥ 0 to measured ring all-reduces, by least squares on the relative errors.

    With relative errors, a measurement of a microsecond has as much weight as one of a second.

    Args:
        ranks: one number, or [measurements].
        nbytes, seconds: [measurements].
    """
    seconds = np.asarray(seconds, float)
    latency, bandwidth = (ring(ranks, nbytes, link) / seconds for link in (Link(1, math.inf), Link(0, 1)))
    (alpha, beta), *_ = np.linalg.lstsq(np.stack([latency, bandwidth], 1), np.ones_like(seconds), rcond=None)
    if alpha < 0:
        alpha, beta = 0.0, bandwidth.sum() / (bandwidth**2).sum()
    elif beta < 0:
        alpha, beta = latency.sum() / (latency**2).sum(), 0.0
    return Link(float(alpha), 1 / float(beta) if beta else math.inf)


def _fold_seconds(ranks: np.ndarray, nbytes: np.ndarray, link: Link, group: Numbers, inner: Link) -> Numbers:
    """Seconds in which the ranks beyond the largest power of two send all their numbers; 0 if there are none."""
    extra = ranks - _power_of_two(ranks)
    seconds = np.where(ranks > group, link.seconds(np.minimum(group, extra) * nbytes), inner.seconds(nbytes))
    return np.where(extra > 0, seconds, 0)


def _power_of_two(numbers: np.ndarray) -> np.ndarray:
    """The largest power of two that is at most `numbers`."""
    return 2.0 ** (np.frexp(numbers)[1] - 1)
