"""The parts of a training step on each rank, from a profile of `course run --where`, and what a change does to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import psutil

from course_lib.ranks import step_shares
from course_lib.ranks.step_shares import StepShares

# Short name → name in `step_shares`, and what it means if this part is the largest.
PARTS = {
    "network": (step_shares.NETWORK, "This rank computes nearly all the time: the network limits it."),
    "metrics": (step_shares.METRICS, "This rank spends its time on metrics."),
    "waiting": (step_shares.WAITING, "This rank has its gradients ready and waits until another rank has them, too."),
    "moving": (step_shares.MOVING, "The bytes of the gradients limit this rank."),
    "input": (step_shares.INPUT, "This rank waits for its next batch."),
    "callbacks": (step_shares.CALLBACKS, "Callbacks take longer than the training."),
    "Horovod": (step_shares.HOROVOD, "Horovod's own threads use this rank's core."),
    "others": (step_shares.OTHERS, "Other programs use this rank's core: close them and run the cell again."),
    "Keras": (step_shares.KERAS, "Keras and TensorFlow take longer to start the operations than to compute them."),
}
SHARED = ["waiting", "moving"]  # parts that are not a rank's own work
CHANGES = ("prefetch", "bfloat16", "fp16", "callbacks")


def load(seconds: float = 1.0) -> str:
    """A sentence on what other programs compute now, measured for some seconds."""
    cores = psutil.cpu_count() or 1
    busy = psutil.cpu_percent(seconds) / 100 * cores
    return f"Before this run, other programs used {busy:.1f} of this machine's {cores} cores."


def milliseconds(ranks: Sequence[StepShares]) -> pd.DataFrame:
    """Milliseconds of a step: a row for each of PARTS, a column for each rank."""
    columns = {
        rank: [step.milliseconds * step.shares[name] for name, _ in PARTS.values()] for rank, step in enumerate(ranks)
    }
    return pd.DataFrame(columns, index=list(PARTS)).rename_axis(columns="rank")


def meaning(part: str) -> str:
    """A sentence on what it means if this part is the largest of a rank's step."""
    return PARTS[part][1]


def after(profile: pd.DataFrame, change: str) -> float:
    """The milliseconds of a step after one of CHANGES: the longest own work of a rank, then the moving bytes."""
    own, moving = profile.drop(SHARED), profile.loc["moving"].max()
    work = own.sum()
    if change == "prefetch":
        work = np.maximum(own.loc["input"], own.drop("input").sum())
    elif change == "bfloat16":
        work = work - own.loc["network"] / 2
    elif change == "callbacks":
        work = work - own.loc["callbacks"]
    return float(work.max() + moving / (2 if change == "fp16" else 1))
