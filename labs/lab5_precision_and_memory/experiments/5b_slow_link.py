"""Seconds a step with gradients of 32, 16, 8 and 4 bits, between two hosts at 100 Mbit/s, 1 Gbit/s and without limit.

The hosts are pretended ones (`ranks.namespaces`): network namespaces of this machine, joined by a virtual cable, on
which each may send so much (a token bucket). On each stands one rank with one thread; they share the processors. A
step: the gradient of a dense network on drawn images in NumPy, then the all-reduce round the library's ring over TCP,
with factors, casts and packing in NumPy. The formats take turns. Bytes are counted twice: what the rank hands to TCP,
and what the host's network card has sent, headers and Horovod's own messages included.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook import between_hosts, experiments, plots
from labs.lab5_precision_and_memory.lessons import figures_5b, narrow_training, narrow_wire

FORMS = (narrow_wire.FLOAT32, (5, 10), (4, 3), (3, 0))
LIMITS = {"no limit": None, "1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
WIDTHS, BATCH, STEPS, ALONE = (784, 400, 100, 10), 64, 30, 5


def on_each_rank() -> tuple[list[dict], list[float]]:
    """The rows of `time_steps`, and the card's bytes a step by format."""
    import horovod.tensorflow as hvd

    hvd.init()
    me, seen = narrow_wire.connect(), []
    for form in FORMS:
        before = between_hosts.card_bytes()
        narrow_training.time_steps(me, [form], ALONE - 1, BATCH, WIDTHS)
        seen.append((between_hosts.card_bytes() - before) / ALONE)
    rows = narrow_training.time_steps(me, FORMS, STEPS, BATCH, WIDTHS)
    me.close()
    hvd.shutdown()
    return rows, seen


def rows_of(link: str, limit: str | None, by_rank: list) -> list[dict]:
    """A row for each format: medians and tenths of the slowest rank's seconds, bytes by rank 0's count and its card."""
    rows = []
    for number, form in enumerate(FORMS):
        steps = [[row for row in steps if row["form"] == form] for steps, _ in by_rank]
        seconds = np.max([[row["step"] for row in rank] for rank in steps], axis=0)
        low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9])
        sent = steps[0][0]["bytes"]
        rows.append(
            {
                "link": link,
                "exponent": form[0],
                "mantissa": form[1],
                "bits": narrow_wire.bits(form),
                "seconds per step": round(middle, 5),
                "fastest tenth": round(low, 5),
                "slowest tenth": round(high, 5),
                "computing": round(float(np.median([row["computing"] for row in steps[0]])), 5),
                "bytes": sent,
                "bytes of the card": round(by_rank[0][1][number]),
                "cable alone": round(8 * sent / {"1gbit": 1e9, "100mbit": 1e8}[limit], 5) if limit else 0.0,
            }
        )
    return rows


def main() -> experiments.Recording:
    rows = []
    for link, by_rank in between_hosts.measured(on_each_rank, LIMITS, timeout=300):
        rows += rows_of(link, LIMITS[link], by_rank)
        print(pd.DataFrame(rows[-len(FORMS) :]).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    numbers = sum((inputs + 1) * outputs for inputs, outputs in zip(WIDTHS, WIDTHS[1:]))
    caption = f"{numbers:,} weights, {BATCH} drawn images a rank · 2 ranks, one thread each · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data=f"drawn images, {BATCH} on each rank; a network with {numbers:,} weights",
        seeds="0 for the weights, the rank's number for the images",
        hosts="two network namespaces of one machine; they share its processors",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Milliseconds a step by bits, a panel for each link."""
    return figures_5b.slow_link(table, caption)
