"""Ghost batch norm, batch norm across two ranks, and decay without bias and batch norm, each on and off.

The network is `models.quick_cnn`, momentum .9, a quarter of the run as warm-up, then cosine decay. Two regimes,
because a large batch can fail in two ways: *few updates* (the slice and the epochs of the course's other large-batch
runs) and *overfitting* (a quarter of the images, nearly all of them learned at the end). Regimes and ranges of
settings were set beforehand by single runs that were judged on validation data.

*ghost*: batch norm over the whole batch against ghost batch norm, and a batch of 64 for comparison. *decay*: ½ λ Σ w²
is added to the loss, over all variables or over the kernels only. Every one of these settings, the batch of 64 too,
tries the same six learning rates with three tuning seeds. Validation data choose, and the best rate runs with five
other seeds (use: "result"). Settings that are compared also run at each other's rates (use: "same rate"), so that each
pair can be compared at equal tuning and at equal rate. And each runs at the rate that the first tuning seed alone
would have chosen (use: "one seed's rate", unless it has run at that rate already), to see what such a choice costs.

*ranks*: two real ranks, each normalising its own half or both together (`hvd.SyncBatchNormalization`), one learning
rate by batch size for both, not tuned; each rank's network is scored, with its own moving averages. Test data are used
by the runs of the result seeds only.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots, sweep
from course_lib.ranks import launch
from labs.lab3_large_batch.lessons import figures_3c

REGIMES = {"few updates": (12_800, 1_280, 8), "overfitting": (3_200, 640, 20)}  # images, batch, epochs
SMALL_BATCH = 64
GHOSTS = {"few updates": (16, 64), "overfitting": (16,)}
RATES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)  # for every setting
DECAYS = (0.01, 0.03)
TUNING_SEEDS, SEEDS = (0, 6, 7), (1, 2, 3, 4, 5)

RANKS, RANK_SEEDS = 2, (1, 2, 3, 4, 5)
RANK_RUNS = {8: (0.01, 200), 640: (0.2, 60)}  # examples of both ranks → learning rate, updates

EXCLUDED = ("bias", "gamma", "beta")
BATCH_NORM_MOMENTUM = 0.8  # of the moving averages


def run(regime: str, batch: int, ghost: int, rate: float, seed: int, use: str, *, decay: float, decayed: str) -> dict:
    """One training; ghost 0 is batch norm; decayed: "all", "kernels", or "none" where decay is 0."""
    from tensorflow import keras

    from course_lib.models import layers
    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    images, _, epochs = REGIMES[regime]
    problem = short_runs.fashion(images)
    model = problem.model(seed, (lambda: layers.GhostBatchNormalization(ghost, BATCH_NORM_MOMENTUM)) if ghost else None)
    updates = images // batch * epochs
    optimizer = keras.optimizers.SGD(schedules.cosine(rate, updates, warm_up=updates // 4), momentum=0.9)
    exclude = EXCLUDED if decayed == "kernels" else ()
    training = short_runs.Run(model, optimizer, problem.train, seed=seed, decay=decay, exclude=exclude)
    training.train(updates, batch)
    parts = {"train": problem.train, "validation": problem.validation}
    if use != "tuning":
        parts["test"] = problem.test
    return {f"{name} accuracy": training.score(part).accuracy for name, part in parts.items()}


def on_ranks() -> list[dict]:
    """On each of the ranks: all runs, one after the other; a row for each."""
    import itertools

    import horovod.tensorflow as hvd
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    from course_lib.optimizers import schedules
    from labs.lab3_large_batch.lessons import short_runs

    hvd.init()
    problem = short_runs.fashion(REGIMES["few updates"][0])
    images, labels = (tf.constant(values) for values in problem.train)

    def train(batch: int, kind: str, seed: int) -> keras.Model:
        number = itertools.count()

        def synchronised() -> keras.layers.Layer:
            return hvd.SyncBatchNormalization(momentum=BATCH_NORM_MOMENTUM, name=f"synchronised_{next(number)}")

        model = problem.model(seed, synchronised if kind == "synchronised" else None)
        rate, updates = RANK_RUNS[batch]
        optimizer = keras.optimizers.SGD(schedules.cosine(rate, updates, warm_up=updates // 4), momentum=0.9)
        variables = model.trainable_variables
        optimizer.build(variables)

        @tf.function
        def step(at: tf.Tensor) -> None:
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                predicted = model(tf.cast(tf.gather(images, at), tf.float32), training=True)
                each = keras.losses.sparse_categorical_crossentropy(tf.gather(labels, at), predicted)
                loss = tf.reduce_mean(each)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        random, each = np.random.default_rng(seed), batch // hvd.size()
        order = np.concatenate([random.permutation(len(labels)) for _ in range(updates * batch // len(labels) + 1)])
        for first in range(hvd.rank() * each, updates * batch, batch):
            step(tf.constant(order[first : first + each], tf.int32))
        return model

    rows = []
    for batch, kind, seed in itertools.product(RANK_RUNS, ("per rank", "synchronised"), RANK_SEEDS):
        model = train(batch, kind, seed)
        same = {"batch": batch, "rate": RANK_RUNS[batch][0], "statistics": kind, "rank": hvd.rank(), "seed": seed}
        rows.append({**same, "test accuracy": short_runs.score(model, problem.test).accuracy})
    return rows


def settings(regime: str) -> list[dict[str, Any]]:
    """What is tuned and scored in a regime: all arguments of `run` but the learning rate, the seed and the use."""
    _, large, _ = REGIMES[regime]
    plain = {"regime": regime, "batch": large, "ghost": 0, "decay": 0.0, "decayed": "none"}
    return [
        {**plain, "batch": SMALL_BATCH},
        plain,
        *({**plain, "ghost": ghost} for ghost in GHOSTS[regime]),
        *({**plain, "decay": decay, "decayed": decayed} for decay in DECAYS for decayed in ("all", "kernels")),
    ]


def with_each_others_rates(chosen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tuned settings, and those that are compared also with the rates of the others, if they differ."""
    plan = [{**row, "use": "result"} for row in chosen]
    for regime, (_, large, _) in REGIMES.items():
        here = [row for row in chosen if row["regime"] == regime and row["batch"] == large]
        groups = [[row for row in here if not row["decay"]]]
        groups += [[row for row in here if not row["ghost"] and row["decay"] in (0.0, decay)] for decay in DECAYS]
        for group in groups:
            for rate in sorted({row["rate"] for row in group}):
                others = [{**row, "rate": rate, "use": "same rate"} for row in group if row["rate"] != rate]
                plan += [row for row in others if row not in plan]
    return plan


