"""Published scaling efficiencies, and a calibration that is judged on systems it has not seen.

`cost.predict` takes a cluster as its maker sells it: gigabits, hosts, ranks. Software reaches a share of that, pays a
latency for each message, and its ranks are not equally quick. These four constants, the same for all systems, are
fitted on all systems but one, and predict that one. What is not published is taken as Horovod has it by default:
messages of 64 MiB, cycles of 5 ms, numbers of 4 bytes.

Two choices were made after the errors of a first fit had been seen: a share for links in a host and another for those
between hosts, and the rule of `UNDECIDED`. The recorded table has the errors without them too.
The values on the grid were changed three times after results had been seen, or an optimum at its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.cost.cluster import Link, System, predict

LATENCIES = (5e-6, 2e-5, 8e-5)  # seconds
INNER_SHARES = (0.1, 0.2, 0.5, 1.0)
OUTER_SHARES = (0.5, 0.75, 1.0)
SPREADS = (0.0, 0.02, 0.04, 0.06, 0.08)
UNDECIDED = 1e-3  # a tenth of a point: no published efficiency is more exact


@dataclass(frozen=True)
class Cluster:
    """As sold: bandwidths in bytes/s and direction, between ranks of a host (inner) and for each host (outer)."""

    name: str
    hosts: int
    ranks_per_host: int
    inner: float
    outer: float
    source: str


@dataclass(frozen=True)
class Measured:
    """A published efficiency: of `ranks` ranks, in multiples of `base` of them.

    rate: images/s of one rank on its own; source of both numbers.
    """

    cluster: Cluster
    network: str
    ranks: int
    batch: int
    rate: float
    efficiency: float
    source: str
    base: int = 1


@dataclass(frozen=True)
class Constants:
    """What software makes of hardware.

    latency: seconds for each message; inner_share, outer_share: of the bandwidth in a host and between hosts that it
    reaches; spread: of step times, see `System.straggler_spread`.
    """

    latency: float
    inner_share: float
    outer_share: float
    spread: float


_JIA = Cluster(
    "Jia et al. 2018", 256, 8, 16e9, 12.5e9, "arXiv:1807.11205: 100 Gbit/s a server; 8 P40 in each, on PCIe, assumed"
)
_UBER = Cluster(
    "Horovod's benchmark",
    128,
    4,
    16e9,
    3.125e9,
    "Horovod, docs/benchmarks.rst, 32 servers in an earlier README: 25 Gbit/s; PCIe assumed",
)
_GOYAL = Cluster("Goyal et al. 2017", 32, 8, 20e9, 6.25e9, "arXiv:1706.02677: 8 P100 with NVLink, 50 Gbit/s a server")
_EC2 = Cluster("TensorFlow on EC2", 8, 8, 16e9, 1.25e9, "TensorFlow benchmarks, May 2017: p2.8xlarge, 10 Gbit/s")
_DGX = Cluster("TensorFlow on a DGX-1", 1, 8, 20e9, 12.5e9, "TensorFlow benchmarks, May 2017: 8 P100 with NVLink")
_DLPERF = Cluster("DLPerf", 4, 8, 25e9, 12.5e9, "DLPerf report v1, Aug 2020: 8 V100 with NVLink, 100 Gbit/s a server")
_TABLE = "TensorFlow benchmarks, synthetic data"


def _table(cluster: Cluster, network: str, batch: int, alone: float, rows: dict[int, float]) -> list[Measured]:
    """Lines of a table of images/s: ranks → images/s."""
    return [
        Measured(cluster, network, ranks, batch, alone, together / ranks / alone, _TABLE)
        for ranks, together in rows.items()
    ]


LINES: tuple[Measured, ...] = (
    Measured(_JIA, "ResNet-50", 1024, 64, 218, 0.992, "figure 11; rate: table 9"),
    Measured(_JIA, "ResNet-50", 1024, 32, 218, 0.879, "figure 12; rate: table 9, with 64 images"),
    *(
        Measured(_UBER, network, ranks, 64, rate, efficiency, f"Horovod's page; rate: {source}")
        for network, rate, source, by_ranks in (
            ("Inception V3", 142, "P100 in TensorFlow's benchmarks", {128: 0.90, 512: 0.90}),
            ("ResNet-101", 1656.82 / 16, "the page's 16 GPUs", {128: 0.90, 512: 0.90}),
            ("VGG-16", 154, "P100 in TensorFlow's benchmarks", {128: 0.79, 512: 0.68}),
        )
        for ranks, efficiency in by_ranks.items()
    ),
    Measured(_GOYAL, "ResNet-50", 256, 32, 138, 0.90, "abstract; rate: 29 h on 8 P100 (Jia et al., table 5)", base=8),
    *_table(_EC2, "Inception V3", 64, 29.7, {16: 459, 32: 902, 64: 1783}),
    *_table(_EC2, "ResNet-50", 64, 52.4, {16: 751, 32: 1388, 64: 2744}),
    *_table(_EC2, "ResNet-152", 32, 19.4, {16: 291, 32: 565, 64: 981}),
    *_table(_DGX, "VGG-16", 64, 154, {8: 1081}),
    *_table(_DGX, "VGG-16", 32, 144, {8: 820}),
    *_table(_DGX, "AlexNet", 512, 2987, {8: 17822}),
    *(
        Measured(_DLPERF, "ResNet-50", 32, batch, alone, together / 32 / alone, f"ResNet-50 V1.5, FP32: {program}")
        for program, batch, alone, together in (
            ("OneFlow", 128, 384.85, 11711.18),
            ("TensorFlow 1 with Horovod", 128, 362.44, 9514.64),
            ("MXNet with Horovod", 96, 389.71, 10419.21),
            ("PyTorch", 128, 354.40, 10632.33),
            ("PaddlePaddle", 128, 352.72, 9348.17),
            ("TensorFlow 2", 128, 321.80, 9418.44),
        )
    ),
)


def system(line: Measured, constants: Constants) -> System:
    """The system of a published line, with these constants."""
    cluster = line.cluster
    inner = Link(constants.latency, constants.inner_share * cluster.inner)
    outer = Link(constants.latency, constants.outer_share * cluster.outer)
    return System(cluster.hosts, cluster.ranks_per_host, inner, outer, line.rate, straggler_spread=constants.spread)


def predicted(line: Measured, constants: Constants) -> float:
    """The efficiency that the model gives for a published line."""
    efficiency = {
        ranks: predict(line.network, system(line, constants), ranks, line.batch).efficiency
        for ranks in {line.ranks, line.base}
    }
    return efficiency[line.ranks] / efficiency[line.base]


def grid() -> list[Constants]:
    """All that a calibration chooses from."""
    return [Constants(*values) for values in itertools.product(LATENCIES, INNER_SHARES, OUTER_SHARES, SPREADS)]


def leave_one_out(
    lines: Sequence[Measured], tried: Sequence[Constants], table: np.ndarray, undecided: float = UNDECIDED
) -> list[Constants]:
    """For each line, the constants that fit the *other* systems best.

    Least squares on the efficiencies; each system counts as much as any other, however many lines it has. Of fits
    whose root mean square is within `undecided` of the best, the one closest to the hardware as sold is taken: shares
    that the others can't tell stay near 1.

    Args:
        tried: [C]; table: predicted efficiencies, [C, lines].
    """
    chosen = {name: _best(lines, tried, table, undecided, name) for name in {line.cluster.name for line in lines}}
    return [chosen[line.cluster.name] for line in lines]


def calibrated(lines: Sequence[Measured], tried: Sequence[Constants], table: np.ndarray) -> Constants:
    """The constants that fit all lines best, for systems that are not among them; see `leave_one_out`."""
    return _best(lines, tried, table, UNDECIDED)


def _best(
    lines: Sequence[Measured], tried: Sequence[Constants], table: np.ndarray, undecided: float, without: str = ""
) -> Constants:
    squares = (table - [line.efficiency for line in lines]) ** 2
    names = sorted({line.cluster.name for line in lines} - {without})
    columns = [[place for place, line in enumerate(lines) if line.cluster.name == name] for name in names]
    error = np.sqrt(np.mean([squares[:, members].mean(1) for members in columns], axis=0))
    good = [place for place in np.argsort(error, kind="stable") if error[place] <= error.min() + undecided]
    return tried[max(good, key=lambda place: tried[place].inner_share + tried[place].outer_share)]
