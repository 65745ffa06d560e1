"""Measure how much each part of the assessment's reference reduces the speed of its network.

    COURSE_DATA_DIR=... python benchmarks/steps.py

Two ranks with one core each train the assessment's network on CIFAR-10 in steps of 128 images. The variants are: the
network alone on one constant batch, without Horovod; the same with Horovod; with the reference's input, which is the
reference; and the reference with one change each. Writes results/steps.csv: images/s of both ranks together over 100
steps, after the steps that `course run --where` profiles, and for each rank the parts of a profiled step in percent.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from course_lib import bfloat16
from course_lib.notebook import experiments
from course_lib.ranks import launch, step_shares

HERE = Path(__file__).parent
BATCH = 128
TIMED_STEPS = 100
VARIANTS = {  # name → what differs from the reference
    "network alone": ["constant", "alone"],
    "constant batch": ["constant"],
    "reference": [],
    "one group": ["groups"],
    "ten steps a call": ["ten"],
    "no metrics": ["no-metrics"],
}


def main() -> None:
    """Run all variants in turn and write the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--repeats", type=int, default=3)
    repeats = arguments.parse_args().repeats
    began, rows = time.time(), []
    precisions = ["float32", *(["mixed_bfloat16"] if bfloat16.instructions() else [])]
    cases = [(precision, variant) for precision in precisions for variant in VARIANTS]
    for repeat in range(repeats):
        for precision, variant in cases[:: 1 if repeat % 2 == 0 else -1]:
            for rank, row in enumerate(measure(precision, variant)):
                rows.append({"precision": precision, "variant": variant, "repeat": repeat, "rank": rank, **row})
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    middle = table.groupby(["precision", "variant"], sort=False).median(numeric_only=True)["images_per_second"]
    print((middle / middle.xs("network alone", level="variant")).round(3))
    experiments.write_table(
        HERE / "results" / "steps.csv",
        table.round(2),
        command=f"python benchmarks/steps.py --repeats {repeats}",
        data="cifar10, 45,000 training images",
        seeds="other first weights in each run",
        seconds=round(time.time() - began),
        bfloat16=bfloat16.instructions() or "no instructions for it",
    )


def measure(precision: str, variant: str) -> list[dict[str, float]]:
    """Return a row for each rank of one run."""
    with tempfile.TemporaryDirectory() as folder:
        options = launch.Options(profile=Path(folder))
        run = launch.start(HERE / "steps.py", ["train", precision, *VARIANTS[variant]], ranks=2, options=options)
        lines = [event.data["text"] for event in run if event.kind == "output"]
        if run.wait().code:
            raise SystemExit(f"{variant} failed:\n" + "\n".join(lines[-20:]))
        speed = float(next(line for line in lines if line.startswith("images/s")).split()[1])
        return [
            {"images_per_second": speed, "milliseconds": rank.milliseconds}
            | {part: 100 * share for part, share in rank.shares.items()}
            for rank in step_shares.read(Path(folder))
        ]


def train(precision: str, *changes: str) -> None:
    """Train on this rank."""
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    from course_lib import data, models

    hvd.init()
    tf.keras.mixed_precision.set_global_policy(precision)
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)
    if "alone" not in changes:
        optimizer = hvd.DistributedOptimizer(optimizer, num_groups=int("groups" in changes))
    model = models.assessment_cnn((32, 32, 3), 10)
    metrics = None if "no-metrics" in changes else ["accuracy"]
    per_call = 10 if "ten" in changes else 1
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics, steps_per_execution=per_call)
    cifar = data.load("cifar10", test=False)
    images, labels = cifar.x_train[:45_000], cifar.y_train[:45_000]
    if "constant" in changes:
        dataset = tf.data.Dataset.from_tensors((images[:BATCH], labels[:BATCH])).repeat()
    else:
        dataset = batches(tf, images, labels, hvd)
    profiled = 90  # including the steps before profiling
    for steps in (profiled, TIMED_STEPS):
        hvd.allreduce(tf.ones(1))  # so that both ranks start at the same time
        start = time.perf_counter()
        model.fit(dataset, steps_per_epoch=steps, verbose=0)
    if hvd.rank() == 0:
        print("images/s", TIMED_STEPS * BATCH * hvd.size() / (time.perf_counter() - start))


def batches(tf, images, labels, hvd):  # noqa: ANN001, ANN201
    """Return the reference's input pipeline."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=1)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH, drop_remainder=True).repeat()
    dataset = dataset.map(lambda images, labels: (tf.image.random_flip_left_right(images), labels)).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


if __name__ == "__main__":
    train(*sys.argv[2:]) if sys.argv[1:2] == ["train"] else main()
