"""What an update by a layer-wise optimizer costs beside one by Keras's own, on ResNet-50's list of parameters.

Compiled updates of 161 arrays (25.6 million weights) by given gradients, the optimizers in turn, several rounds in one
run. LARS and LARC are held against SGD with momentum, LAMB and NovoGrad against Adam, without weight decay and with it
on both sides. A ratio is the median over the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from course_lib.notebook import experiments
from labs.lab3_large_batch.lessons import figures_3d

if TYPE_CHECKING:
    from tensorflow import keras

ROUNDS, UPDATES = 7, 10
DECAY = 1e-4
RIVALS = {"LARS": "SGD", "LARC": "SGD", "LAMB": "Adam", "NovoGrad": "Adam"}


def makers() -> dict[str, Callable]:
    """Name → optimizer, from a weight decay."""
    from tensorflow import keras

    from course_lib import optimizers

    return {
        "SGD": lambda decay: keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=decay or None),
        "LARS": lambda decay: optimizers.LARS(0.1, weight_decay=decay),
        "LARC": lambda decay: optimizers.LARC(0.1, weight_decay=decay),
        "Adam": lambda decay: keras.optimizers.Adam(0.001, weight_decay=decay or None),
        "LAMB": lambda decay: optimizers.LAMB(0.001, weight_decay=decay),
        "NovoGrad": lambda decay: optimizers.NovoGrad(0.001, weight_decay=decay),
    }


def resnet50_shapes() -> list[tuple[int, ...]]:
    """The 161 trainable arrays of ResNet-50: convolutions without bias, batch norm, one dense layer."""
    shapes = [(7, 7, 3, 64), (64,), (64,)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolutions = [(1, 1, before, width), (3, 3, width, width), (1, 1, width, 4 * width)]
            if block == 0:
                convolutions.append((1, 1, before, 4 * width))
            for shape in convolutions:
                shapes += [shape, shape[-1:], shape[-1:]]
            before = 4 * width
    return [*shapes, (before, 1000), (1000,)]


def updater(optimizer: keras.optimizers.Optimizer) -> Callable[[], None]:
    """A compiled function that makes one update of all arrays; compiled already."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    shapes = resnet50_shapes()
    variables = [tf.Variable(random.normal(scale=0.05, size=shape), dtype=tf.float32) for shape in shapes]
    gradients = [tf.constant(random.normal(scale=0.01, size=shape), tf.float32) for shape in shapes]
    optimizer.build(variables)

    @tf.function(reduce_retracing=True)
    def update() -> None:
        optimizer.apply_gradients(zip(gradients, variables))

    update()
    return update


def main() -> experiments.Recording:
    updates = {(name, decay): updater(make(decay)) for decay in (0.0, DECAY) for name, make in makers().items()}
    seconds = {key: [] for key in updates}
    for _ in range(ROUNDS):
        for key, update in updates.items():
            start = time.perf_counter()
            for _ in range(UPDATES):
                update()
            seconds[key].append((time.perf_counter() - start) / UPDATES)
    rows = []
    for (name, decay), times in seconds.items():
        rival = RIVALS.get(name)
        ratio = rival and statistics.median(a / b for a, b in zip(times, seconds[rival, decay]))
        rows.append(
            {
                "optimizer": name,
                "decay": decay,
                "ms": round(1000 * statistics.median(times), 1),
                "ms, shortest": round(1000 * min(times), 1),
                "ms, longest": round(1000 * max(times), 1),
                "against": rival,
                "ratio": rival and round(ratio, 2),
            }
        )
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    source = "ResNet-50's 161 arrays of parameters, drawn values"
    return experiments.Recording(
        table,
        figures_3d.cost(table, caption=f"{source} · median of {ROUNDS} rounds · {experiments.machine()}"),
        data=source,
        seeds="0",
    )
