"""Scripts that lack one unknown step of the conversion, for diagnosis: notebook 2b."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.command.classroom import conversions
from course_lib.notebook.answers import returned
from course_lib.notebook.exercises import Exercise
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.report import Report, Ticker
from course_lib.ranks.evidence import Evidence, RankEvidence
from labs.lab2_horovod.lessons import checks_2b

_PATIENTS = {"A": "broadcast", "B": "data", "C": "optimizer"}
_STEPS = list(conversions.steps())

# Of each patient: what speaks against another step, and what for its own.
_AGAINST = {
    "A": {
        4: "A's ranks differ after the first step already. Without averaging they would still be equal then: the "
        "broadcast comes at the end of that step.",
    },
    "B": {
        3: "a rate is nothing that this table shows. Look at the images: how many are there, and who reads which?",
    },
    "C": {
        5: "C's ranks are equal after the first step: something has made them so.",
        3: "both ranks have the same rate, whichever it is; equal ranks would stay equal.",
    },
}
_FOR = {
    "A": "look at the weights: from when on do the ranks differ?",
    "B": "look at the images: how many are there, and who reads which?",
    "C": "look at the weights: when are the ranks equal, and when not?",
}


def examine(patient: str) -> pd.DataFrame:
    """Run a patient on two ranks, print what they print, and return what was seen of each, a column for each rank."""
    evidence = _seen(patient)
    for rank in evidence.ranks:
        for line in rank.printed:
            print(f"[{rank.rank}] {line.strip()}")
    return pd.DataFrame({f"rank {rank.rank}": _findings(rank) for rank in evidence.ranks})


@functools.cache
def _seen(patient: str) -> Evidence:
    left_out = _PATIENTS[patient]
    with tempfile.TemporaryDirectory(prefix="patient-") as folder, Ticker(f"{patient} runs on two ranks") as ticker:
        script = Path(folder) / f"patient_{patient}.py"
        script.write_text(conversions.converted([step for step in _STEPS if step != left_out]), encoding="utf-8")
        return checks_2b.gather(script, on_event=ticker.follow)


def _findings(rank: RankEvidence) -> dict[str, str]:
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


def check_diagnosis(diagnosis: Callable) -> Report:
    """Report on the learner's `diagnosis`."""
    return _EXERCISE.report(diagnosis)


def diagnosis_points(diagnosis: Callable, maximum: float) -> float:
    """Points between 0 and `maximum`; where some are lost, print the reasons."""
    return _EXERCISE.points(diagnosis, maximum)


def _named(patient: str) -> Callable[[Callable], str]:
    def judge(diagnosis: Callable) -> str:
        answer = returned(diagnosis())
        if not isinstance(answer, dict) or not set(answer) <= set(_PATIENTS):
            raise Wrong('It should return the number of a step for each script, as in {"A": 3, "B": 7, "C": 8}.')
        step = answer.get(patient)
        if step is None:
            raise Wrong(f"{patient} has no diagnosis.")
        if step != _STEPS.index(_PATIENTS[patient]) + 1:
            why = _AGAINST[patient].get(step) if isinstance(step, int) else None
            raise Wrong(f"It is not step {step}: {why or _FOR[patient]}")
        return f"It lacks step {step}."

    return judge


_EXERCISE = Exercise(
    "diagnosis", *(Criterion(patient, f"Script {patient}", 1 / 3, _named(patient)) for patient in _PATIENTS)
)
