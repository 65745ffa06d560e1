"""The bubble of two real stages by number of micro-batches, beside its prediction, and what a message costs.

A dense network (784, five times 392, 10; ReLU) is cut after two of its six layers, where both stages have nearly the
same number of multiply-adds. Two Horovod ranks with one thread each train it on batches of 2,048 images, with GPipe's
schedule and with one forward, one backward. *idle* is the share of both ranks' time between the first task's start
and the last one's end in which they compute nothing; *predicted* is (k − 1) / (m + k − 1); *from its tasks* is the
same share in a simulation in which each stage takes its own median times and messages take none. *serial* is one rank
with the whole batch. Medians over the steps; the times are those of tasks, without updates. *message* has the seconds
of a message of `micro` numbers by a socket and by Horovod's all-to-all: a message and its answer, halved.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from course_lib.parallel import pipeline, schedules
from course_lib.ranks import launch
from labs.lab7_splitting_the_model.lessons import figures_7b, two_stages

SIZES, END = (784, *[392] * 5, 10), 2
BATCH, STEPS, RATE = 2_048, 17, 0.05
MICRO = (1, 2, 4, 8, 16, 32)
NUMBERS = (1_000, 10_000, 100_000)
SCHEDULES = {"GPipe": schedules.gpipe, "one forward, one backward": schedules.one_forward_one_backward}


def on_each_rank(layers: pipeline.Layers, batch: two_stages.Batch) -> dict:
    """Everything that is measured, as one of the two ranks."""
    found: dict = {"serial": two_stages.serial_seconds(layers, batch, STEPS)}
    for name, make in SCHEDULES.items():
        for micro in MICRO:
            found[name, micro] = two_stages.on_this_rank(pipeline.follow, layers, END, batch, micro, RATE, STEPS, make)[
                "spans"
            ]
    return {**found, "messages": {numbers: two_stages.message_seconds(numbers) for numbers in NUMBERS}}


def rows(zero: dict, one: dict) -> pd.DataFrame:
    """The table, of what both ranks have measured; the first two steps are left out."""
    serial = float(np.median(zero["serial"][2:]))
    found = [{"what": "serial", "micro": 1, "seconds": serial}]
    for name, make in SCHEDULES.items():
        for micro in MICRO:
            steps = [
                schedules.Run(2, tuple(pipeline.gathered(both)))
                for both in zip(zero[name, micro][2:], one[name, micro][2:])
            ]
            spans = [span for step in steps for span in step.spans]
            task = {
                (stage, kind): float(np.median([s.end - s.start for s in spans if (s.stage, s.kind) == (stage, kind)]))
                for stage in (0, 1)
                for kind in "FB"
            }
            simulated = schedules.run(make(2, micro), [task[0, "F"], task[1, "F"]], [task[0, "B"], task[1, "B"]])
            found.append(
                {
                    "what": name,
                    "micro": micro,
                    "seconds": float(np.median([step.seconds for step in steps])),
                    "idle": float(np.median([step.idle for step in steps])),
                    "predicted": 1 / (micro + 1),
                    "from its tasks": simulated.idle,
                    "computing": float(np.median([(1 - step.idle) * 2 * step.seconds for step in steps])),
                }
            )
    for numbers, by_way in zero["messages"].items():
        found += [{"what": f"message by {way}", "micro": numbers, "seconds": s} for way, s in by_way.items()]
    return pd.DataFrame(found)


def main() -> experiments.Recording:
    whole = data.load("fashion_mnist")
    images = (whole.x_train[:BATCH].reshape(BATCH, -1) / 255).astype(np.float32)
    layers, batch = pipeline.first_layers(SIZES, 1), (images, whole.y_train[:BATCH])
    table = rows(*launch.call(lambda: on_each_rank(layers, batch), 2, env=launch.ONE_THREAD))
    caption = f"{whole.name}, batch {BATCH:,} · 2 ranks with one thread each · {experiments.machine()}"
    return experiments.Recording(
        table.round(6),
        figures_7b.bubbles(table, caption),
        data=f"{whole.name}, {BATCH:,} images",
        seeds="1",
    )
