"""Measurements on which the six reports of 8b stand: waits and rates of two networks, their steps, tuned rates.

Two networks: quick_cnn ("theirs") and the same without batch norm ("ours"). `serving`: 1,000 calls for each size of
batch, 99th percentile in ms and images a second. `step`: the median of 200 steps with batch 64 in ms, ten runs each in
turns. `cores`: images a second in training of both on one core and of theirs on two, five runs each in turns, in a
process of its own. `rate`: steps until the loss of a softmax regression on 1,000 images is 0.7 (at most 500), by rate,
with momentum 0.9 (ours) and without (theirs).
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from course_lib.system.paths import ROOT

if TYPE_CHECKING:
    from labs.lab8_honest_benchmarks.lessons.timings import Training

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
CALLS, STEPS, RUNS, CORE_RUNS = 1000, 200, 10, 5
IMAGES = 10_240


def training(side: str) -> Training:
    """The network of one side, on its images."""
    from tensorflow.keras import layers

    from labs.lab8_honest_benchmarks.lessons.timings import Training

    fashion = data.load("fashion_mnist")
    normalise = None if side == "theirs" else (lambda: layers.Activation("linear"))
    return Training(fashion.x_train[:IMAGES], fashion.y_train[:IMAGES], normalise=normalise)


def main() -> experiments.Recording:
    """Record reports.csv, and reports.png of its first part."""
    from labs.lab8_honest_benchmarks.lessons import figures_8b, timings, tricks

    rows = []

    def keep(kind: str, side: str, setting: float, run: int, **values: float) -> None:
        rows.append({"kind": kind, "side": side, "setting": setting, "run": run, **values})
        print(rows[-1], flush=True)

    fashion = data.load("fashion_mnist")
    both = {side: training(side) for side in ("ours", "theirs")}
    for side, one in both.items():
        for batch in BATCHES:
            seconds = timings.latencies(one.model, fashion.x_train[:IMAGES], batch, CALLS)
            keep("serving", side, batch, 0, ms=round(1000 * float(np.percentile(seconds, 99)), 3),
                 images_per_s=round(batch / float(np.mean(seconds)), 1))  # fmt: skip
        one.steps(20)
    for run in range(RUNS):
        for side in ("ours", "theirs")[:: 1 if run % 2 else -1]:
            keep("step", side, 64, run, ms=round(1000 * float(np.median(both[side].steps(STEPS))), 3))
    for run in range(CORE_RUNS):
        for side, cores in (("ours", 1), ("theirs", 1), ("theirs", 2)):
            words = [sys.executable, __file__, side, str(cores)]
            told = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
            keep("cores", side, cores, run, images_per_s=round(float(told.stdout.split()[-1]), 1))
    x, y = tricks.features(fashion.x_train[:1000]), fashion.y_train[:1000]
    for side, momentum in (("ours", 0.9), ("theirs", 0.0)):
        for rate in RATES:
            keep("rate", side, rate, 0, steps=tricks.steps_to(0.7, x, y, rate, momentum, most=500))
    table = pd.DataFrame(rows)
    return experiments.Recording(
        table,
        figures_8b.bound(table[table["kind"] == "serving"], figures_8b.bounds(table)[2]),
        data=f"{fashion.name}, first {IMAGES:,} training images; rate: first 1,000",
        seeds="0",
    )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
    one = training(sys.argv[1])
    one.steps(20)
    print(64 / float(np.median(one.steps(STEPS))))
