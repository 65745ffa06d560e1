"""What a step of the layer-wise optimizers costs beside Keras's own, on ResNet-50's list of parameters.

    python tests/benchmarks/optimizers.py

times compiled update steps of 161 arrays (25.6 million weights), the optimizers in turn, several rounds in one run,
and writes results/optimizers.csv. LARS and LARC are held against SGD with momentum, LAMB and NovoGrad
against Adam, without weight decay and with it on both sides.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pandas as pd
import tensorflow as tf
from tensorflow import keras

from course_lib import experiments
from course_lib.optimizers import LAMB, LARC, LARS, NovoGrad

RESULTS = Path(__file__).parent / "results"
ROUNDS, STEPS = 7, 10
DECAY = 1e-4
PLAIN = {
    "SGD": lambda decay: keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=decay),
    "LARS": lambda decay: LARS(0.1, weight_decay=decay or 0),
    "LARC": lambda decay: LARC(0.1, weight_decay=decay or 0),
    "Adam": lambda decay: keras.optimizers.Adam(0.001, weight_decay=decay),
    "LAMB": lambda decay: LAMB(0.001, weight_decay=decay or 0),
    "NovoGrad": lambda decay: NovoGrad(0.001, weight_decay=decay or 0),
}
OPTIMIZERS = {
    **PLAIN,
    **{f"{name}, decay": lambda _, make=make: make(DECAY) for name, make in PLAIN.items()},
}
RIVAL = {"LARS": "SGD", "LARC": "SGD", "LAMB": "Adam", "NovoGrad": "Adam"}


def rival_of(name: str) -> str | None:
    """Keras's own optimizer with which `name` is compared: with decay, where it has decay."""
    plain, comma, decay = name.partition(",")
    return RIVAL[plain] + comma + decay if plain in RIVAL else None


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


def stepper(make):
    """A compiled function that makes one update of all arrays."""
    random = np.random.default_rng(0)
    shapes = resnet50_shapes()
    assert len(shapes) == 161 and sum(map(np.prod, shapes)) == 25_557_032
    variables = [tf.Variable(random.normal(scale=0.05, size=shape), dtype=tf.float32) for shape in shapes]
    gradients = [tf.constant(random.normal(scale=0.01, size=shape), tf.float32) for shape in shapes]
    optimizer = make(None)
    optimizer.build(variables)

    @tf.function(reduce_retracing=True)
    def step():
        optimizer.apply_gradients(zip(gradients, variables))

    step()
    return step


def main() -> None:
    began = time.perf_counter()
    steps = {name: stepper(make) for name, make in OPTIMIZERS.items()}
    seconds = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                step()
            seconds[name].append((time.perf_counter() - start) / STEPS)
    rows = []
    for name, times in seconds.items():
        rival = rival_of(name)
        ratio = rival and statistics.median(a / b for a, b in zip(times, seconds[rival]))
        rows.append(
            {
                "optimizer": name,
                "ms a step (median)": round(1000 * statistics.median(times), 1),
                "ms (min)": round(1000 * min(times), 1),
                "ms (max)": round(1000 * max(times), 1),
                "against": rival or "",
                "ratio": rival and round(ratio, 2),
            }
        )
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    experiments.write_table(
        RESULTS / "optimizers.csv",
        table,
        command="python tests/benchmarks/optimizers.py",
        data="ResNet-50's parameter shapes, drawn values",
        seeds="0",
        seconds=round(time.perf_counter() - began),
    )


if __name__ == "__main__":
    main()
