"""Two processes on the same weights: updates a second with a lock and without one, what is lost, and the loss.

*speed*: three problems, each gone through by one process, by two with a lock around each update, and by two without.
*overlap*: the sparse problem with ten fields of 10 to 1,000 values, two processes without a lock; and with 100 values
of which few are frequent (value v in proportion to 1 / (v + 1)). `common` is the number of weights that two random
examples both touch, on average.

Each repeat draws the problem anew. The three ways of a repeat follow one another, on a quiet machine.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook import experiments
from labs.lab6_beyond_synchronous.lessons import figures_6a, hogwild, ratings

PROBLEMS = {  # what draws it, its settings, epochs
    "sparse": (ratings.Sparse.drawn, {"examples": 100_000, "values": 100}, 1),
    "ratings": (ratings.Ratings.drawn, {"examples": 100_000, "users": 500, "items": 300}, 1),
    "dense": (ratings.Dense.drawn, {"examples": 1_000, "size": 20_000}, 10),
}
VALUES = (10, 30, 100, 300, 1_000)
REPEATS = (1, 2, 3, 4, 5, 6, 7)


def main() -> experiments.Recording:
    rows = []
    for repeat in REPEATS:
        for name, (draw, settings, epochs) in PROBLEMS.items():
            problem = draw(**settings, seed=repeat)
            for way in hogwild.WAYS:
                rows.append({"part": "speed", "problem": name, "way": way, "common": np.nan, "repeat": repeat})
                rows[-1] |= run(problem, way, draw, {**settings, "seed": repeat}, epochs)
        for values, popularity in [(values, 0.0) for values in VALUES] + [(100, 1.0)]:
            draw, settings, _ = PROBLEMS["sparse"]
            settings = {**settings, "values": values, "popularity": popularity, "seed": repeat}
            problem = draw(**settings)
            about = {"problem": f"{values} values{', uneven' * (popularity > 0)}", "common": common(problem)}
            rows.append({"part": "overlap", "way": "lock-free", "repeat": repeat, **about})
            rows[-1] |= run(problem, "lock-free", draw, settings, 1)
    table = pd.DataFrame(rows)
    return experiments.Recording(
        table.round({"updates per second": 0, "lost": 7, "loss": 5, "common": 5}),
        figures_6a.hogwild(table, f"drawn problems · {len(REPEATS)} repeats · {experiments.machine()}"),
        data="drawn: see labs/lab6_beyond_synchronous/lessons/ratings.py",
        seeds=f"{REPEATS[0]} to {REPEATS[-1]}",
    )


def run(problem: object, way: str, draw: object, settings: dict, epochs: int) -> dict:
    """One run."""
    outcome = hogwild.run(way, draw, settings, epochs)
    return {
        "updates per second": outcome.per_second, "lost": outcome.lost, "loss": problem.loss(outcome.weights)
    }  # fmt: skip


def common(problem: ratings.Sparse) -> float:
    """How many weights two random examples both touch, on average."""
    touched = np.bincount(problem.features.ravel(), minlength=problem.size)
    return float(((touched / problem.examples) ** 2).sum())
