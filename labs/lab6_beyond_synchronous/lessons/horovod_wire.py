"""Compressed gradients between real ranks: Horovod's all-reduce and all-gather as a `Communicator`, and timed steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from course_lib.compression import Communicator
from labs.lab6_beyond_synchronous.lessons import dense_training
from labs.lab6_beyond_synchronous.lessons.dense_training import Network, Training

WIDTHS, BATCH = (784, 400, 100, 10), 64  # of what is timed
WAYS = {  # name → (way, amount)
    "dense": ("dense", 1),
    "largest 1/10": ("memory", 0.1),
    "largest 1/100": ("memory", 0.01),
    "largest 1/1,000": ("memory", 0.001),
    "signs": ("signs", 1),
    "low rank, 4": ("low rank", 4),
    "low rank, 1": ("low rank", 1),
}


class Horovod(Communicator):
    """Each rank is a process, after `hvd.init()`. `waited` is the seconds spent in exchanges."""

    def __init__(self) -> None:
        import horovod.tensorflow as hvd

        super().__init__(hvd.size())
        self.waited = 0.0

    def _sum(self, parts: np.ndarray) -> np.ndarray:
        import horovod.tensorflow as hvd

        began = time.perf_counter()
        # One name for each size: Horovod then knows the message from the update before.
        found = hvd.allreduce(parts[0], op=hvd.Sum, name=f"sum of {parts.size}").numpy()
        self.waited += time.perf_counter() - began
        return found

    def _all(self, parts: np.ndarray) -> np.ndarray:
        import horovod.tensorflow as hvd

        began = time.perf_counter()
        found = hvd.allgather(parts, name=f"all {parts.dtype} {parts.size}").numpy()
        self.waited += time.perf_counter() - began
        return found


def train(way: str, amount: float, rate: float, seed: int, updates: int) -> tuple[np.ndarray, float]:
    """A training on real ranks, each of which calls this: its weights, and the bytes that a rank sent in all.

    `dense_training.train` computes the same in one process.
    """
    import horovod.tensorflow as hvd

    wire = Horovod()
    compressed, momentum = dense_training.compressor(way, amount, wire, Network(), updates)
    own = slice(hvd.rank(), hvd.rank() + 1)
    run = Training(
        compressed.compressed_mean, rate, seed, momentum=momentum, updates=updates, ranks=hvd.size(), own=own
    )  # fmt: skip
    return run.run().weights, wire.sent(hvd.size())


def time_steps(ways: Sequence[str], steps: int, widths: Sequence[int] = WIDTHS, batch: int = BATCH) -> list[dict]:
    """Time steps on real ranks, the ways in turn; each rank calls this.

    Args:
        ways: names of WAYS. widths: of the network's layers. batch: drawn images on each rank.

    Returns:
        A row for each step and way: name, seconds step, computing (the gradient), exchanging (within Horovod), and the
        bytes that a rank sends.
    """
    import horovod.tensorflow as hvd

    network, random = Network(widths), np.random.default_rng(hvd.rank())
    weights, images = network.draw(0), random.normal(size=(batch, widths[0])).astype(np.float32)
    labels, rows = random.integers(widths[-1], size=batch), []
    wires = {name: Horovod() for name in ways}
    made = {name: dense_training.compressor(*WAYS[name], wires[name], network)[0] for name in ways}
    for step in range(-2, steps):  # the first two are not counted
        for name in ways:
            wire = wires[name]
            wire.reduced = wire.gathered = 0
            wire.waited = 0.0
            hvd.allreduce(np.zeros(1, np.float32), name="begin together")
            began = time.perf_counter()
            _, gradient = network.gradient(weights, images, labels)
            computed = time.perf_counter()
            made[name].compressed_mean(gradient[None])
            seconds = {"step": time.perf_counter() - began, "computing": computed - began, "exchanging": wire.waited}
            if step >= 0:
                rows.append({"name": name, **seconds, "bytes": round(wire.sent(hvd.size()))})
    return rows
