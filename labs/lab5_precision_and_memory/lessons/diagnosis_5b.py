"""Notebook 5b: trainings with few bits and one mistake each, to be recognised by their symptoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from course_lib.notebook import diagnosis
from labs.lab5_precision_and_memory.lessons import narrow_training as training
from labs.lab5_precision_and_memory.lessons import narrow_wire as wire
from labs.lab5_precision_and_memory.lessons.narrow_training import Problem, Training

FORM = (3, 1)
MISTAKES = {
    1: "the factor leaves no room for the sum of the ranks",
    2: "one factor for all tensors",
    3: "each rank takes the factor from its own gradient alone",
    4: "the sum is not divided by the factor again",
    5: "negative numbers are ignored when the largest number is searched",
    6: "the factor is no power of two",
}
_PATIENTS = {"A": 3, "B": 4, "C": 1, "D": 2}


@dataclass(frozen=True, eq=False)
class Seen:
    """Of a training: the loss of each update, a table by tensor, and a few lines on the whole."""

    losses: list[float]
    tensors: pd.DataFrame
    whole: pd.Series


def mistaken(mistake: int) -> training.Reduce:
    """The mean round the ring in FORM with a factor for each tensor, with a mistake of MISTAKES; 0 makes none."""
    cast, top = training.casting(FORM), wire.top(FORM)

    def reduce(parts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        size = parts if mistake == 5 else np.abs(parts)
        largest = np.maximum.reduceat(size, ends[:-1], axis=1)  # of each rank and tensor
        if mistake != 3:
            largest = largest.max(0, keepdims=True)
        if mistake == 2:
            largest = np.full_like(largest, largest.max())
        ranks = 1 if mistake == 1 else len(parts)
        factor = top / (ranks * largest) if mistake == 6 else training.factor(largest, ranks, FORM)
        by = np.repeat(factor.astype(np.float32), np.diff(ends), axis=1)
        found = training.ring(parts * by, cast) / (np.float32(1) if mistake == 4 else by)
        return found if mistake == 3 else found[0] if found.ndim == 2 else found

    return reduce


def observe(problem: Problem, batch: int, rate: float, updates: int, reduce: training.Reduce, seed: int = 1) -> Seen:
    """Train, and note what can be seen of it without knowing what `reduce` does.

    The table is of the last update that was made. What should have come out is the exact mean of the ranks' gradients.
    """
    run, losses = Training(problem, batch, rate, updates, seed, reduce), []
    with np.errstate(all="ignore"):
        while run.update < updates and run.finite:
            run.step()
            losses.append(run.loss)
        tensors = _by_tensor(run)
    both = run.weights[:2] if run.weights.ndim == 2 else np.stack([run.weights] * 2)
    whole = {
        "updates made": len(losses),
        "loss of the last batch": round(losses[-1], 3),
        "weights of rank 0 and rank 1 differ by": "?" if not run.finite else f"{np.abs(both[0] - both[1]).max():.2g}",
    }
    return Seen(losses, tensors, pd.Series(whole, name="seen"))


def _by_tensor(run: Training) -> pd.DataFrame:
    ends, mean = run.network.ends, run.mean if run.mean.ndim == 1 else run.mean[0]
    exact = run.parts.astype(np.float64).mean(0)
    rows = {}
    for name, first, last in zip(run.network.names, ends, ends[1:]):
        got, true = mean[first:last], exact[first:last]
        rows[name] = {
            "infinite": f"{np.mean(~np.isfinite(got)):.0%}",
            "0": f"{np.mean(got == 0):.0%}",
            "length": f"{np.linalg.norm(got) / np.linalg.norm(true):.3g}",
        }
    return pd.DataFrame(rows).T


# Of each patient: what speaks against another mistake, and what for its own.
_AGAINST = {
    "A": {
        1: "no number of A is infinite: there was room.",
        2: "A loses no more small numbers than it should, and its ranks have gone apart.",
        4: "A's means are not too long by powers of two.",
        6: "a factor that is no power of two rounds a little more; all ranks would still hold the same weights.",
    },
    "B": {
        1: "no number of B is infinite: there was room.",
        2: "with one factor for all tensors the mean would be too short, not too long.",
        3: "B's ranks hold the same weights to the end.",
        6: "a factor that is no power of two changes a length by a few hundredths.",
    },
    "C": {
        3: "with a factor of its own on each rank the weights of the ranks go apart, long before a sum overflows.",
        5: "the largest positive number is not much smaller than the largest of all, so few sums would overflow.",
    },
    "D": {
        1: "no number of D is infinite: there was room.",
        3: "D's ranks hold the same weights to the end.",
        4: "D's means are not too long.",
    },
}
_FOR = {
    "A": "do all ranks hold the same weights at the end?",
    "B": "how long are the means, tensor by tensor, and which numbers are those lengths?",
    "C": "which numbers become infinite, and how soon?",
    "D": "compare the tensors with each other: which of them lose more than in a healthy training?",
}


def patient(name: str) -> training.Reduce:
    """The reduction of patient "A", "B", "C" or "D"."""
    return mistaken(_PATIENTS[name])


_EXERCISE = diagnosis.exercise(
    _PATIENTS,
    _AGAINST,
    _FOR,
    lambda name, number: f"{name}: {MISTAKES[number]}.",
    case="training",
    mistake="mistake",
    example='{"A": 1, "B": 2, …}',
)
check_diagnosis, diagnosis_points = _EXERCISE.report, _EXERCISE.points
