"""One training run thirty times: start, steps and time to a target, alone and beside another program.

Each run is a process of its own: quick_cnn on 10,240 images of Fashion-MNIST, batch 64, SGD with momentum 0.9 and rate
0.05, at most 800 updates, each with another seed. Every 10 updates the accuracy on 1,000 held-back training images is
measured; these looks are not timed. The target is 0.84. `first_often` is the first look at the target among all looks,
`first_seldom` among every sixteenth (once an epoch); `to_target_s` goes between the looks (isotonic regression).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from course_lib import data
from course_lib.notebook import experiments
from course_lib.system.paths import ROOT

IMAGES, LOOKED_AT, TARGET = 10_240, 1000, 0.84
RUNS = {"no": 20, "yes": 10}
EVERY, UPDATES, EPOCH = 10, 800, 160


def run(seed: int) -> dict[str, float]:
    """One run, in this process: called by `main` in a new one."""
    began = time.time()
    from labs.lab8_honest_benchmarks.lessons.timings import Training

    fashion = data.load("fashion_mnist")
    x, y = fashion.x_train, fashion.y_train
    training = Training(x[:IMAGES], y[:IMAGES], seed=seed)
    first = training.step()
    start = time.time() - began
    seconds, accuracy, steps, elapsed = [], [], [first], first
    for update in range(2, UPDATES + 1):
        steps.append(training.step())
        elapsed += steps[-1]
        if update % EVERY == 0:
            seconds.append(elapsed - first)
            accuracy.append(training.accuracy(x[-LOOKED_AT:], y[-LOOKED_AT:]))
    smooth = isotonic_regression(accuracy).x
    seldom = slice(EPOCH // EVERY - 1, None, EPOCH // EVERY)
    return {
        "start_s": round(start, 2),
        "first_step_ms": round(1000 * first, 1),
        "step_ms": round(1000 * float(np.median(steps[1:])), 3),
        "step_p99_ms": round(1000 * float(np.percentile(steps[1:], 99)), 3),
        "to_target_s": reached(seconds, smooth, between=True),
        "first_often_s": reached(seconds, accuracy),
        "first_seldom_s": reached(seconds[seldom], accuracy[seldom]),
    }


def reached(seconds: list[float], accuracy: list[float], between: bool = False) -> float | None:
    """The seconds of the first look at the target; `between` two looks, where the line between them reaches it."""
    found = np.flatnonzero(np.asarray(accuracy) >= TARGET)
    if not len(found):
        return None
    i = int(found[0])
    if between and i:
        return round(float(np.interp(TARGET, accuracy[i - 1 : i + 1], seconds[i - 1 : i + 1])), 3)
    return round(float(seconds[i]), 3)


def main() -> experiments.Recording:
    """Record spread.csv and spread.png."""
    from labs.lab8_honest_benchmarks.lessons import figures_8a, timings

    rows = []
    for beside, runs in RUNS.items():
        with timings.beside_another_program() if beside == "yes" else nullcontext():
            for seed in range(runs):
                words = [sys.executable, __file__, str(seed)]
                told = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
                rows.append({"beside": beside, "seed": seed, **json.loads(told.stdout.splitlines()[-1])})
                print(rows[-1], flush=True)
    source = data.load("fashion_mnist").name
    caption = f"{source} · batch 64 · target {TARGET} · {experiments.machine()}"
    return experiments.Recording(
        pd.DataFrame(rows),
        figures_8a.recorded_spread(rows, caption=caption),
        data=f"{source}, first {IMAGES:,} training images, the last {LOOKED_AT:,} to look at",
        seeds="0 to 19 alone, 0 to 9 beside another program",
    )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(json.dumps(run(int(sys.argv[1]))))
