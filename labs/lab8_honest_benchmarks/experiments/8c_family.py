"""A family of small MBConv networks on two real ranks: accuracy by cost, with averaged weights, with joint batch norm.

Three sizes (`lessons/family.py`), 5,120 images of CIFAR-10, batch 256 on two ranks, 6 epochs (120 updates), LARS with
warm-up and polynomial decay, batch norm over all ranks. Each size tries the same rates with the tuning seed; the last
look at 2,000 validation images chooses, by the plain weights. Where one chooses the lowest or the highest rate, all try
a further one. The best rate runs with five other seeds, and only these see the 5,000 test images. Each epoch is judged
with the plain weights and with their moving average (decay 0.95, an average over about an epoch). The smallest size
does all of it again with batch norm per rank.

`b0`: a training step of EfficientNet-B0 for 224 × 224 on this machine, batch 8, five steps after two that don't count.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, sweep
from course_lib.ranks import launch

IMAGES, BATCH, EPOCHS, DECAY = 5_120, 256, 6, 0.95
RATES = (0.5, 1.0, 2.0)  # to begin with
TUNING_SEED, SEEDS = 0, (1, 2, 3, 4, 5)
KINDS = (("S", "all ranks"), ("M", "all ranks"), ("L", "all ranks"), ("S", "per rank"))
B0_BATCH, B0_STEPS = 8, 5


def runs(plan: list[dict]) -> pd.DataFrame:
    """A row for each epoch of each of these runs, on two ranks."""

    def on_a_rank() -> list[dict]:
        import horovod.tensorflow as hvd

        from labs.lab8_honest_benchmarks.lessons import family

        hvd.init()
        found = []
        for (size, statistics), some in itertools.groupby(plan, lambda row: (row["size"], row["statistics"])):
            training = family.Training(
                hvd, family.SIZES[size], images=IMAGES, batch=BATCH, epochs=EPOCHS, decay=DECAY,
                synchronised=statistics == "all ranks",
            )  # fmt: skip
            for row in some:
                found += [{**row, **epoch} for epoch in training.run(row["rate"], row["seed"])]
                if hvd.rank() == 0:
                    print(found[-1], flush=True)
        return found

    return pd.DataFrame(launch.call(on_a_rank, 2, env={**launch.ONE_THREAD, "HOROVOD_CYCLE_TIME": "0.2"})[0])


def tries(rates: Iterable[float]) -> list[dict]:
    """The runs that tune each kind with these rates."""
    return [
        {"use": "tuning", "size": size, "statistics": statistics, "rate": rate, "seed": TUNING_SEED}
        for size, statistics in KINDS
        for rate in rates
    ]


def best(last: pd.DataFrame) -> pd.DataFrame:
    """The rate that each kind chooses, from the last epoch's rows."""
    return sweep.best(last, ["size", "statistics"], "rate", "plain")


def beyond(tuning: pd.DataFrame) -> list[float]:
    """Rates that are still to be tried, because a kind has chosen the lowest or the highest one."""
    chosen, tried = best(tuning[tuning["epoch"] == EPOCHS])["rate"], tuning["rate"]
    low, high = tried.min(), tried.max()
    return [low / 2] * bool((chosen == low).any()) + [2 * high] * bool((chosen == high).any())


def b0_seconds() -> list[float]:
    """Seconds of training steps of EfficientNet-B0 on this machine."""
    import tensorflow as tf
    from tensorflow import keras

    from course_lib.cost.networks import EFFICIENTNET
    from labs.lab8_honest_benchmarks.lessons import family

    model = family.network(family.Size(EFFICIENTNET, 224))
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    random = np.random.default_rng(0)
    images = tf.constant(random.integers(0, 256, (B0_BATCH, 224, 224, 3)), tf.float32)
    labels = tf.constant(random.integers(0, 1000, B0_BATCH), tf.int32)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    seconds = []
    for _ in range(2 + B0_STEPS):
        began = time.perf_counter()
        step().numpy()
        seconds.append(time.perf_counter() - began)
    return seconds[2:]


def main(folder: Path) -> None:
    """Record family.csv and family.png."""
    began = time.monotonic()
    tuning = runs(tries(RATES))
    while further := beyond(tuning):
        tuning = pd.concat([tuning, runs(tries(further))])
    last = tuning[tuning["epoch"] == EPOCHS]
    results = runs(
        [{"use": "result", **setting, "seed": seed} for setting in best(last).to_dict("records") for seed in SEEDS]
    )
    b0 = [{"use": "b0", "size": "B0", "training_s": round(seconds, 3)} for seconds in b0_seconds()]
    # Rows of the tuning seed are kept for the last epoch, without what the test images say.
    kept = last.drop(columns=[name for name in last if name.endswith("_test")])
    table = pd.concat([kept, results, pd.DataFrame(b0)])
    for name in ("seed", "epoch"):
        table[name] = table[name].astype("Int64")
    source = data.load("cifar10").name
    experiments.write_table(
        folder / "family.csv",
        table,
        command="course reproduce family",
        data=f"{source}, first {IMAGES:,} training images; 2,000 to validate, 5,000 to test",
        seeds=f"{TUNING_SEED} to choose the rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{source} · 2 ranks · batch {BATCH} · 5 seeds · {experiments.machine()}").savefig(
        folder / "family.png", dpi=150
    )


def draw(table: pd.DataFrame, caption: str):
    """Accuracy by multiply-adds, weights and seconds."""
    from labs.lab8_honest_benchmarks.lessons import figures_8c

    return figures_8c.family(table, caption=caption)
