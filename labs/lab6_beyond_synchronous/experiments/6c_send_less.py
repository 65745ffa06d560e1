"""What accuracy costs how many bytes: the largest numbers, signs and low ranks, with and without what makes them work.

Two emulated ranks, whose arithmetic is that of real ones to the bit. A network of dense layers is trained for 500
updates, with momentum 0.9. *nothing kept* sends the largest numbers of each rank and forgets the others; *memory* keeps
them. Both add momentum to what arrives. Then one change after the other: *momentum before* adds up velocities in place
of gradients, *masking* sets the velocity of what was sent to 0, *clipping* shortens a gradient of more than 2/√2,
*warm-up* sends more in the first tenth of the updates. *signs* send one bit for each number, *low rank* sends two thin
matrices for each kernel; both keep the rest, and add momentum to what arrives, unless their name says otherwise.

Every way tries the same learning rates at every amount with the tuning seed, and validation data choose. Only the
result seeds use test data. Bytes are what a rank hands over in an update, averaged over the training.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib.notebook import experiments, plots, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6c

RATIOS = (0.1, 0.01, 0.001)
RANKS_OF_MATRICES = (1, 2, 4)
KEPT = ("", ", nothing kept")
RATES = tuple(0.00625 * 2**power for power in range(9))
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)


def settings() -> list[dict]:
    """All ways with their amounts."""
    from labs.lab6_beyond_synchronous.lessons import dense_training

    return [
        {"way": "dense", "amount": 1},
        *({"way": way, "amount": ratio} for ratio in RATIOS for way in dense_training.LADDER),
        *({"way": f"signs{before}{kept}", "amount": 1} for before in ("", ", momentum before") for kept in KEPT),
        {"way": "low rank, nothing kept", "amount": 1},
        *({"way": "low rank", "amount": rank} for rank in RANKS_OF_MATRICES),
    ]


def run(way: str, amount: float, rate: float, seed: int, use: str) -> dict:
    """One training."""
    from course_lib.compression import Here
    from labs.lab6_beyond_synchronous.lessons import dense_training

    wire = Here()
    done = dense_training.train(way, amount, rate, seed, dense_training.UPDATES, wire)
    row = {
        "bytes": round(wire.sent(dense_training.RANKS) / max(1, done.update)),
        "validation accuracy": done.accuracy(done.problem.validation),
    }
    return {**row, "test accuracy": done.accuracy(done.problem.test)} if use == "result" else row


def main(folder: Path) -> None:
    from labs.lab6_beyond_synchronous.lessons import dense_training

    began, plan = time.monotonic(), settings()
    tries = [{**setting, "rate": rate, "seed": TUNING_SEED, "use": "tuning"} for setting in plan for rate in RATES]
    tuning = sweep.run(run, tries, tell=sweep.say)
    chosen = sweep.best(tuning, ["way", "amount"], "rate", "validation accuracy").to_dict("records")
    results = sweep.run(run, plan_of_results(chosen), tell=sweep.say)
    source = dense_training.fashion().name
    experiments.write_table(
        folder / "send_less.csv",
        pd.concat([tuning, results]).round(4),
        command="course reproduce send_less",
        data=f"{source}, first {dense_training.small_network.IMAGES:,} images of 14 × 14 pixels",
        seeds=f"{TUNING_SEED} to choose the learning rate, {SEEDS[0]} to {SEEDS[-1]} for the results",
        ranks=f"{dense_training.RANKS} emulated, {dense_training.BATCH} images each",
        seconds=round(time.monotonic() - began),
    )
    caption = f"{source} · 2 emulated ranks, {dense_training.UPDATES} updates, {len(SEEDS)} seeds"
    for name, figure in draw(pd.concat([tuning, results]), caption).items():
        figure.savefig(folder / f"{name}.png", dpi=150)


def plan_of_results(chosen: list[dict]) -> list[dict]:
    """Every setting with its own rate and every seed."""
    return [{**setting, "seed": seed, "use": "result"} for setting in chosen for seed in SEEDS]


def draw(table: pd.DataFrame, caption: str) -> dict[str, plots.Figure]:
    """Accuracy by the bytes of an update; and the ladder from no memory to deep gradient compression."""
    return {
        "send_less": figures_6c.by_bytes(table, caption=caption),
        "send_less_ladder": figures_6c.ladder(table, caption=caption),
    }
