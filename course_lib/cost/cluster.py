"""Predict the training speed on a cluster from its hosts, its links and the speed of one rank: `predict`.

A step is the forward pass, then the backward pass of the slowest rank, overlapped with the all-reduces of fused
gradients (`overlap.step`). The model leaves out the input pipeline, the optimizer, other jobs on the network, and the
slowdown of the computation by the communication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from course_lib.cost import allreduce, networks, overlap, stragglers
from course_lib.cost.allreduce import Link, Numbers
from course_lib.cost.networks import Tensor

MIB = 2**20
PHASES = 4  # average over so many phases of the cycle: the start of the backward pass within a cycle is random


@dataclass(frozen=True)
class System:
    """A cluster with its software.

    Bandwidths are those that software reaches, as in `published.PCIE` and `published.network`. The other defaults are
    Horovod's, and a straggler spread that fits published systems.

    Args:
        hosts, ranks_per_host: numbers; `predict` fills one host after the other.
        inner: the link of a rank to the other ranks of its host, all lanes together.
        outer: the link of a host to other hosts, which its ranks share.
        images_per_second: of one rank alone, for the network and the images per rank of the prediction.
        cycle_seconds: seconds between two cycles (`HOROVOD_CYCLE_TIME`); 0: a gradient is noticed at once.
        fusion_bytes: maximum bytes of a fused message (`HOROVOD_FUSION_THRESHOLD`); 0: no fusion.
        straggler_spread: standard deviation of a rank's step time relative to its mean. Step times are normal and
            independent, and all ranks wait for the slowest. The default is fitted to published efficiencies
            (notebook 4c).
        algorithm: one of ALGORITHMS: "ring", "halving", "two levels", "hierarchical", "hybrid" or "best".
        group: ranks in a group of Jia's hierarchical all-reduce; None: the ranks of a host. For another number, inner
            and outer must be equal.
        itemsize: bytes of a number in a gradient.
        backward: fraction of the computation in the backward pass.
        at_least: fusion_bytes is the minimum size of a message, and there are no cycles (see `overlap.step`).

    Raises:
        ValueError: for an invalid value, such as 0 hosts or an unknown algorithm.
    """

    hosts: int
    ranks_per_host: int
    inner: Link
    outer: Link
    images_per_second: float
    cycle_seconds: float = 0.001
    fusion_bytes: float = 128 * MIB
    straggler_spread: float = 0.048
    algorithm: str = "best"
    group: int | None = None
    itemsize: int = 4
    backward: float = 2 / 3
    at_least: bool = False

    def __post_init__(self) -> None:
        for name in ("hosts", "ranks_per_host", "group"):
            count = getattr(self, name)
            if count is not None and not (count >= 1 and count == int(count)):
                raise ValueError(f"{name} is a whole number from 1 on, not {count}")
        if self.group not in (None, self.ranks_per_host) and self.inner != self.outer:
            raise ValueError(
                f"groups of {self.group} are no hosts of {self.ranks_per_host}: their links must be the same"
            )
        for name in ("images_per_second", "itemsize"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} has to be positive, not {getattr(self, name)}")
        for name in ("cycle_seconds", "fusion_bytes", "straggler_spread"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} can't be negative: {getattr(self, name)}")
        if not 0 < self.backward < 1:
            raise ValueError(f"backward is a share of the computation, between 0 and 1, not {self.backward}")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"there is no all-reduce {self.algorithm!r}: choose one of {', '.join(ALGORITHMS)}")

    @property
    def ranks(self) -> int:
        """Number of ranks on all hosts."""
        return self.hosts * self.ranks_per_host


@dataclass(frozen=True)
class Prediction:
    """The prediction of a training step.

    Attributes:
        images_per_second: of all ranks together.
        efficiency: images_per_second divided by that of as many independent ranks.
        step_seconds: duration of a step.
        exposed_communication_seconds: part of step_seconds after the backward pass of the slowest rank.
        compute_seconds: forward and backward pass of one rank.
        communication_seconds: total duration of the all-reduces.
    """

    images_per_second: float
    efficiency: float
    step_seconds: float
    exposed_communication_seconds: float
    compute_seconds: float
    communication_seconds: float


def predict(network: str | Sequence[Tensor], system: System, ranks: int, batch_per_rank: float) -> Prediction:
    """Predict a training step.

    Args:
        network: a name from `networks.NETWORKS`, or tensors in forward order.
        system: the cluster.
        ranks: the first so many ranks of the system train.
        batch_per_rank: images per step on each rank.

    Raises:
        ValueError: for an unknown or empty network, no images, or more ranks than the system has.
    """
    if not (1 <= ranks <= system.ranks and ranks == int(ranks)):
        raise ValueError(
            f"{ranks} ranks: the system has 1 to {system.ranks} ({system.hosts} hosts of {system.ranks_per_host})"
        )
    if not batch_per_rank > 0:
        raise ValueError(f"images per rank have to be positive, not {batch_per_rank}")
    flops, elements = _arrays(networks.find(network) if isinstance(network, str) else tuple(network))
    compute = batch_per_rank / system.images_per_second
    slowest = compute * _slowest_step_time(system.straggler_spread, ranks)
    backward = system.backward * slowest
    ready, nbytes = overlap.ready_times(flops, backward), elements * float(system.itemsize)
    phases = PHASES if system.cycle_seconds and not system.at_least else 1
    seconds = partial(all_reduce, system, ranks)
    steps = [
        overlap.step(
            ready, nbytes, seconds, system.fusion_bytes, system.cycle_seconds,
            first=(phase + 0.5) / phases * system.cycle_seconds, at_least=system.at_least,
        )
        for phase in range(phases if ranks > 1 else 0)
    ]  # fmt: skip
    exposed = float(np.mean([step.exposed for step in steps])) if steps else 0.0
    communication = float(np.mean([step.communication for step in steps])) if steps else 0.0
    whole = slowest + exposed
    return Prediction(ranks * batch_per_rank / whole, compute / whole, whole, exposed, compute, communication)


def all_reduce(system: System, ranks: int, nbytes: Numbers) -> Numbers:
    """Seconds of an all-reduce of `nbytes` bytes on the first `ranks` ranks of a system, with its algorithm."""
    return ALGORITHMS[system.algorithm](system, ranks, np.asarray(nbytes, float))


def _ring(system: System, ranks: int, nbytes: Numbers) -> Numbers:
    """A ring without synchronous rounds: the latencies of all hops add up, and the slowest link limits the rate."""
    near = min(ranks, system.ranks_per_host)
    hosts = -(-ranks // near)
    crossings = hosts if hosts > 1 else 0
    hops = crossings * system.outer.latency + (ranks - crossings) * system.inner.latency
    betas = [link.beta for link, used in ((system.outer, crossings), (system.inner, ranks > crossings)) if used]
    return 2 * (ranks - 1) / ranks * (hops + nbytes * max(betas))


def _halving(system: System, ranks: int, nbytes: Numbers) -> Numbers:
    """Recursive halving and doubling, the nearest partner first; the ranks of a host share its link."""
    if system.ranks_per_host & (system.ranks_per_host - 1):
        raise ValueError(f"halving needs a power of two as ranks_per_host, not {system.ranks_per_host}")
    return allreduce.halving(ranks, nbytes, system.outer, system.ranks_per_host, system.inner)


def _two_levels(system: System, ranks: int, nbytes: Numbers) -> Numbers:
    """Horovod's hierarchical all-reduce: reduce-scatter in each host, all-reduce across hosts, all-gather in each host.

    Across hosts: the faster of a ring and recursive halving and doubling, of all bytes of the host.
    """
    near = min(ranks, system.ranks_per_host)
    hosts = -(-ranks // near)
    within = allreduce.ring(near, nbytes, system.inner) if near > 1 else 0.0 * nbytes
    if hosts == 1:
        return within
    return within + np.minimum(
        allreduce.ring(hosts, nbytes, system.outer), allreduce.halving(hosts, nbytes, system.outer)
    )


def _hierarchical(system: System, ranks: int, nbytes: Numbers) -> Numbers:
    """The hierarchical all-reduce of Jia et al. (2018): groups, ring of the leaders, groups."""
    group = system.group or system.ranks_per_host
    return allreduce.hierarchical(ranks, nbytes, system.outer, group, system.inner)


def _fastest(*ways: Callable) -> Callable:
    def quickest(system: System, ranks: int, nbytes: Numbers) -> Numbers:
        return np.minimum.reduce([way(system, ranks, nbytes) for way in ways])

    return quickest


ALGORITHMS: dict[str, Callable[[System, int, Numbers], Numbers]] = {
    "ring": _ring,
    "halving": _halving,
    "two levels": _two_levels,
    "hierarchical": _hierarchical,
    "hybrid": _fastest(_ring, _hierarchical),
    "best": _fastest(_ring, _two_levels),
}


@lru_cache(maxsize=64)
def _arrays(network: tuple[Tensor, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Floating-point operations [T] and numbers of elements [T] of a network's tensors."""
    if not sum(tensor.flops for tensor in network) > 0:
        raise ValueError("the network has no layer that computes: give a list of networks.Tensor, or a name")
    return np.array([tensor.flops for tensor in network], float), np.array([tensor.elements for tensor in network])


@lru_cache(maxsize=4096)
def _slowest_step_time(spread: float, ranks: int) -> float:
    """The expected step time of the slowest rank, relative to the mean step time."""
    return float(stragglers.expected_maximum(stragglers.normal(spread), ranks)) if spread and ranks > 1 else 1.0
