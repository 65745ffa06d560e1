"""Notebook 6b: meetings of which each makes one mistake, to be recognised by what they do to the ranks' weights."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.notebook import diagnosis
from labs.lab6_beyond_synchronous.lessons import gossip

RANKS, LENGTH, PERIOD, SEED = 8, 200, 8, 5
MISTAKES = {
    1: "the ranks never meet",
    2: "all ranks draw the same images",
    3: "all take the weights of rank 0 instead of the mean",
    4: "one rank takes no part in the meetings",
    5: "the sum is divided by one rank too many",
    6: "the ranks meet in fixed pairs instead of all together",
}
_PATIENTS = {"A": 3, "B": 6, "C": 2, "D": 5}


def observe(mistake: int) -> pd.Series:
    """A meeting after PERIOD updates, with a mistake of MISTAKES; 0 makes none. Gradients are drawn."""
    random = np.random.default_rng(SEED)
    start, slope = random.normal(size=LENGTH), 0.05 * random.normal(size=LENGTH)
    noise = random.normal(size=(PERIOD, 1 if mistake == 2 else RANKS, LENGTH))
    before = start - (slope + 0.1 * noise).sum(0) + np.zeros((RANKS, 1))
    matrix = np.full((RANKS, RANKS), 1 / RANKS)
    if mistake == 1:
        matrix = np.eye(RANKS)
    elif mistake == 3:
        matrix = np.eye(RANKS)[np.zeros(RANKS, int)]
    elif mistake == 4:
        matrix = np.zeros((RANKS, RANKS))
        matrix[1:, 1:], matrix[0, 0] = 1 / (RANKS - 1), 1
    elif mistake == 5:
        matrix = matrix * RANKS / (RANKS + 1)
    elif mistake == 6:
        matrix = gossip.fixed_pairs(RANKS)
    after = matrix @ before
    return pd.Series(
        {
            "distance to consensus before": round(gossip.distance(before), 2),
            "distance to consensus after": round(gossip.distance(after), 2),
            "how far the mean of all moved": round(float(np.linalg.norm(after.mean(0) - before.mean(0))), 2),
            "length of the mean after / before": round(
                float(np.linalg.norm(after.mean(0)) / np.linalg.norm(before.mean(0))), 2
            ),
            "different rows after": len(np.unique(after.round(9), axis=0)),
        }
    )


def patients() -> pd.DataFrame:
    """What is seen of the healthy meeting and of the patients, a column for each."""
    return pd.DataFrame({"healthy": observe(0), **{name: observe(mistake) for name, mistake in _PATIENTS.items()}})


_AGAINST = {
    "A": {
        1: "after A's meeting all ranks agree.",
        2: "before A's meeting the ranks differ.",
        4: "after A's meeting all ranks agree.",
        5: "the length of A's weights hardly changes.",
        6: "after A's meeting all ranks agree.",
    },
    "B": {
        1: "B's ranks are closer after the meeting than before it.",
        2: "before B's meeting the ranks differ.",
        3: "after B's meeting the ranks still differ.",
        4: "with one rank left out there would be two different rows.",
        5: "after B's meeting the ranks still differ.",
    },
    "C": {
        1: "C's ranks were alike before they met.",
        3: "the mean of C does not move, and its ranks were alike before.",
        4: "C's ranks were alike before they met.",
        5: "the mean of C does not move.",
        6: "C's ranks were alike before they met.",
    },
    "D": {
        1: "after D's meeting all ranks agree.",
        2: "before D's meeting the ranks differ.",
        3: "one rank's weights would be about as long as the mean of all; D's are shorter.",
        4: "after D's meeting all ranks agree.",
        6: "after D's meeting all ranks agree.",
    },
}
_FOR = {
    "A": "where does the mean of A go?",
    "B": "how many different ranks are left in B?",
    "C": "how far apart are C's ranks before they meet?",
    "D": "what happens to the length of D's weights?",
}
_EXERCISE = diagnosis.exercise(
    _PATIENTS,
    _AGAINST,
    _FOR,
    lambda name, number: f"In {name} {MISTAKES[number]}.",
    case="meeting",
    mistake="mistake",
    example='{"A": 1, "B": 2, …}',
)
check_diagnosis, diagnosis_points = _EXERCISE.report, _EXERCISE.points
