"""Checks of notebook 3e: the fair choice of a learning rate, a paired interval, the expected best of a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from course_lib import compare
from course_lib.assess.exercises import Exercise, Exercises, Part

MISSING = float("nan")

# choose


def _runs(*rows: tuple[float, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["rate", "seed", "validation", "test"])


_PLAIN = _runs((0.1, 0, 0.80, 0.79), (0.2, 0, 0.84, 0.80), (0.4, 0, 0.82, 0.85), (0.8, 0, 0.10, 0.10))
# Mean .833 at 0.2; a lucky seed at 0.1, an even run at 0.4; the rows in no order.
_SEEDS = _runs(
    (0.4, 0, 0.81, 0.80), (0.2, 1, 0.79, 0.80), (0.1, 0, 0.88, 0.80), (0.1, 1, 0.75, 0.80), (0.2, 0, 0.86, 0.80),
    (0.4, 1, 0.81, 0.80), (0.1, 2, 0.74, 0.80), (0.2, 2, 0.85, 0.80), (0.4, 2, 0.81, 0.80),
)  # fmt: skip
_DIVERGED = _runs(
    (0.1, 0, 0.80, 0.8), (0.1, 1, 0.81, 0.8), (0.2, 0, 0.83, 0.8), (0.2, 1, 0.83, 0.8), (0.4, 0, 0.87, 0.8),
    (0.4, 1, MISSING, MISSING), (0.8, 0, MISSING, MISSING), (0.8, 1, MISSING, MISSING),
)  # fmt: skip


def _choice(answer: Callable, runs: pd.DataFrame, right: float, wrong: dict[float, str]) -> str:
    """`wrong`: a rate that a mistake leads to → the mistake."""
    given = runs.copy()
    chosen = answer(given)
    if not given.equals(runs):
        return "it changes the table that it is given: work on a copy."
    if chosen is None:
        return "it returns None: is a `return` missing?"
    if isinstance(chosen, (pd.Series, pd.DataFrame, pd.Index, np.ndarray, list, tuple)):
        return f"it returns a {type(chosen).__name__}; one number is asked for, the learning rate."
    if chosen == right:
        return ""
    if chosen in wrong:
        return wrong[chosen]
    if chosen not in set(runs["rate"]):
        return f"it returns {chosen!r}, which is none of the rates {sorted(set(runs['rate']))}: return the rate itself."
    return f"it chooses {chosen:g}; the best mean validation accuracy is that of {right:g}."


def _validation(answer: Callable) -> str:
    return _choice(
        answer,
        _PLAIN,
        0.2,
        {0.4: "0.4 is best on the *test* images: the choice must not look at them.", 0.8: "it chooses the worst rate."},
    )


def _mean(answer: Callable) -> str:
    lucky = "it takes the rate of the single best run, 0.88 by one seed: take the mean over a rate's seeds."
    return _choice(answer, _SEEDS, 0.2, {0.1: lucky, 0.4: "it takes the rate with the best *worst* seed, or the last."})


def _missing(answer: Callable) -> str:
    skipped = "one of the two runs with 0.4 diverged. It counts as 0, and may not be left out of the mean."
    never = "0.8 diverged with every seed, and is chosen nevertheless: a missing score counts as 0."
    return _choice(answer, _DIVERGED, 0.2, {0.4: skipped, 0.8: never})


# interval

_OURS, _THEIRS = (0.853, 0.861, 0.842, 0.850, 0.847), (0.846, 0.849, 0.841, 0.838, 0.844)


def _pair(answer: Callable, ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float] | str:
    given = np.array(ours), np.array(theirs)
    returned = answer(*given, compare.T95[len(ours) - 1])
    if not (np.array_equal(given[0], ours) and np.array_equal(given[1], theirs)):
        return "it changes the scores that it is given."
    if returned is None:
        return "it returns None: is a `return` missing?"
    if np.shape(returned) != (2,):
        return f"it returns {returned!r}; two numbers are asked for: the mean difference and half the width."
    return float(returned[0]), float(returned[1])


def _difference(answer: Callable) -> str:
    got = _pair(answer, _OURS, _THEIRS)
    if isinstance(got, str):
        return got
    right, half = compare.interval(_OURS, _THEIRS)
    if np.isclose(got[0], right):
        return ""
    if np.isclose(got[0], -right):
        return "the difference has the wrong sign: ours − theirs, positive where ours is better."
    if np.allclose(got, (right - half, right + half)):
        return "it returns both ends of the interval; asked for are the mean and half the width."
    return f"the mean of ours − theirs is {right:.4f} in the example; it returns {got[0]:.4f}."


def _width(answer: Callable) -> str:
    got = _pair(answer, _OURS, _THEIRS)
    if isinstance(got, str):
        return got
    _, half = compare.interval(_OURS, _THEIRS)
    if np.isclose(got[1], half):
        return ""
    pairs = len(_OURS)
    apart = np.hypot(np.std(_OURS, ddof=1), np.std(_THEIRS, ddof=1)) / np.sqrt(pairs)
    spread, t = half * np.sqrt(pairs), compare.T95[pairs - 1]
    for wrong, why in (
        (t * apart, "the spreads of both are added up as if they had no seeds in common: take the differences first"),
        (1.96 / t * half, "1.96 is for many pairs; with few of them use the `t` that is given"),
        (half / t, "the factor t is missing: this is one standard error, within which only some two thirds fall"),
        (spread, "that is the spread of single differences; their mean's is smaller by the root of their number"),
        (half / np.sqrt(pairs), "the spread is divided by n in place of √n"),
        (half * np.sqrt((pairs - 1) / pairs), "the variance is divided by n in place of n − 1 (`ddof=1`)"),
        (2 * half, "that is the whole width; half of it is asked for"),
    ):  # fmt: skip
        if np.isclose(got[1], wrong):
            return f"{why}."
    return f"half the width is {half:.5f} in the example; it returns {got[1]:.5f}."


def _cancels(answer: Callable) -> str:
    got = _pair(answer, (0.70, 0.80, 0.90), (0.69, 0.79, 0.89))
    if isinstance(got, str):
        return got
    if got[1] < 1e-6:
        return ""
    return "ours is better by exactly 0.01 with each of three seeds: the interval has no width then."


# expected_best

_SCORES = (0.84, 0.70, 0.10, 0.86, 0.80)


def _number(answer: Callable, scores: Sequence[float], budget: int) -> float | str:
    given = np.array(scores)
    returned = answer(given, budget)
    if not np.array_equal(given, scores):
        return "it sorts or changes the scores that it is given: work on a copy."
    if returned is None:
        return "it returns None: is a `return` missing?"
    if np.ndim(returned) != 0:
        return f"it returns an array of shape {np.shape(returned)}; one number is asked for."
    return float(returned)


def _one(answer: Callable) -> str:
    got = _number(answer, _SCORES, 1)
    if isinstance(got, str) or np.isclose(got, np.mean(_SCORES)):
        return got if isinstance(got, str) else ""
    if np.isclose(got, max(_SCORES)):
        return "who can try one setting gets the mean of all, not the best of them."
    if np.isclose(got, 0):
        return "the probabilities come out as 0: i / N, for i from 0 to N, are N + 1 numbers."
    if np.isclose(got, compare.expected_best(_SCORES, 2)):
        return "the power is one too high: for a budget of n it is n."
    return f"one draw from {_SCORES} has the mean {np.mean(_SCORES):.2f}; it returns {got:.4f}."


def _more(answer: Callable) -> str:
    for budget in (3, 10):
        got = _number(answer, _SCORES, budget)
        if isinstance(got, str):
            return got
        right = compare.expected_best(_SCORES, budget)
        if np.isclose(got, right):
            continue
        told = f"the best of {budget} draws from {_SCORES}: "
        ordered = np.sort(_SCORES)
        steps = np.arange(len(ordered) + 1) / len(ordered)
        for wrong, why in (
            (max(_SCORES), "this is the best of all. With few draws one may miss it."),
            (np.mean(_SCORES), "the mean does not depend on the budget."),
            (np.diff(steps**budget) @ np.array(_SCORES), "the scores must be in order, the lowest first."),
            (np.diff(steps**budget) @ ordered[::-1], "the scores must be in order, the lowest first."),
            (steps[1:] ** budget @ ordered, "(i/N)ⁿ is the chance of *at most* this score; subtract the one before."),
            (compare.expected_best(_SCORES, budget - 1), "this is right for one draw less."),
            (compare.expected_best(_SCORES, budget + 1), "this is right for one draw more."),
            (_without_replacement(budget), "this is right if no setting is drawn twice; here each draw is from all."),
        ):  # fmt: skip
            if np.isclose(got, wrong):
                return told + why
        return told + f"{right:.4f} on average; it returns {got:.4f}."
    return ""


def _without_replacement(budget: int) -> float:
    from itertools import combinations

    if budget > len(_SCORES):
        return MISSING
    return float(np.mean([max(drawn) for drawn in combinations(_SCORES, budget)]))


def _equal(answer: Callable) -> str:
    got = _number(answer, (0.5, 0.5, 0.5), 4)
    if isinstance(got, str) or np.isclose(got, 0.5):
        return got if isinstance(got, str) else ""
    return f"if all scores are 0.5, so is the best of 4; it returns {got:.4f}."


EXERCISES = Exercises(
    Exercise(
        "choose",
        (
            Part("On validation data", 0.4, _validation),
            Part("The mean over the seeds", 0.3, _mean),
            Part("A diverged run counts", 0.3, _missing),
        ),
    ),
    Exercise(
        "interval",
        (
            Part("The mean difference", 0.3, _difference),
            Part("Half the width", 0.5, _width),
            Part("What the seed does to both cancels", 0.2, _cancels),
        ),
    ),
    Exercise(
        "expected_best",
        (
            Part("A budget of one", 0.3, _one),
            Part("Larger budgets", 0.5, _more),
            Part("Equal scores", 0.2, _equal),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
