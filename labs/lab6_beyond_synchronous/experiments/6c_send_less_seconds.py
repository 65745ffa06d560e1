"""Seconds a step with compressed gradients, between two hosts at 100 Mbit/s and without a limit.

The hosts are pretended ones (`ranks.namespaces`): network namespaces of this machine, joined by a virtual cable, on
which each may send so much (a token bucket). On each stands one rank with one thread; they share the processors. A
step: the gradient of a dense network on drawn images in NumPy, compression in NumPy, and the exchange by Horovod's
all-reduce or all-gather over Gloo. The ways take turns. Bytes are counted twice: what a rank hands to Horovod, by the
share of it that a ring sends, and what the host's network card has sent, headers and Horovod's own messages included.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook import between_hosts, experiments, plots
from labs.lab6_beyond_synchronous.lessons import figures_6c, horovod_wire

LIMITS = {"100 Mbit/s": "100mbit", "no limit": None}
STEPS, ALONE = 20, 5


def on_each_rank() -> tuple[list[dict], list[float]]:
    """The rows of `time_steps`, and the card's bytes a step by way."""
    import horovod.tensorflow as hvd

    hvd.init()
    seen = []
    for name in horovod_wire.WAYS:
        before = between_hosts.card_bytes()
        horovod_wire.time_steps([name], ALONE - 2)
        seen.append((between_hosts.card_bytes() - before) / ALONE)
    rows = horovod_wire.time_steps(list(horovod_wire.WAYS), STEPS)
    hvd.shutdown()
    return rows, seen


def rows_of(link: str, by_rank: list) -> list[dict]:
    """A row for each way: medians and tenths of the slowest rank's seconds, bytes by rank 0's count and its card."""
    rows = []
    for number, name in enumerate(horovod_wire.WAYS):
        steps = [[row for row in rank if row["name"] == name] for rank, _ in by_rank]
        seconds = np.max([[row["step"] for row in rank] for rank in steps], axis=0)
        low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9])
        computing = np.median([row["computing"] for row in steps[0]])
        compressing = np.median([row["step"] - row["computing"] - row["exchanging"] for row in steps[0]])
        rows.append(
            {
                "link": link,
                "name": name,
                "seconds per step": round(middle, 5),
                "fastest tenth": round(low, 5),
                "slowest tenth": round(high, 5),
                "computing": round(float(computing), 5),
                "compressing": round(float(compressing), 5),
                "bytes": steps[0][0]["bytes"],
                "bytes of the card": round(by_rank[0][1][number]),
            }
        )
    return rows


def main() -> experiments.Recording:
    rows = []
    for link, by_rank in between_hosts.measured(on_each_rank, LIMITS, timeout=200):
        rows += rows_of(link, by_rank)
        print(pd.DataFrame(rows[-len(horovod_wire.WAYS) :]).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    widths, batch = horovod_wire.WIDTHS, horovod_wire.BATCH
    numbers = sum((inputs + 1) * outputs for inputs, outputs in zip(widths, widths[1:]))
    caption = f"{numbers:,} weights, {batch} drawn images a rank · 2 ranks, one thread each · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data=f"drawn images, {batch} on each rank; a network with {numbers:,} weights",
        seeds="0 for the weights, the rank's number for the images",
        hosts="two network namespaces of one machine; they share its processors",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Milliseconds a step by way, a panel for each link."""
    return figures_6c.seconds(table, caption=caption)
