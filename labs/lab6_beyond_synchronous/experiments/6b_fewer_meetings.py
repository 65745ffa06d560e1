"""Updates to a validation accuracy of 0.8 by the number of updates between meetings; elastic averaging and gossip.

Sixteen emulated ranks train a small network, each on batches of 16 images: drawn from all images, or, with classes of
its own, from one sixteenth of the images sorted by class. Every way tries the same learning rates with the tuning seed.
The one that needs the fewest updates is taken; where none reaches the target, the one with the best validation
accuracy after the last update. Gossip meets after each update, with few. A run ends when it has reached the target.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib.notebook import experiments, plots, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6b, local_sgd

PERIODS = (1, 4, 16, 64)
RATES = tuple(0.0125 * 2**power for power in range(8))
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)


def settings() -> list[dict]:
    """All ways."""
    found = []
    for own in (False, True):
        found += [{"way": "local", "period": period, "own classes": own} for period in PERIODS]
        found += [{"way": "elastic", "period": 16, "own classes": own}]
        found += [{"way": way, "period": 1, "own classes": own} for way in ("ring", "random pairs")]
    return [*found, {"way": "elastic, momentum", "period": 16, "own classes": False}]


def run(way: str, period: int, rate: float, seed: int, use: str, **classes: bool) -> dict:
    """One training: updates to the target (missing if never), the last validation accuracy, a score to tune by."""
    training = local_sgd.Training(
        local_sgd.meeting(way, period, seed),
        rate,
        seed,
        own_classes=classes["own classes"],
        momentum=0.9 if "momentum" in way else 0.0,
        updates=local_sgd.UPDATES,
    )
    seen, distance = training.run(local_sgd.TARGET)
    update, accuracy = seen[-1] if seen else (0, 0.1)
    reached = accuracy >= local_sgd.TARGET
    score = 2 - update / local_sgd.UPDATES if reached else accuracy
    if training.update < local_sgd.UPDATES and not reached:
        score = 0.0  # it overflowed
    told = {"updates": update if reached else None, "validation accuracy": accuracy, "distance": distance}
    return {**told, "score": score}


def main(folder: Path) -> None:
    from labs.lab6_beyond_synchronous.lessons import small_network

    began, plan = time.monotonic(), settings()
    tries = [{**one, "rate": rate, "seed": TUNING_SEED, "use": "tuning"} for one in plan for rate in RATES]
    tuning = sweep.run(run, tries, tell=sweep.say)
    chosen = sweep.best(tuning, ["way", "period", "own classes"], "rate", "score").to_dict("records")
    results = sweep.run(run, plan_of_results(chosen), tell=sweep.say)
    source, table = small_network.fashion().name, pd.concat([tuning, results]).round(4)
    experiments.write_table(
        folder / "fewer_meetings.csv",
        table,
        command="course reproduce fewer_meetings",
        data=f"{source}, first {small_network.IMAGES:,} images of 14 × 14 pixels",
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        ranks=f"{local_sgd.RANKS} emulated, {local_sgd.BATCH} images each",
        seconds=round(time.monotonic() - began),
    )
    caption = f"{source} · 16 emulated ranks, {len(SEEDS)} seeds"
    draw(table, caption).savefig(folder / "fewer_meetings.png", dpi=150)


def plan_of_results(chosen: list[dict]) -> list[dict]:
    """Every setting with its own rate and every seed."""
    return [{**setting, "seed": seed, "use": "result"} for setting in chosen for seed in SEEDS]


def draw(table: pd.DataFrame, caption: str) -> plots.Card:
    """Updates to the target by period."""
    return figures_6b.updates_to_target(table, caption=caption)
