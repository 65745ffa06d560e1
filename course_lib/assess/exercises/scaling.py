"""Checks of notebook 2c's measurements: bytes of a step, efficiency, and the serial fraction of Amdahl's law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part, one_number

# bytes_per_step


def _bytes(answer: Callable, ranks: int, itemsize: int, passes: int) -> str:
    elements = 1200
    result = answer(elements, ranks, itemsize, passes)
    if reason := one_number(result):
        return reason
    size = elements * itemsize
    right = 2 * (ranks - 1) / ranks * size / passes
    if np.isclose(result, right):
        return ""
    told = (
        f"{elements} elements of {itemsize} bytes, {ranks} ranks, passes = {passes}: {right:g} bytes, not {result:g}."
    )
    for wrong, why in (
        (2 * (ranks - 1) / ranks * elements / passes, "That is the number of elements; how many bytes has one?"),
        (right / 2, "A ring does a reduce-scatter and then an all-gather: twice (N−1)/N."),
        (
            ranks * right,
            "That is N times as much: a message is a chunk, a N-th part of the gradient, and asked is one rank.",
        ),
        (2 * size / passes, "2 is the limit for many ranks; with N ranks it is 2(N−1)/N."),
        ((ranks - 1) * size / passes, "That is everybody to everybody; a ring takes 2(N−1)/N."),
        (right * passes, "Only one in `passes` steps exchanges anything."),
        (right * passes**2, "More passes mean fewer exchanges: divide."),
        (2 * (ranks - 1) / ranks * elements * 4 / passes, "The element size is an argument: 2 for fp16."),
    ):
        if np.isclose(result, wrong):
            return f"{told} {why}"
    return told


def _first(answer: Callable, cases: list[tuple[int, int, int]]) -> str:
    return next(filter(None, (_bytes(answer, *case) for case in cases)), "")


def _ring_bytes(answer: Callable) -> str:
    return _first(answer, [(5, 4, 1), (3, 4, 1), (8, 4, 1), (1, 4, 1)])


def _half_bytes(answer: Callable) -> str:
    return _first(answer, [(5, 2, 1), (3, 8, 1)])


def _fewer_exchanges(answer: Callable) -> str:
    return _first(answer, [(5, 4, 3), (3, 2, 4)])


# efficiency

RANKS = np.array([1, 2, 4, 8])
STRONG = np.array([0.8, 0.5, 0.4, 0.4])  # seconds of a step
WEAK = np.array([0.8, 1.0, 1.6, 2.0])


def _efficiency(answer: Callable, weak: bool, order: list[int]) -> str:
    ranks, seconds = RANKS[order], (WEAK if weak else STRONG)[order]
    kept = seconds.copy()
    result = answer(ranks, seconds, weak)
    if result is None:
        return "it returns None: is there a `return`?"
    if not np.array_equal(seconds, kept):
        return "it changes the seconds that it was given: work on a copy."
    if np.shape(result) != (4,):
        return f"4 numbers come in, so 4 should go out; it returns shape {np.shape(result)}."
    result = np.asarray(result, float)
    one = 0.8
    strong_right, weak_right = one / seconds / ranks, one / seconds
    right = weak_right if weak else strong_right
    if np.allclose(result, right):
        return ""
    told = f"{'weak' if weak else 'strong'} scaling, ranks {_list(ranks)}, seconds {_list(seconds)}: "
    told += f"{_list(right)} expected, {_list(result)} returned."
    for wrong, why in (
        (strong_right, "All do N times the work here: with equal seconds the efficiency is 1. Don't divide by N."),
        (weak_right, "That is the speed-up. Efficiency is the speed-up divided by N."),
        (1 / right, "Upside down: T(1) belongs on top."),
        (seconds / seconds[0] if weak else ranks * seconds / seconds[0], "Upside down: T(1) belongs on top."),
        (right * ranks**2, "Divide by N, don't multiply."),
        (right * ranks, "That is the speed-up. Efficiency is the speed-up divided by N."),
        (100 * right, "As a fraction, not in per cent."),
        (right * seconds[0] / one, "Compare with the entry of one rank, wherever it stands, not with the first."),
    ):
        if np.allclose(result, wrong):
            return f"{told} {why}"
    return told


def _list(values: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values) + "]"


def _strong(answer: Callable) -> str:
    return _efficiency(answer, False, [0, 1, 2, 3])


def _weak(answer: Callable) -> str:
    return _efficiency(answer, True, [0, 1, 2, 3])


def _any_order(answer: Callable) -> str:
    return _efficiency(answer, False, [2, 0, 3, 1]) or _efficiency(answer, True, [3, 1, 0, 2])


# serial_fraction

COUNTS = np.array([1, 2, 4, 8, 16])


def _speedup(serial: float, counts: np.ndarray = COUNTS) -> np.ndarray:
    return 1 / (serial + (1 - serial) / counts)


def _exact(answer: Callable) -> str:
    for serial, counts in ((0.1, COUNTS), (0.02, np.array([1, 3, 5])), (0.3, np.array([2])), (0.0, COUNTS)):
        measured = _speedup(serial, counts)
        result = answer(counts, measured)
        if reason := one_number(result):
            return reason
        if not np.isclose(result, serial, atol=1e-9):
            told = f"speed-ups {_list(measured)} on {_list(counts)} ranks follow the law with s = {serial:g}; "
            return told + f"it returns {result:.3g}." + _why_no_fraction(float(result), counts, measured, serial)
    return ""


def _why_no_fraction(result: float, counts: np.ndarray, speedup: np.ndarray, serial: float) -> str:
    a, b = 1 - 1 / counts, 1 / speedup - 1 / counts
    flipped = speedup - 1 / counts
    for wrong, why in (
        (1 - serial, "That is the parallel share, 1 − s."),
        ((a @ flipped) / (a @ a), "The law is linear in s for 1/S, not for S."),
        ((a @ b) / (b @ b) if b.any() else np.nan, "Upside down: divide by the sum of the squares of a."),
        ((a @ (1 / speedup)) / (a @ a), "The 1/N of the right-hand side is missing: b = 1/S − 1/N."),
        (a @ b, "The sum of a² below is missing."),
    ):
        if np.isclose(result, wrong, atol=1e-9):
            return " " + why
    return ""


def _least_squares(answer: Callable) -> str:
    counts, measured = COUNTS, _speedup(0.05) * np.array([1.0, 0.9, 1.1, 0.95, 0.8])
    a, b = 1 - 1 / counts, 1 / measured - 1 / counts
    right = float(a @ b / (a @ a))
    result = answer(counts, measured)
    if reason := one_number(result):
        return reason
    if np.isclose(result, right, rtol=1e-4):
        return ""
    told = (
        f"with measuring errors, ranks {_list(counts)}, speed-ups {_list(measured)}: s = {right:.4f}, not {result:.4f}."
    )
    with np.errstate(invalid="ignore"):
        each = (b / a)[1:]
    for wrong, why in (
        (each.mean(), "That is the mean of each point's own s; least squares gives points with large a more weight."),
        (each[-1], "That is the last point's own s: use all points."),
        (each[0], "That is the second point's own s: use all points."),
        (float(np.median(each)), "That is the median of each point's own s; asked are least squares."),
        (np.polyfit(a, b, 1)[0], "A line with a free intercept; the law's line goes through 0."),
        (np.polyfit(1 / counts, 1 / measured, 1)[1], "A line with a free slope; the law has one number only, s."),
    ):
        if np.isclose(result, wrong, rtol=1e-6):
            return f"{told} {why}"
    return told


EXERCISES = (
    Exercise(
        "bytes_per_step",
        (
            Part("The ring's 2(N−1)/N", 0.5, _ring_bytes),
            Part("Elements of any size", 0.25, _half_bytes),
            Part("Several passes for each exchange", 0.25, _fewer_exchanges),
        ),
    ),
    Exercise(
        "efficiency",
        (
            Part("Strong scaling", 0.4, _strong),
            Part("Weak scaling", 0.4, _weak),
            Part("Compared with one rank, wherever it stands", 0.2, _any_order),
        ),
    ),
    Exercise(
        "serial_fraction",
        (
            Part("Speed-ups that follow the law", 0.6, _exact),
            Part("Least squares where they don't quite", 0.4, _least_squares),
        ),
    ),
)
_OWN = Exercises(*EXERCISES)
check, points = _OWN.check, _OWN.points
