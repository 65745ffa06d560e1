"""What evaluation takes of an epoch on 1, 2 and 4 ranks, by rank 0 alone and by all; and a test set cut unevenly.

The assessment's network on four ranks with one thread each, on two cores: so four ranks compute no faster than two.
`time`: seconds of an epoch of 10,240 CIFAR-10 images and of an evaluation on 2,048 (the proportion of CIFAR-10), the
first 1, 2 or 4 ranks at work, the others waiting; both ways in turns, ten epochs. `share`: after the training, what
each of the four ranks got right of its share of 5,000 test images in the order of their classes, and of the images
that fill up its batches.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from course_lib.ranks import launch

IMAGES, JUDGED, EPOCHS = 10_240, 2_048, 10
TEST, SHARES = 5_000, (0.42, 0.31, 0.22, 0.05)


def on_a_rank() -> list[dict]:
    """Rows of the table that this rank knows."""
    from labs.lab8_honest_benchmarks.lessons import evaluation

    hvd, groups = evaluation.connect()
    trainee = evaluation.Trainee(hvd)
    rows = [{"kind": "time", **row} for row in evaluation.times(trainee, groups, IMAGES, JUDGED, EPOCHS)]
    # The groups of 1 and 2 ranks have trained on without the others: all go on from rank 0's weights.
    for variable in trainee.model.variables:
        variable.assign(hvd.broadcast(variable, 0))
    shares = evaluation.uneven(trainee.y_test[:TEST], SHARES)
    part = trainee.part(shares[hvd.rank()], -(-max(map(len, shares)) // evaluation.BATCH))
    right = part.labels == part.predicted
    row = {"kind": "share", "ranks": hvd.size(), "rank": hvd.rank(), "images": int(part.real.sum())}
    return [*rows, {**row, "right": int(right[part.real].sum()), "filled": int((~part.real).sum()),
                    "filled_right": int(right[~part.real].sum())}]  # fmt: skip


def main(folder: Path) -> None:
    """Record evaluation.csv and evaluation.png."""
    began = time.monotonic()
    by_rank = launch.call(on_a_rank, 4, env=launch.ONE_THREAD)
    table = pd.DataFrame([row for rows in by_rank for row in rows])
    for name in table.columns.difference(["kind", "way", "training_s", "evaluation_s"]):
        table[name] = table[name].astype("Int64")
    source = data.load("cifar10").name
    experiments.write_table(
        folder / "evaluation.csv",
        table,
        command="course reproduce evaluation",
        data=f"{source}, first {IMAGES:,} training and {JUDGED:,} (shares: {TEST:,}) test images",
        seeds="0",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{source} · assessment_cnn · 4 ranks, one thread each · {experiments.machine()}").savefig(
        folder / "evaluation.png", dpi=150
    )


def draw(table: pd.DataFrame, caption: str):
    """The share of evaluation in an epoch, measured and predicted."""
    from labs.lab8_honest_benchmarks.lessons import figures_8c

    return figures_8c.shares(table[table["kind"] == "time"], caption=caption)
