"""Scaling efficiencies of published systems, each predicted by a constant that was fitted on the other systems.

What links carry is taken from NCCL (`lessons/published_systems.py`); fitted is how uneven ranks are. Each system is
left out in turn. The mean efficiency of the others, one number for all lines of a system, is what a prediction has to
beat. Nothing is drawn and nothing is measured here: the whole is a computation.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook import experiments
from labs.lab4_communication.lessons import figures_4c
from labs.lab4_communication.lessons import published_systems as systems


def main() -> experiments.Recording:
    table = np.array([[systems.predicted(line, spread) for line in systems.LINES] for spread in systems.SPREADS])
    on_all = systems.best_spread(systems.LINES, table)
    rows = [
        _row("left out", line, spread, _mean(without=line.cluster.name))
        for line, spread in zip(systems.LINES, systems.leave_one_out(systems.LINES, table))
    ]
    rows += [_row("added later", line, on_all, _mean()) for line in systems.LATER]
    recorded = pd.DataFrame(rows)
    return experiments.Recording(
        recorded,
        figures_4c.left_out(recorded),
        data="published efficiencies, with sources in lessons/published_systems.py",
        seeds="none: nothing is drawn",
        fitted_on_all=f"a spread of {on_all:g}",
    )


def _mean(without: str = "") -> float:
    """Published efficiency, in %: the mean over systems of the mean over their lines."""
    lines = pd.DataFrame([(line.cluster.name, 100 * line.efficiency) for line in systems.LINES])
    return float(lines[lines[0] != without].groupby(0)[1].mean().mean())


def _row(test: str, line: systems.Measured, spread: float, mean: float) -> dict:
    published, predicted = 100 * line.efficiency, 100 * systems.predicted(line, spread)
    return {
        "test": test,
        "system": line.cluster.name,
        "network": line.network,
        "ranks": line.ranks,
        "images": line.batch,
        "published": round(published, 1),
        "predicted": round(predicted, 1),
        "error": round(predicted - published, 1),
        "error of the mean": round(mean - published, 1),
        "spread": round(spread, 3),
        "source": line.source,
    }
