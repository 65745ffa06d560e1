"""α and β of Horovod's all-reduces on one machine, for two and four ranks and three cycle times, beside bare messages.

Each size from 4 bytes to 16 MB is reduced 40 times, in turns, with no fusion; the table has the quartiles. α and β are
those of the ring's formula, by least squares on the relative errors of the medians.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.cost import allreduce
from course_lib.notebook import experiments
from course_lib.ranks import launch
from labs.lab4_communication.lessons import figures_4a, message_times

SIZES = 4 ** np.arange(1, 13)
SWEEPS = 40
CASES = ((2, 0.1), (2, 1), (2, 10), (4, 0.1))  # ranks, cycle time in ms


def reduced() -> np.ndarray:
    import horovod.tensorflow as hvd

    hvd.init()
    return message_times.all_reduces(SIZES, SWEEPS)


def sent() -> np.ndarray:
    import horovod.tensorflow as hvd

    hvd.init()
    return message_times.messages(SIZES, SWEEPS)


def rows(what: str, seconds: np.ndarray, link: allreduce.Link, fitted: np.ndarray) -> list[dict]:
    low, median, high = np.percentile(seconds, [25, 50, 75], axis=0)
    return [
        {
            "what": what,
            "bytes": int(SIZES[i]),
            "median seconds": f"{median[i]:.4g}",
            "lower quartile": f"{low[i]:.4g}",
            "upper quartile": f"{high[i]:.4g}",
            "fitted seconds": f"{fitted[i]:.4g}",
            "alpha": f"{link.alpha:.4g}",
            "beta": f"{link.beta:.4g}",
        }
        for i in range(len(SIZES))
    ]


def main() -> experiments.Recording:
    table, lines = [], {}
    for ranks, cycle in CASES:
        what = f"{ranks} ranks, cycle {cycle} ms"
        env = {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CYCLE_TIME": str(cycle)}
        seconds = launch.call(reduced, ranks, env=env)[0]
        link = allreduce.fit(ranks, SIZES, np.median(seconds, 0))
        lines[what] = (seconds, allreduce.ring(ranks, SIZES, link))
        table += rows(what, seconds, link, lines[what][1])
        print(f"{what}: α = {1e6 * link.alpha:.0f} µs, 1/β = {1e-9 * link.bandwidth:.2f} GB/s", flush=True)
    seconds = launch.call(sent, 2)[0]
    link = allreduce.fit(2, 2 * SIZES, 2 * np.median(seconds, 0))  # half a ring with tensors of twice the size
    lines["bare TCP message"] = (seconds, link.seconds(SIZES))
    table += rows("bare TCP message", seconds, link, link.seconds(SIZES))
    caption = f"tensors of ones, float32 · {SWEEPS} sweeps · {experiments.machine()}"
    return experiments.Recording(
        pd.DataFrame(table),
        figures_4a.measured(lines, SIZES, caption=caption),
        data="tensors of ones, float32",
        seeds="none: nothing is drawn",
    )
