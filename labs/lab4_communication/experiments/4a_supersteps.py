"""The parameters of the BSP model on two ranks of one machine: fitted on three sizes, and tested on others.

Each superstep computes, sends and waits; sizes take turns. g and l are fitted on supersteps of three sizes, α and β on
bare messages. Both models then predict a fourth size, in one write and in sixteen.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.cost import allreduce
from course_lib.notebook import experiments
from course_lib.ranks import launch
from labs.lab4_communication.lessons import message_times

SIZES = 4 ** np.arange(1, 13)
SWEEPS = 200


def measured() -> tuple:
    import horovod.tensorflow as hvd

    hvd.init()
    return message_times.messages(SIZES, SWEEPS // 5), message_times.supersteps(message_times.STEPS, SWEEPS)


def main(folder: Path) -> None:
    began = time.time()
    ranks = launch.call(measured, 2)
    bare = ranks[0][0]
    link = allreduce.fit(2, 2 * SIZES, 2 * np.median(bare, 0))
    computing = max(float(np.median(alone)) for _, (alone, _) in ranks)
    table = message_times.compare(computing, np.median(ranks[0][1][1], 0), link)
    experiments.write_table(
        folder / "supersteps.csv",
        pd.DataFrame(table).round(1),
        command="course reproduce supersteps",
        data="bytes of zeros between two ranks of one machine",
        seeds="none: nothing is drawn",
        alpha_us=round(1e6 * link.alpha, 1),
        seconds=round(time.time() - began),
    )
