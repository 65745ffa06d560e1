"""Published scaling efficiencies, and a calibration that is judged on systems it has not seen.

`cost.predict` needs what links carry and how long a message takes. Makers sell other numbers, so what is taken here is
what NCCL itself reckons with when it chooses between rings and trees (its src/graph/topo.h and tuning.cc, version 2).
One constant is left that nobody publishes: how uneven ranks are. It is fitted, the same for all systems: on all systems
but one, to predict that one. All else is as Horovod had it by default in those years: messages of 64 MiB, cycles of
5 ms, numbers of 4 bytes.

An earlier calibration fitted four constants, and its errors were known when NCCL's numbers took the place of three of
them. `LATER` holds the lines that were added after that, and that changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from course_lib import statistics
from course_lib.cost.allreduce import Link
from course_lib.cost.cluster import MIB, System, predict
from course_lib.cost.published import K80_RATE, PCIE, network

# Seconds of a ring's step and bytes/s in each direction, by NCCL: all NVLinks of a GPU together.
NVLINK_P100 = Link(3.4e-6, 4 * 18e9)
NVLINK_V100 = Link(3.4e-6, 6 * 20e9)
SPREADS = np.arange(0, 0.1001, 0.002)


@dataclass(frozen=True)
class Cluster:
    """Hosts of `ranks_per_host` ranks; links as in `System`; source: of what is not assumed."""

    name: str
    hosts: int
    ranks_per_host: int
    inner: Link
    outer: Link
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


_JIA = Cluster(
    "Jia et al. 2018", 256, 8, PCIE, network(100), "arXiv:1807.11205: 100 Gbit/s a server; 8 P40 on PCIe, assumed"
)
_UBER = Cluster(
    "Horovod's benchmark", 128, 4, PCIE, network(25),
    "Horovod, docs/benchmarks.rst, 32 servers in an earlier README: 4 Pascal GPUs, 25 Gbit/s; PCIe assumed",
)  # fmt: skip
_GOYAL = Cluster(
    "Goyal et al. 2017", 32, 8, NVLINK_P100, network(50), "arXiv:1706.02677: 8 P100 with NVLink, 50 Gbit/s a server"
)
_EC2 = Cluster("TensorFlow on EC2", 8, 8, PCIE, network(10), "p2.8xlarge: 8 K80, 10 Gbit/s")
_GCE = Cluster("TensorFlow on GCE", 1, 8, PCIE, network(10), "n1-standard-32: 8 K80")
_DGX = Cluster("TensorFlow on a DGX-1", 1, 8, NVLINK_P100, network(100), "8 P100 with NVLink")
_DLPERF = Cluster(
    "DLPerf", 4, 8, NVLINK_V100, network(100), "DLPerf report v1, Aug 2020: 8 V100 with NVLink, 100 Gbit/s a server"
)
_TABLE = "TensorFlow, docs_src/performance/benchmarks.md, May 2017, synthetic data"


def _table(
    cluster: Cluster, network: str, batch: int, alone: float, rows: Mapping[int, float], source: str = _TABLE
) -> list[Measured]:
    """Lines of a table of images/s: ranks → images/s."""
    return [
        Measured(cluster, network, ranks, batch, alone, together / ranks / alone, source)
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
    # TensorFlow's page, whole: every line with synthetic data on 8 GPUs or more.
    *_table(_EC2, "Inception V3", 64, K80_RATE, {8: 229, 16: 459, 32: 902, 64: 1783}),
    *_table(_EC2, "ResNet-50", 64, 52.4, {8: 378, 16: 751, 32: 1388, 64: 2744}),
    *_table(_EC2, "ResNet-152", 32, 19.4, {8: 146, 16: 291, 32: 565, 64: 981}),
    *_table(_EC2, "Inception V3", 32, 29.2, {8: 219, 16: 427, 32: 820, 64: 1608}),
    *_table(_EC2, "ResNet-50", 32, 48.4, {8: 333, 16: 667, 32: 1180, 64: 2315}),
    *_table(_EC2, "AlexNet", 512, 684, {8: 4853}),
    *_table(_EC2, "VGG-16", 32, 36.3, {8: 260}),
    *_table(_GCE, "Inception V3", 64, 30.5, {8: 227}),
    *_table(_GCE, "ResNet-50", 64, 51.9, {8: 387}),
    *_table(_GCE, "ResNet-152", 32, 20.0, {8: 148}),
    *_table(_GCE, "AlexNet", 512, 656, {8: 4640}),
    *_table(_GCE, "VGG-16", 32, 35.4, {8: 234}),
    *_table(_GCE, "Inception V3", 32, 29.3, {8: 216}),
    *_table(_GCE, "ResNet-50", 32, 49.5, {8: 362}),
    *_table(_DGX, "Inception V3", 64, 142, {8: 1131}),
    *_table(_DGX, "ResNet-50", 64, 219, {8: 1734}),
    *_table(_DGX, "ResNet-152", 64, 91.8, {8: 716}),
    *_table(_DGX, "VGG-16", 64, 154, {8: 1081}),
    *_table(_DGX, "AlexNet", 512, 2987, {8: 17822}),
    *_table(_DGX, "Inception V3", 32, 128, {8: 995}),
    *_table(_DGX, "ResNet-50", 32, 195, {8: 1485}),
    *_table(_DGX, "ResNet-152", 32, 82.7, {8: 632}),
    *_table(_DGX, "VGG-16", 32, 144, {8: 820}),
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

_REPORT = "E. Bugliarello: Distributed TensorFlow, a performance evaluation, CSCS 2017, synthetic data"
_DAINT = Cluster("Piz Daint", 128, 1, PCIE, Link(14e-6, 10e9), f"{_REPORT}: one P100 a host; Aries, 10 GB/s assumed")
_EC2_AGAIN = Cluster("EC2, by CSCS", 16, 8, PCIE, network(10), f"{_REPORT}: p2.8xlarge")
_MN1 = Cluster("Akiba et al. 2017", 128, 8, PCIE, network(112), "Preferred Networks on MN-1: 8 P100, 2 × 56 Gbit/s")
_IBM = Cluster(
    "Cho et al. 2017", 64, 4, NVLINK_P100, network(100), "arXiv:1708.02188: 64 hosts, 4 P100; 100 Gbit/s assumed"
)

LATER: tuple[Measured, ...] = (
    *_table(
        _DAINT, "Inception V3", 64, 138.23,
        {2: 264.57, 4: 523.38, 8: 1018.18, 16: 2001.00, 32: 3840.35, 64: 7118.31, 128: 9219.70}, _REPORT,
    ),
    *_table(
        _EC2_AGAIN, "Inception V3", 64, 30.55,
        {2: 58.38, 4: 116.34, 8: 230.75, 16: 448.57, 32: 863.72, 64: 1731.31, 128: 3333.20}, _REPORT,
    ),
    Measured(_MN1, "ResNet-50", 1024, 32, 138, 0.80, "as quoted by Mikami et al. (arXiv:1811.05233); rate: He et al."),
    Measured(_IBM, "ResNet-101", 256, 20, 104, 0.95, "as reported in the press, Aug 2017; rate: Horovod's page"),
)  # fmt: skip


def predicted(line: Measured, spread: float) -> float:
    """The efficiency that the model gives for a published line, with this spread of step times."""
    cluster = line.cluster
    system = System(
        cluster.hosts, cluster.ranks_per_host, cluster.inner, cluster.outer, line.rate,
        cycle_seconds=0.005, fusion_bytes=64 * MIB, straggler_spread=spread,
    )  # fmt: skip
    efficiency = {
        ranks: predict(line.network, system, ranks, line.batch).efficiency for ranks in {line.ranks, line.base}
    }
    return efficiency[line.ranks] / efficiency[line.base]


def leave_one_out(lines: Sequence[Measured], table: np.ndarray) -> np.ndarray:
    """For each line the spread that fits the *other* systems best, [lines].

    Args:
        table: predicted efficiencies, [SPREADS, lines].
    """
    return np.array([best_spread(lines, table, without=line.cluster.name) for line in lines])


def best_spread(lines: Sequence[Measured], table: np.ndarray, without: str = "") -> float:
    """The one of SPREADS with the least squares of the errors; all systems count alike, however many lines they have.

    Args:
        table: predicted efficiencies, [SPREADS, lines]; without: the name of a system that is left out.
    """
    squares = (table - [line.efficiency for line in lines]) ** 2
    names = sorted({line.cluster.name for line in lines} - {without})
    columns = [[place for place, line in enumerate(lines) if line.cluster.name == name] for name in names]
    return float(SPREADS[np.mean([squares[:, members].mean(1) for members in columns], axis=0).argmin()])


def by_system(table: pd.DataFrame) -> pd.DataFrame:
    """Median size of the errors of each system's lines, of the model and of one number for all: a row for each system.

    Args:
        table: columns system, error, error of the mean (in points), as in recorded/leave_one_out.csv.
    """
    return table[["error", "error of the mean"]].abs().groupby(table["system"], sort=False).median()


def compared(table: pd.DataFrame) -> tuple[float, float]:
    """By how many points the model is farther off than one number, and half of the 95 % interval, over systems."""
    medians = by_system(table)
    return statistics.paired(medians["error"], medians["error of the mean"])
