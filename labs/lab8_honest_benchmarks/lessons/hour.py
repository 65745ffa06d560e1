"""EfficientNet on 1,024 TPU cores: 83 % in 1 hour and 4 minutes (arXiv:2011.00071), recomputed with 4c's model.

What its abstract says: B0 takes 23 hours on a TPU v2-8; batch 65,536 on 1,024 TPU-v3 cores; 83 % top-1 in 1 h 4 min.
What it doesn't say is taken from elsewhere, named at each line.
"""

from __future__ import annotations

import numpy as np

from course_lib.cost import Link, Prediction, System, networks, predict, published
from course_lib.cost.cluster import all_reduce
from course_lib.cost.networks import EFFICIENTNET, Tensor

MINUTES, CORES, BATCH = 64.0, 1024, 65_536  # abstract
B0_HOURS, B0_CORES = 23, 8  # abstract
EPOCHS = 350  # EfficientNet's own program (tensorflow/tpu, models/official/efficientnet/main.py)
JUDGED = 50_000  # images of ImageNet's validation set
V2, V3 = 45e12 / 2, 123e12 / 2  # FLOP/s of a core at most, in bfloat16: 2 cores a chip (Google's pages on its TPUs)
LINK = 340e12 / 1024 / 4  # bytes/s: 340 TB/s of all-reduce for 1,024 chips (the same pages), 4 links each
ALPHA = 1e-6  # seconds for a message, assumed: a neighbour in a torus, without a host in between
GRID = 32  # 32 × 32 cores, as if each were a chip of its own

SIZES = {"B4": (1.4, 1.8, 380), "B5": (1.6, 2.2, 456)}  # width, depth, side (the same program)
TOP_1 = {"B4": 82.9, "B5": 83.6}  # % (arXiv:1905.11946, table 2)


def network(name: str) -> list[Tensor]:
    """The tensors of EfficientNet B0, B4 or B5."""
    if name == "B0":
        return networks.efficientnet_b0()
    width, depth, side = SIZES[name]
    return EFFICIENTNET.scaled(width, depth).tensors(side)


def rate(name: str) -> float:
    """Images/s that one v3 core trains on: that of B0 on a v2 core, by multiply-adds and by the cores' peaks."""
    b0 = EPOCHS * published.IMAGES / (B0_HOURS * 3600 * B0_CORES)
    work = published.operations(network("B0")) / published.operations(network(name))
    return b0 * work * V3 / V2


def torus(name: str) -> System:
    """The 1,024 cores in rows and columns; no core is late."""
    link = Link(ALPHA, LINK)
    return System(
        GRID, CORES // GRID, link, link, rate(name), cycle_seconds=0.0, straggler_spread=0.0, algorithm="two levels"
    )


def step(name: str) -> Prediction:
    """A training step on 1,024 cores, all-reduced along the rows and the columns of the torus."""
    return predict(network(name), torus(name), CORES, BATCH / CORES)


def norm_seconds(name: str, cores: int) -> float:
    """What batch norm over groups of so many cores sends in a step: per layer and channel two numbers, there and back.

    None of it is hidden: the next layer waits for it.
    """
    channels = [tensor.elements for tensor in network(name) if tensor.name.endswith("/gamma")]
    return 2 * float(sum(all_reduce(torus(name), cores, 4.0 * np.array([2 * number]))[0] for number in channels))


def evaluation_seconds(name: str, cores: int) -> float:
    """Of all validation images on so many cores: the forward pass is a third of a training step's work."""
    return JUDGED / (3 * rate(name) * cores)
