"""Strong and weak scaling of a small network on one machine, also with more ranks than it has cores.

A Wide ResNet of depth 16 on drawn images; every rank has one thread. Each number of ranks trains with Horovod, and as
copies that exchange nothing; what is compared within a launch takes turns. One process with all cores is measured
too. Two launches each, blocks of 8 steps. The figure leaves out the blocks during which other programs used more than
0.2 cores.
"""

from __future__ import annotations

import pandas as pd

from course_lib.notebook import experiments, plots
from course_lib.ranks import launch
from course_lib.system.cores import available_cores
from labs.lab2_horovod.lessons import figures_2f, step_time

LAUNCHES, BLOCKS, IMAGES = 2, 6, 480
CORES = available_cores()
KINDS = {
    f"{kind}{'' if exchange else ' copies'}": (kind, exchange)
    for kind in ("weak", "strong")
    for exchange in (True, False)
}
ALONE, ALL_CORES = "alone", "alone, all cores"


def counts() -> list[int]:
    """Numbers of ranks: 1 to 4; on more cores also powers of two, up to as many as there are."""
    return sorted({1, 2, 3, 4, *(2**k for k in range(7) if 2**k <= CORES)})


def settings(ranks: int) -> dict[str, step_time.Setting]:
    """What so many ranks do in turns."""
    if ranks == 1:
        return {ALONE: step_time.Setting(IMAGES, exchange=False)}
    return {
        name: step_time.Setting(IMAGES if kind == "weak" else IMAGES // ranks, exchange)
        for name, (kind, exchange) in KINDS.items()
    }


def main() -> experiments.Recording:
    tables = []
    all_cores = dict.fromkeys(launch.ONE_THREAD, str(CORES))
    for number in range(LAUNCHES):
        for ranks in (0, *counts()):
            table = step_time.measure(
                settings(max(1, ranks)), max(1, ranks), blocks=BLOCKS, env={} if ranks else all_cores
            )
            if not ranks:
                table["setting"] = ALL_CORES
            table.insert(1, "launch", number + 1)
            tables.append(table)
            told = "one process, all cores" if not ranks else f"{ranks} ranks"
            print(f"launch {number + 1}, {told}: {1e3 * table['seconds'].median():.1f} ms", flush=True)
    table = pd.concat(tables).round({"seconds": 6, "bytes": 0, "others": 2, "startup": 1})
    caption = f"Wide ResNet, depth 16, {IMAGES} drawn images · {LAUNCHES} launches · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data="drawn images",
        seeds="none; the same network in all settings",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Images a second and efficiency by the number of ranks."""
    quiet = step_time.quiet(table)
    alone = quiet.loc[quiet["setting"] == ALONE, "seconds"].median()
    rows = []
    for name, (kind, exchange) in KINDS.items():
        for row in quiet[quiet["setting"].isin([ALONE, name])].itertuples():
            rate = row.ranks * row.batch / row.seconds
            share = rate * alone / IMAGES / row.ranks
            rows.append((kind, exchange, row.ranks, rate, share))
    shown = pd.DataFrame(rows, columns=["scaling", "exchange", "ranks", "rate", "efficiency"])
    whole = IMAGES / quiet.loc[quiet["setting"] == ALL_CORES, "seconds"].median()
    return figures_2f.speed(shown, CORES, best=whole, caption=caption)
