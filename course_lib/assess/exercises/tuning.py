"""Checks of notebook 2c: what a timeline tells, and equal numbers of steps. Those of its scaling are in scaling.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from course_lib.assess.exercises import Exercise, Exercises, Part, scaling

# covered

_ROW = ([0.0, 2.0, 5.0], [1.0, 2.0, 0.5])  # start, seconds: one after the other, with gaps
_OVERLAP = ([0.0, 1.0, 6.0], [3.0, 3.0, 1.0])
_NESTED = ([0.0, 1.0, 4.0], [5.0, 1.0, 2.0])  # the second ends while the first goes on
_MIXED = ([6.0, 0.0, 1.0], [1.0, 3.0, 3.0])


def _right(start: Sequence[float], seconds: Sequence[float]) -> float:
    """Counted on a grid of tenths."""
    grid = np.arange(0.05, 20, 0.1)
    return float(0.1 * sum(any(a < t < a + s for a, s in zip(start, seconds)) for t in grid))


def _length(answer: Callable, bars: tuple[Sequence[float], Sequence[float]]) -> tuple[float, str]:
    start, seconds = np.array(bars[0]), np.array(bars[1])
    result = answer(start, seconds)
    if not (np.array_equal(start, bars[0]) and np.array_equal(seconds, bars[1])):
        return 0.0, "it changes the arrays that it is given: work on a copy."
    if result is None:
        return 0.0, "it returns nothing: return the number of seconds."
    if np.ndim(result) != 0:
        return 0.0, f"it returns an array of shape {np.shape(result)}; it should be one number of seconds."
    return float(result), ""


def _covers(bars: tuple[Sequence[float], Sequence[float]]) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        start, seconds = (np.array(values) for values in bars)
        shown = ", ".join(f"{a:g} to {a + s:g}" for a, s in zip(start, seconds)) or "none"
        got, reason = _length(answer, bars)
        told = f"bars {shown}: "
        if reason:
            return told + reason
        right = _right(start, seconds)
        if np.isclose(got, right):
            return ""
        for wrong, why in (
            (right * 1000, "that is milliseconds; the table has seconds."),
            (seconds.sum(), "where bars overlap, the time counts twice: count only what no earlier bar has covered."),
            (np.max(start + seconds, initial=0) - np.min(start, initial=9e9),
             "the gaps, in which there is no bar, are counted too."),
            (_without_memory(start, seconds), "remember the latest end so far: a bar may go on behind the next one."),
        ):  # fmt: skip
            if np.isclose(got, wrong):
                return f"{told}{got:g} s where {right:g} s are covered: {why}"
        if list(start) != sorted(start) and np.isclose(_length(answer, _sorted(bars))[0], right):
            return f"{told}right only if they come in order of their starts: sort them first."
        return f"{told}{got:g} s where {right:g} s are covered."

    return trial


def _sorted(bars: tuple[Sequence[float], Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(bars[0])
    return np.array(bars[0])[order], np.array(bars[1])[order]


def _without_memory(start: np.ndarray, seconds: np.ndarray) -> float:
    """The answer that knows the end of the bar before, where it should know the latest end."""
    total, end = 0.0, -np.inf
    for a, s in zip(*_sorted((start, seconds))):
        total += max(0.0, a + s - max(a, end))
        end = a + s
    return total


# lateness


def _arrivals() -> pd.DataFrame:
    """Three ranks, two tensors, three steps, in a shuffled order. Rank 2 comes late, rank 1 first."""
    random = np.random.default_rng(3)
    rows = []
    for step in range(3):
        for number, tensor in enumerate(("kernel", "bias")):
            base = 10 * step + number
            for rank, late in enumerate((0.25, 0.0, 1.0)):
                rows.append((tensor, step, rank, base + late + 0.5 * rank * (step == 2)))
    table = pd.DataFrame(rows, columns=["tensor", "step", "rank", "start"])
    return table.iloc[random.permutation(len(table))].reset_index(drop=True)


def _by_rank(result: Any) -> tuple[list[float] | None, str]:
    if result is None:
        return None, "it returns nothing: return the mean lateness of each rank."
    try:
        return [float(result[rank]) for rank in range(3)], ""
    except (KeyError, IndexError, TypeError, ValueError):
        what = f"an array of shape {np.shape(result)}" if np.ndim(result) else repr(result)
        return None, f"result[rank] should be the mean lateness of that rank, but the result is {what}."


def _late(answer: Callable) -> str:
    table = _arrivals()
    given = table.copy()
    got, reason = _by_rank(answer(given))
    if reason:
        return reason
    right = _mean_after(table, ["tensor", "step"])
    if np.allclose(got, right):
        return ""
    after_zero = table["start"] - table.set_index(["tensor", "step", "rank"])["start"].xs(0, level="rank").reindex(
        pd.MultiIndex.from_frame(table[["tensor", "step"]])
    ).to_numpy()  # fmt: skip
    for wrong, why in (
        ([1000 * value for value in right], "that is milliseconds; return seconds."),
        ([-value for value in right], "the sign is wrong: who comes later has the larger number."),
        (_mean_after(table, []), "it counts from the very first arrival of all: group by tensor and step."),
        (_mean_after(table, ["step"]), "it counts from the step's first arrival of any tensor. Group by tensor too."),
        (_mean_after(table, ["tensor"]), "it counts from the tensor's first arrival in any step: group by step too."),
        (_mean_after(table, ["rank"]), "it compares each rank with itself: the first of all ranks is what counts."),
        (_mean_after(table, ["tensor", "step"], "sum"), "that is the sum over tensors and steps; return the mean."),
        (_mean_after(table, ["tensor", "step"], "max"), "that is the worst case; return the mean."),
        (list(after_zero.groupby(table["rank"]).mean()), "it counts from rank 0; the first may be another rank."),
    ):  # fmt: skip
        if np.allclose(got, wrong):
            return why
    said, expected = (", ".join(f"{value:.3g}" for value in values) for values in (got, right))
    return f"three ranks are late by {expected} s on average; it says {said}."


def _mean_after(table: pd.DataFrame, keys: list[str], how: str = "mean") -> list[float]:
    first = table.groupby(keys)["start"].transform("min") if keys else table["start"].min()
    return list((table["start"] - first).groupby(table["rank"]).agg(how))


def _keeps_table(answer: Callable) -> str:
    table = _arrivals()
    given = table.copy()
    got, reason = _by_rank(answer(given))
    if reason:
        return reason
    if list(given.columns) != list(table.columns) or not given.equals(table):
        return "it changes the table that it is given: add no columns to it, work on a copy."
    if min(got) < 0:
        return "nobody can come before the first: no lateness is below 0."
    return ""


# steps_per_epoch

_CASES = ((1279, 2, 32), (2561, 2, 64), (100, 3, 10), (60000, 4, 64), (7, 4, 2), (5, 2, 8))


def _three(answer: Callable, case: tuple[int, int, int]) -> tuple[Any, str]:
    result = answer(*case)
    if not isinstance(result, (tuple, list)) or len(result) != 3:
        return None, f"it returns {result!r}; it should be (batches, steps, left)."
    return result, ""


def _told(case: tuple[int, int, int]) -> str:
    return f"{case[0]:,} examples, {case[1]} ranks, batches of {case[2]}: "


def _shares(case: tuple[int, int, int]) -> list[int]:
    examples, ranks, _ = case
    return [len(range(rank, examples, ranks)) for rank in range(ranks)]


def _batches(answer: Callable) -> str:
    for case in _CASES:
        result, reason = _three(answer, case)
        if reason:
            return _told(case) + reason
        if np.shape(result[0]) != (case[1],):
            return f"{_told(case)}`batches` should have a number for each rank; it is {result[0]!r}."
        got = [float(value) for value in result[0]]
        shares, batch = _shares(case), case[2]
        right = [-(-share // batch) for share in shares]
        if got == right:
            continue
        for wrong, why in (
            (
                [-(-(case[0] // case[1]) // batch)] * case[1],
                "the examples don't divide: the first ranks have one more.",
            ),
            ([share // batch for share in shares], "the last, smaller batch of a rank counts too."),
            ([share / batch for share in shares], "a part of a batch is a batch: round up."),
            ([share // batch + 1 for share in shares], "where the batch size divides, there is no further batch."),
            (shares, "these are examples; divide by the batch size."),
            ([-(-case[0] // batch)] * case[1], "a rank has its share of the examples only."),
        ):
            if got == wrong:
                return f"{_told(case)}the ranks have {_list(right)} batches, not {_list(got)}: {why}"
        return f"{_told(case)}the ranks have {_list(right)} batches, not {_list(got)}."
    return ""


def _steps(answer: Callable) -> str:
    for case in _CASES:
        result, reason = _three(answer, case)
        if reason:
            return _told(case) + reason
        if np.ndim(result[1]) != 0:
            return f"{_told(case)}`steps` is one number, the same for all ranks; it is {result[1]!r}."
        shares, batch, got = _shares(case), case[2], result[1]
        right = min(shares) // batch
        if got == right:
            continue
        for wrong, why in (
            (max(shares) // batch, "a rank with fewer examples has not so many."),
            (-(-min(shares) // batch), "the last of them is smaller on some rank; count full batches."),
            (-(-max(shares) // batch), "some rank has not so many: the others would wait for it."),
            (case[0] // batch, "a rank has its share of the examples only."),
        ):
            if got == wrong:
                return f"{_told(case)}every rank has {right} full batches, not {got:g}: {why}"
        return f"{_told(case)}every rank has {right} full batches, not {got!r}."
    return ""


def _left(answer: Callable) -> str:
    for case in _CASES:
        result, reason = _three(answer, case)
        if reason:
            return _told(case) + reason
        examples, ranks, batch = case
        steps, got = min(_shares(case)) // batch, result[2]
        right = examples - steps * ranks * batch
        if got == right:
            continue
        for wrong, why in (
            (examples - steps * batch, "each step uses a batch on every rank."),
            (steps * ranks * batch, "these are the examples that are used."),
            (examples % ranks, "that is what does not divide among the ranks; the last batches are left out too."),
            (min(_shares(case)) - steps * batch, "that is left on one rank; add up all ranks."),
        ):
            if got == wrong:
                return f"{_told(case)}{right} examples are left, not {got}: {why}"
        return f"{_told(case)}{right} examples are left, not {got!r}."
    return ""


def _list(values: Sequence[float]) -> str:
    return " and ".join(f"{value:g}" for value in values) if len(values) < 3 else ", ".join(f"{v:g}" for v in values)


EXERCISES = Exercises(
    Exercise(
        "covered",
        (
            Part("Bars one after the other", 0.25, _covers(_ROW)),
            Part("Bars that overlap", 0.25, _covers(_OVERLAP)),
            Part("A bar within another", 0.25, _covers(_NESTED)),
            Part("In any order", 0.25, _covers(_MIXED)),
        ),
    ),
    Exercise(
        "lateness",
        (
            Part("Mean lateness of each rank", 0.75, _late),
            Part("The table stays as it is", 0.25, _keeps_table),
        ),
    ),
    Exercise(
        "steps_per_epoch",
        (
            Part("Batches of each rank", 0.4, _batches),
            Part("Steps that all can take", 0.4, _steps),
            Part("Examples left out", 0.2, _left),
        ),
    ),
    *scaling.EXERCISES,
)
check, points = EXERCISES.check, EXERCISES.points
