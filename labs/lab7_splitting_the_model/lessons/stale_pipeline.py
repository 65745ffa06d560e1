"""Notebook 7b: training in a pipeline that is never flushed, in one process and yet exactly.

In each tick every stage makes the forward pass of one batch and the backward pass of an earlier one, and takes that
one's update at once. What it computes reaches its neighbour in the next tick. The last stage goes back right after its
own forward pass. (Pétrowski et al. 1993; batches are never split here.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from course_lib.data.splits import Part, Problem
from course_lib.parallel import pipeline

IMAGES = 12_800
BATCH, EPOCHS = 16, 3
SIZES = (196, *[48] * 7, 10)  # eight dense layers
STAGES = (1, 2, 4, 8)


@lru_cache(maxsize=1)
def fashion() -> Problem:
    """The first IMAGES of Fashion-MNIST, averaged to 14 × 14, as float32 [n, 196] of mean 0 and variance 1."""
    return Problem.fashion(IMAGES).downsampled(14)


def batches(part: Part, seed: int, epochs: int = EPOCHS) -> list[Part]:
    """The batches of BATCH images of some epochs, in an order that the seed draws."""
    random, count = np.random.default_rng(seed), len(part.labels) // BATCH
    orders = [random.permutation(len(part.labels))[: count * BATCH].reshape(count, BATCH) for _ in range(epochs)]
    return [Part(part.images[chosen], part.labels[chosen]) for order in orders for chosen in order]


def train(
    layers: pipeline.Layers, data: Sequence[Part], stages: int, rate: float, *, stash: bool = False
) -> pipeline.Layers:
    """The layers after one pass through `data`, cut into `stages` equal parts that never wait for each other.

    One stage makes plain SGD, which is also what every flushed pipeline makes. The rate falls to 0 linearly, by the
    number of the batch whose update is taken.

    Args:
        stash: True keeps for each backward pass the weights of its forward pass; False takes those of the moment.
    """
    each = len(layers) // stages
    parts = pipeline.stages(layers, range(each, len(layers), each), stash=stash)
    there: dict[int, np.ndarray] = {}  # stage → what waits for its forward pass
    back: dict[int, np.ndarray] = {}  # stage → what waits for its backward pass
    for tick in range(len(data) + 2 * (stages - 1)):
        sent_there, sent_back = {}, {}
        for number, stage in enumerate(parts):
            batch = tick - number
            if 0 <= batch < len(data):
                outputs = stage.forward(batch, there[number] if number else data[batch].images)
                if number < stages - 1:
                    sent_there[number + 1] = outputs
                else:
                    _, back[number] = pipeline.cross_entropy(outputs, data[batch].labels)
            batch = tick - 2 * (stages - 1) + number
            if 0 <= batch < len(data):
                sent_back[number - 1] = stage.backward(batch, back[number])
                stage.update(rate * (1 - batch / len(data)))
        there, back = sent_there, sent_back
    return [layer for stage in parts for layer in stage.layers]


def accuracy(layers: pipeline.Layers, part: Part) -> float:
    """The share of `part` that is recognised; 0.1, as by guessing, where a weight is not finite any more."""
    if not all(np.isfinite(numbers).all() for layer in layers for numbers in layer):
        return 0.1
    return float(np.mean(pipeline.Stage(layers, last=True).forward(0, part.images).argmax(1) == part.labels))
