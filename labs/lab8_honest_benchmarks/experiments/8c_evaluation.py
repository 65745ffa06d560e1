"""A test set that is cut unevenly among four ranks: what each got right, and what of it only fills its batches.

The assessment's network, trained on four real ranks with four passes over 5,120 images of CIFAR-10. Then 5,000 test
images are dealt out in the order of their classes. Each rank judges as many batches as the one with the most images: it
goes through its share over and over until they are full. The counts don't depend on how fast the machine is.
"""

from __future__ import annotations

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments
from course_lib.ranks import launch
from labs.lab8_honest_benchmarks.lessons import figures_8c

IMAGES, EPOCHS = 5_120, 4
TEST, SHARES = 5_000, (0.42, 0.31, 0.22, 0.05)


def on_a_rank() -> dict:
    """The row of the table that this rank knows."""
    from labs.lab8_honest_benchmarks.lessons import evaluation

    hvd, groups = evaluation.connect()
    trainee = evaluation.Trainee(hvd)
    for _ in range(EPOCHS):
        trainee.train(IMAGES, groups[4])
    trainee.agree()
    shares = evaluation.uneven(trainee.y_test[:TEST], SHARES)
    part = trainee.part(shares[hvd.rank()], -(-max(map(len, shares)) // evaluation.BATCH))
    right = part.labels == part.predicted
    return {
        "rank": hvd.rank(),
        "images": int(part.real.sum()),
        "right": int(right[part.real].sum()),
        "filled": int((~part.real).sum()),
        "filled_right": int(right[~part.real].sum()),
    }


def main() -> experiments.Recording:
    """Record evaluation.csv and evaluation.png."""
    table = pd.DataFrame(launch.call(on_a_rank, 4, env=launch.ONE_THREAD))
    source = data.load("cifar10").name
    return experiments.Recording(
        table,
        figures_8c.counts(table, caption=f"{source} · assessment_cnn · 4 ranks"),
        data=f"{source}, first {IMAGES:,} training and {TEST:,} test images",
        seeds="0",
    )
