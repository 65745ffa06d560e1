"""Tune the reference of the assessment's profile `large`, and grade honest and naive scripts under this profile.

    COURSE_DATA_DIR=... python benchmarks/large_batch.py tune WAY
    COURSE_DATA_DIR=... python benchmarks/large_batch.py assess SCRIPT [--runs 5]

`tune` trains the network in one process. Its gradients of 2,048 images equal the average over the ranks. It adds rows
to results/large_tuning.csv. As in 3e, each training method tries the same number of learning rates, once each, with
seed 0, on the 45,000 images that the reference trains on. The rate with the best accuracy on the other 5,000 images
runs again with three other seeds; only these runs see the test images. A best rate at the end of its grid is an error.

`assess` grades a script of the corpus `runs` times, as `course assess --profile large` does, and adds rows to
results/large.csv. With `--busy` there is no time limit; other programs on the machine do not change the accuracy.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd

from course_grader.script import calibration, contract, grader
from course_grader.script.evaluator import Evaluator
from course_lib.notebook import experiments, sweep
from course_lib.system.paths import ROOT

RESULTS = Path(__file__).parent / "results"
IMAGES, BATCH, EPOCHS = 45_000, 2048, 3
UPDATES = EPOCHS * (IMAGES // BATCH)
WARM_UP = 0.25  # share of the updates
RATES = {
    "SGD": (0.1, 0.2, 0.4, 0.8, 1.6),
    "LARS": (0.5, 1.0, 2.0, 4.0, 8.0),
    "LAMB": (0.015, 0.03, 0.06, 0.12, 0.24),
}
UNLIMITED_S = 900
EXCLUDED = ("bias", "batch_normalization")
TUNING_SEED, SEEDS = 0, (1, 2, 3)
SCRIPTS = {  # in the grader's corpus
    "reference": "honest/large_reference",
    "linear rule": "broken/large_linear_rule",
    "loop": "honest/large_loop",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("what", choices=("tune", "assess"))
    arguments.add_argument("which", help="a training method, or a script")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--busy", action="store_true", help="do not limit the time: other programs use the machine")
    chosen = arguments.parse_args()
    if chosen.what == "tune":
        tune(chosen.which)
    else:
        assess(chosen.which, chosen.runs, chosen.busy)


def tune(way: str) -> None:
    plan = [{"use": "tuning", "way": way, "rate": rate, "seed": TUNING_SEED} for rate in RATES[way]]
    tuning = sweep.run(trained, plan, report=sweep.print_row)
    (chosen,) = sweep.best(tuning, by=["way"], choose="rate", score="validation").to_dict("records")
    results = sweep.run(trained, [{"use": "result", **chosen, "seed": seed} for seed in SEEDS], report=sweep.print_row)
    add(
        "large_tuning",
        pd.concat([tuning.drop(columns="test"), results], ignore_index=True),
        command="python benchmarks/large_batch.py tune, for each way of training",
        data=f"cifar10, the first {IMAGES:,} training images; validation on the last 5,000, test on the test images",
        seeds=f"{TUNING_SEED} to choose the rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        columns=f"rate: the highest; a cosine to 0 over {UPDATES} updates of {BATCH:,} images, after a warm-up over "
        "the first quarter; took: seconds",
    )
    if chosen["rate"] in (RATES[way][0], RATES[way][-1]):
        raise SystemExit(f"{way} is best at {chosen['rate']}, at the end of its grid: move it.")


def add(table: str, rows: pd.DataFrame, **provenance: object) -> pd.DataFrame:
    """Add rows to a table of the results; the column `took` contains the seconds of each row."""
    path = RESULTS / f"{table}.csv"
    known = [pd.read_csv(path, comment="#")] if path.exists() else []
    whole = pd.concat([*known, rows], ignore_index=True)
    experiments.write_table(path, whole, **provenance, seconds=round(whole["took"].sum()))
    return whole


def trained(use: str, way: str, rate: float, seed: int) -> dict[str, float | None]:
    """Return the accuracies of a training method; a tuning run does not see the test images."""
    began = time.monotonic()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from tensorflow import keras

    from course_lib import data, models, optimizers
    from course_lib.data.splits import Part
    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    makers = {
        "SGD": lambda rate: keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
        "LARS": lambda rate: optimizers.LARS(rate, nesterov=True, trust_coefficient=0.02, exclude=EXCLUDED),
        "LAMB": lambda rate: optimizers.LAMB(rate, exclude=EXCLUDED),
    }
    warm_up = int(WARM_UP * UPDATES)
    schedule = schedules.cosine(rate, UPDATES, warm_up, start=rate / warm_up)
    cifar = data.load("cifar10")
    x, y = cifar.x_train, cifar.y_train
    keras.utils.set_random_seed(seed)
    network = models.assessment_cnn(x.shape[1:], len(cifar.classes))
    model = keras.Sequential([keras.layers.RandomFlip("horizontal"), network])
    model.build((None, *x.shape[1:]))
    run = short_runs.Run(model, makers[way](schedule), Part(x[:IMAGES], y[:IMAGES]), seed=seed)
    loss = run.train(UPDATES, BATCH)
    lost = math.isnan(loss)
    validation, test = Part(x[IMAGES:], y[IMAGES:]), Part(cifar.x_test, cifar.y_test)
    return {
        "validation": None if lost else round(run.score(validation).accuracy, 4),
        "test": None if lost or use == "tuning" else round(run.score(test).accuracy, 4),
        "took": round(time.monotonic() - began, 1),
    }


def assess(name: str, runs: int, busy: bool) -> None:
    sys.path.insert(0, str(ROOT))
    from tests.grader.conftest import complete

    terms, rows = contract.read(), []
    asked = terms.profiles["large"]
    if busy:
        calibration.known = lambda *_: terms.images_per_second
        grader.SERIAL_LIMIT_S = UNLIMITED_S
        terms = replace(terms, profiles={"large": replace(asked, seconds=UNLIMITED_S)})
    with tempfile.TemporaryDirectory() as folder, Evaluator(terms.data, asked.images) as shared:
        grader.Evaluator = lambda *_: contextlib.nullcontext(shared)
        script = Path(folder) / "assessment.py"
        script.write_text(complete(SCRIPTS[name]), encoding="utf-8")
        for _ in range(runs):
            began = time.monotonic()
            outcome = grader.assess(script, profile="large", contract=terms)
            found = {
                "script": name,
                "busy": busy,
                "passed": outcome.passed,
                "points": outcome.score,
                "seconds": outcome.seconds,
                "factor": outcome.factor,
                "train_accuracy": outcome.train_accuracy,
                "test_accuracy": outcome.test_accuracy,
                "lost": " ".join(one.id for one in outcome.verdicts if not one.passed),
                "in_time": next(one.reason for one in outcome.verdicts if one.id == "time"),
                "took": round(time.monotonic() - began, 1),
            }
            rows.append(found)
            sweep.print_row(found, len(rows), runs)
    whole = add(
        "large",
        pd.DataFrame(rows),
        command="python benchmarks/large_batch.py assess, for each script",
        data="cifar10",
        seeds="another one in each run",
        columns=f"of `course assess --profile large`: {asked.seconds:g} s times factor (busy: any), training accuracy "
        f"{asked.train_accuracy:g} and test accuracy {asked.test_accuracy:g} were asked for; took: seconds in all",
    )
    told = whole.groupby("script").agg(
        runs=("passed", "size"), passed=("passed", "sum"), seconds=("seconds", "median"),
        least=("test_accuracy", "min"), most=("test_accuracy", "max"),
    )  # fmt: skip
    print(told.round(3).to_string())


if __name__ == "__main__":
    main()
