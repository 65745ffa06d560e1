"""Seconds of an update of local SGD by period, between two hosts at 1 Gbit/s and at 100 Mbit/s.

The hosts are pretended ones (`ranks.namespaces`): network namespaces of this machine, joined by a virtual cable, on
which each may send so much (a token bucket). On each stands one rank with one thread; they share the processors. The
bucket holds 32 kB, and a meeting sends 27 kB: after a pause it may pass at once, which saves up to 2 ms of a meeting at
100 Mbit/s. The periods take turns in blocks of 64 updates. A block's mean is one value; its rank 0 is told.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook import between_hosts, experiments, plots
from labs.lab6_beyond_synchronous.lessons import figures_6b, horovod_meetings, small_network

LIMITS = {"1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
PERIODS, BLOCKS, LENGTH = (1, 4, 16, 64), 15, 64


def on_each_rank() -> list[dict]:
    """The rows of `time_updates`."""
    import horovod.tensorflow as hvd

    hvd.init()
    rows = horovod_meetings.time_updates(PERIODS, BLOCKS, LENGTH)
    hvd.shutdown()
    return rows


def rows_of(link: str, blocks: list[dict]) -> list[dict]:
    """A row for each period: medians and tenths of the blocks' seconds."""
    rows = []
    for period, part in pd.DataFrame(blocks).groupby("period"):
        low, middle, high = np.quantile(part["seconds"], [0.1, 0.5, 0.9])
        seconds = {"seconds": middle, "fastest tenth": low, "slowest tenth": high}
        seconds["computing"] = part["computing"].median()
        rows.append({"link": link, "period": period, **{name: round(value, 6) for name, value in seconds.items()}})
    return rows


def main() -> experiments.Recording:
    rows = []
    for link, (first, _) in between_hosts.measured(on_each_rank, LIMITS, timeout=100):
        rows += rows_of(link, first)
        print(pd.DataFrame(rows[-len(PERIODS) :]).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    caption = f"{small_network.SIZE:,} weights · 2 ranks, one thread each · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data=f"16 images on each rank; a network with {small_network.SIZE:,} weights",
        seeds="0 for the weights",
        hosts="two network namespaces of one machine; they share its processors",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Milliseconds an update by period, a line for each link."""
    return figures_6b.seconds(table, caption=caption)
