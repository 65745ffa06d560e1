"""Notebook 6c: trainings that send the largest numbers and make one mistake, to be recognised by their symptoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from course_lib import compression
from course_lib.notebook import diagnosis
from labs.lab6_beyond_synchronous.lessons import dense_training

RATIO, RATE, SEED = 0.001, 0.1, 1
MISTAKES = {
    1: "what is not sent is forgotten",
    2: "what was sent stays in the memory, too",
    3: "the largest numbers are chosen with their signs, not by size",
    4: "positions are chosen by the memory alone, before the new gradient is added to it",
    5: "positions are drawn at random",
    6: "only positions in the last tensors of the network are chosen",
}
_PATIENTS = {"A": 5, "B": 1, "C": 2, "D": 3}


@dataclass(frozen=True, eq=False)
class Seen:
    """Of a training: the loss of each update, and a few lines on the whole."""

    losses: list[float]
    whole: pd.Series


class _Mistaken:
    """As `compression.TopK` on emulated ranks, with a mistake of MISTAKES; 0 makes none. Notes what it does."""

    def __init__(self, mistake: int) -> None:
        self.mistake, self.residual, self.last = mistake, np.float32(0), np.zeros(0, int)
        self.random = np.random.default_rng(SEED)
        self.again, self.positive, self.strength, self.waiting = [], [], [], []

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [N, L] → the mean of what is sent, [L]."""
        waiting = self.residual + gradients
        count = max(1, round(RATIO * waiting.shape[1]))
        at = self._positions(waiting, count)
        values = np.take_along_axis(waiting, at, 1)
        self.again.append(np.isin(at[0], self.last).mean())
        self.positive.append((values > 0).mean())
        self.strength.append(np.abs(values).mean() / np.abs(waiting).mean())
        self.waiting.append(np.linalg.norm(waiting[0]) / np.linalg.norm(gradients[0]))
        self.last = at[0]
        if self.mistake != 2:
            np.put_along_axis(waiting, at, 0, 1)
        self.residual = np.float32(0) if self.mistake == 1 else waiting
        return compression.scatter_mean(at, values, waiting.shape[1])

    def _positions(self, waiting: np.ndarray, count: int) -> np.ndarray:
        if self.mistake == 3:
            return np.argsort(-waiting, axis=1)[:, :count]
        if self.mistake == 4:
            return compression.largest(self.residual + np.zeros_like(waiting), count)
        if self.mistake == 5:
            return np.stack([self.random.choice(waiting.shape[1], count, replace=False) for _ in waiting])
        if self.mistake == 6:
            start = waiting.shape[1] - 650
            return start + compression.largest(waiting[:, start:], count)
        return compression.largest(waiting, count)


def observe(mistake: int, updates: int) -> Seen:
    """Train with a mistake of MISTAKES, and note what can be seen of it; 0 makes none."""
    reduce, moved, losses = _Mistaken(mistake), np.zeros(0, bool), []
    run = dense_training.Training(reduce.compressed_mean, RATE, SEED, momentum=0.0, updates=updates)
    moved = np.zeros(len(run.weights), bool)
    with np.errstate(all="ignore"):
        while run.update < updates and np.isfinite(run.weights).all():
            run.step()
            losses.append(run.loss)
            moved |= run.mean != 0
    late = slice(-max(1, updates // 10), None)
    whole = {
        "validation accuracy": f"{run.accuracy(run.problem.validation):.3f}",
        "weights that ever moved": f"{moved.mean():.0%}",
        "length of what waits / of a gradient": f"{np.mean(reduce.waiting[late]):.1f}",
        "mean size of the sent / of all that waits": f"{np.mean(reduce.strength[late]):.1f}",
        "positive among the sent": f"{np.mean(reduce.positive[late]):.0%}",
        "sent in the update before, too": f"{np.mean(reduce.again[late]):.0%}",
    }
    return Seen(losses, pd.Series(whole, name="seen"))


def patients(updates: int) -> dict[str, Seen]:
    """The healthy training, and those of the patients."""
    return {"healthy": observe(0, updates), **{name: observe(number, updates) for name, number in _PATIENTS.items()}}


# Of each patient: what speaks against another mistake, and where to look else.
_AGAINST = {
    "A": {
        1: "in A much is waiting: it has a memory.",
        2: "A hardly ever sends a position twice in a row.",
        3: "A sends as many negative numbers as positive ones.",
        4: "what A sends is no larger than what waits; a choice by the memory alone still finds large numbers.",
        6: "more weights of A have moved than the last tensors have.",
    },
    "B": {
        2: "in B nothing waits but the newest gradient.",
        3: "B sends negative numbers, too.",
        4: "in B nothing waits but the newest gradient: there is no memory to choose by.",
        5: "what B sends is far larger than what waits: it is chosen by size.",
        6: "what B sends is far larger than what waits: it chooses well. What becomes of the rest?",
    },
    "C": {
        1: "in C far more waits than a gradient: it has a memory.",
        3: "C sends negative numbers, too.",
        4: "a position that was sent has little left, and could not be chosen again and again.",
        5: "positions drawn at random would hardly be the same in two updates.",
        6: "what C sends is far larger than what waits: it is chosen by size.",
    },
    "D": {
        1: "in D much is waiting: it has a memory.",
        2: "D hardly ever sends a position twice in a row.",
        4: "a choice by the memory alone finds large negative numbers as well.",
        5: "drawn at random, half of what is sent would be negative.",
        6: "more weights of D have moved than the last tensors have.",
    },
}
_FOR = {
    "A": "how large is what A sends, compared with what waits?",
    "B": "how much waits in B?",
    "C": "which positions does C send?",
    "D": "which numbers does D never send?",
}
_EXERCISE = diagnosis.exercise(
    _PATIENTS,
    _AGAINST,
    _FOR,
    lambda name, number: f"In {name} {MISTAKES[number]}.",
    case="training",
    mistake="mistake",
    example='{"A": 1, "B": 2, …}',
)
check_diagnosis, diagnosis_points = _EXERCISE.report, _EXERCISE.points