def main() -> experiments.Recording:
    every = [setting for regime in REGIMES for setting in settings(regime)]
    tries = [
        {**one, "rate": rate, "seed": seed, "use": "tuning"} for one in every for rate in RATES for seed in TUNING_SEEDS
    ]
    tuning = sweep.run(run, tries, report=sweep.print_row)
    chosen, by_one = (
        sweep.best(rows, list(every[0]), "rate", "validation accuracy").to_dict("records")
        for rows in (tuning, tuning[tuning["seed"] == TUNING_SEEDS[0]])
    )
    plan = with_each_others_rates(chosen)
    known = [{**row, "use": "one seed's rate"} for row in plan]
    plan += [{**row, "use": "one seed's rate"} for row in by_one if {**row, "use": "one seed's rate"} not in known]
    results = sweep.run(run, [{**row, "seed": seed} for row in plan for seed in SEEDS], report=sweep.print_row)
    table = pd.concat([tuning, results], ignore_index=True)
    by_rank = launch.call(on_ranks, RANKS, env={"HOROVOD_CYCLE_TIME": "0.2"})
    ranks = pd.DataFrame([row for rows in by_rank for row in rows])
    parts = ["decay" if decay else "ghost" for decay in table["decay"]]
    table = pd.concat([table.assign(part=parts), ranks.assign(part="ranks", use="result")])
    table = table[["part", "use", *(column for column in table if column not in ("part", "use"))]]
    for column in ("batch", "ghost", "rank"):
        table[column] = table[column].astype("Int64")
    source = data.load("fashion_mnist").name
    return experiments.Recording(
        table.round(4),
        draw(table, f"{source} · {experiments.machine()}"),
        data=f"{source}, {', '.join(f'{name}: {n:,} images' for name, (n, _, _) in REGIMES.items())}",
        seeds=f"{sweep.describe_seeds(TUNING_SEEDS, SEEDS)}; on ranks {RANK_SEEDS[0]} to {RANK_SEEDS[-1]}",
    )


def draw(table: pd.DataFrame, caption: str) -> dict[str, plots.Figure]:
    """The three figures, by the names of their files."""
    return {
        "normalisation": figures_3c.ghosts(table, caption),
        "normalisation_ranks": figures_3c.across_ranks(table, caption),
        "normalisation_decay": figures_3c.decays(table, caption),
    }
