"""The learner's converted script with one step of the conversion undone, for diagnosis: notebook 2b."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.notebook import diagnosis
from course_lib.notebook.report import Ticker
from course_lib.ranks.run_record import RankRecord, RunRecord
from labs.lab2_horovod.lessons import checks_2b

_STEPS = [criterion.id for criterion in checks_2b.STEPS]
_PATIENTS = {"A": "broadcast", "B": "metrics", "C": "optimizer"}
_UNDONE = {  # what runs before the script
    "broadcast": "hvd.callbacks.BroadcastGlobalVariablesCallback = lambda *_, **__: tf.keras.callbacks.Callback()",
    "metrics": "hvd.callbacks.MetricAverageCallback = lambda *_, **__: tf.keras.callbacks.Callback()",
    "optimizer": "hvd.DistributedOptimizer = lambda optimizer, *_, **__: optimizer",
}
_WRAPPER = """import runpy
import horovod.tensorflow.keras as hvd
import tensorflow as tf
{undone}
runpy.run_path({script!r}, run_name="__main__")
"""

# Of each patient: what speaks against another step, and what for its own.
_AGAINST = {
    "A": {
        4: "A's ranks differ after the first step already. Without averaging they would still be equal then: the "
        "broadcast comes at the end of that step.",
        8: "both ranks report the same loss: it is averaged.",
    },
    "B": {
        4: "B's ranks hold the same weights to the end, though each reads other images: their gradients are averaged.",
        6: "B's ranks read different images, each its own part.",
        7: "the last row says who saves.",
    },
    "C": {
        5: "C's ranks are equal after the first step: something has made them so.",
        8: "both ranks report the same loss: it is averaged.",
    },
}
_FOR = {
    "A": "look at the weights: from when on do the ranks differ?",
    "B": "the weights are equal from the first step to the last. What do the ranks tell of one and the same network?",
    "C": "look at the weights: when are the ranks equal, and when not?",
}


def examine(patient: str, script: str | Path = "fashion_mnist.py") -> pd.DataFrame | None:
    """Run the script on two ranks with a step undone, and return what was seen of each, a column for each rank.

    What the ranks print is printed. A script that lacks a step by itself is not run: then a sentence says so.
    """
    lacking = [verdict.title for verdict in checks_2b.verdicts(script) if not verdict.passed]
    if lacking:
        print(f"{Path(script).name} has to be converted first. It lacks: {', '.join(lacking)}.")
        return None
    path = Path(script).absolute()
    record = _seen(patient, path, path.read_bytes())
    for rank in record.ranks:
        for line in rank.printed:
            print(f"[{rank.rank}] {line.strip()}")
    return pd.DataFrame({f"rank {rank.rank}": _findings(rank) for rank in record.ranks})


@functools.cache
def _seen(patient: str, script: Path, _content: bytes) -> RunRecord:
    """A run of the script with this content; one that did not change is not run again."""
    with tempfile.TemporaryDirectory(prefix="patient-") as folder, Ticker(f"{patient} runs on two ranks") as ticker:
        wrapper = Path(folder) / f"patient_{patient}.py"
        undone = _UNDONE[_PATIENTS[patient]]
        wrapper.write_text(_WRAPPER.format(undone=undone, script=str(script)), encoding="utf-8")
        return checks_2b.gather(wrapper, on_event=ticker.follow)


def _findings(rank: RankRecord) -> dict[str, str]:
    logs = (rank.last("epoch") or {}).get("logs", {})
    return {
        "images read in an epoch": f"{len(rank.epoch_examples(0)):,}",
        "brightness of the first three": " ".join(f"{value:.1f}" for value in rank.epoch_examples(0)[:3]),
        "weights after the first step": _fingerprint((rank.first("first-step") or {}).get("digest", "")),
        "weights at the end": _fingerprint(*rank.weights),
        "loss reported at the end": f"{logs.get('loss', np.nan):.4f}",
        "accuracy reported at the end": f"{logs.get('accuracy', np.nan):.4f}",
        "writes the checkpoint": "yes" if rank.records.get("save") else "no",
    }


def _fingerprint(*parts: np.ndarray | str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part.tobytes())
    return digest.hexdigest()[:6]


_EXERCISE = diagnosis.exercise(
    {patient: _STEPS.index(step) + 1 for patient, step in _PATIENTS.items()},
    _AGAINST,
    _FOR,
    lambda _, step: f"It lacks step {step}.",
    case="script",
    mistake="step",
    example='{"A": 3, "B": 6, "C": 7}',
    numbers=range(3, 9),
)
check_diagnosis, diagnosis_points = _EXERCISE.report, _EXERCISE.points
