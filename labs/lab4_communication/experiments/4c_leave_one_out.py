"""Scaling efficiencies of published systems, each predicted by constants that were fitted on the other systems.

Four constants for all systems (`cost.systems`): a message's latency, the shares of the bandwidth that software reaches
in a host and between hosts, and the spread of step times. All their combinations on a grid are tried on all lines; then
each system is left out in turn. Nothing is drawn and nothing is measured here: the whole is a computation.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.cost import systems
from course_lib.notebook import experiments
from labs.lab4_communication.lessons import figures_4c


def main(folder: Path) -> None:
    began = time.time()
    tried = systems.grid()
    table = np.array([[systems.predicted(line, constants) for line in systems.LINES] for constants in tried])
    alike = [place for place, constants in enumerate(tried) if constants.inner_share == constants.outer_share]
    chosen = systems.leave_one_out(systems.LINES, tried, table)
    bare = systems.leave_one_out(systems.LINES, tried, table, undecided=0.0)
    with_one = systems.leave_one_out(systems.LINES, [tried[place] for place in alike], table[alike], undecided=0.0)
    rows = []
    for place, line in enumerate(systems.LINES):
        published, constants = 100 * line.efficiency, chosen[place]
        made, bare_made, one_made = (
            100 * table[tried.index(of[place]), place] for of in (chosen, bare, with_one)
        )  # fmt: skip
        rows.append(
            {
                "system": line.cluster.name,
                "network": line.network,
                "ranks": line.ranks,
                "images": line.batch,
                "published": round(published, 1),
                "predicted": round(made, 1),
                "error": round(made - published, 1),
                "error of the bare fit": round(bare_made - published, 1),
                "error with one share": round(one_made - published, 1),
                "latency": constants.latency,
                "inner share": constants.inner_share,
                "outer share": constants.outer_share,
                "spread": constants.spread,
                "source": line.source,
            }
        )
    recorded = pd.DataFrame(rows)
    experiments.write_table(
        folder / "leave_one_out.csv",
        recorded,
        command="course reproduce leave_one_out",
        data="published efficiencies, with sources in course_lib/cost/systems.py",
        seeds="none: nothing is drawn",
        fitted_on_all=systems.calibrated(systems.LINES, tried, table),
        seconds=round(time.time() - began),
    )
    figures_4c.left_out(recorded).savefig(folder / "leave_one_out.png", dpi=150)
