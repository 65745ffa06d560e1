"""Checks of notebook 4b: tensor fusion, the messages' times, and the slowest of N ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part
from course_lib.cost import overlap

# fuse: all times are whole multiples of 1/8, so that no rounding decides which cycle catches a gradient.

CYCLE = 0.5
READY = np.array([3.25, 2.75, 2.75, 2.0, 1.125, 0.875, 0.75, 0.625])
NBYTES = np.array([400.0, 40.0, 40.0, 800.0, 16.0, 112.0, 480.0, 400.0])
THRESHOLD = 1000.0


def _expected(ready: np.ndarray, nbytes: np.ndarray, threshold: float, cycle: float) -> list[tuple[float, list[int]]]:
    free = overlap.step(ready, nbytes, np.zeros_like, threshold, cycle)
    return [(message.start, list(message.tensors)) for message in free.messages]


def _fused(
    answer: Callable, ready: np.ndarray, nbytes: np.ndarray, threshold: float, cycle: float
) -> tuple[list[tuple[float, list[int]]], str]:
    given = ready.copy(), nbytes.copy()
    result: Any = answer(*given, threshold, cycle)
    if result is None:
        return [], "it returns nothing: return the list of messages."
    try:
        messages = [(float(moment), [int(tensor) for tensor in tensors]) for moment, tensors in result]
    except (TypeError, ValueError):
        return [], f"it should return pairs (moment, list of indices); it returns {_short(result)}."
    if not all(np.array_equal(a, b) for a, b in zip(given, (ready, nbytes))):
        return [], "it changes the arrays that it was given: work on copies."
    return messages, ""


def _all_once(answer: Callable) -> str:
    messages, reason = _fused(answer, READY, NBYTES, THRESHOLD, CYCLE)
    if reason:
        return reason
    sent = sorted(tensor for _, tensors in messages for tensor in tensors)
    if missing := sorted(set(range(len(READY))) - set(sent)):
        return f"tensor {missing[0]} is in no message: {len(sent)} of {len(READY)} are sent."
    if len(sent) > len(READY) or set(sent) != set(range(len(READY))):
        return f"the messages hold the tensors {sent}; each of 0 … {len(READY) - 1} is to be in one."
    return "one message holds no tensor: leave it out." if any(not tensors for _, tensors in messages) else ""


def _order(answer: Callable) -> str:
    messages, reason = _fused(answer, READY, NBYTES, THRESHOLD, CYCLE)
    if reason:
        return reason
    sent = [tensor for _, tensors in messages for tensor in tensors]
    if sent == sorted(sent) and len(sent) > 1:
        return "the tensors go in forward order, 0 first; the backward pass ends with it. Go by the times in `ready`."
    for before, after in zip(sent, sent[1:]):
        if READY[before] > READY[after]:
            return (
                f"tensor {before}, ready at {READY[before]} s, goes before tensor {after}, ready at {READY[after]} s."
            )
    expected = [tensor for _, tensors in _expected(READY, NBYTES, THRESHOLD, CYCLE) for tensor in tensors]
    if sent != expected and len(sent) == len(expected):
        return f"tensors that are ready at the same time keep the order of their indices: {expected}, not {sent}."
    return ""


def _cycles(answer: Callable) -> str:
    for cycle in (CYCLE, 2.0):
        messages, reason = _fused(answer, READY, NBYTES, THRESHOLD, cycle)
        if reason:
            return reason
        for moment, tensors in messages:
            told = f"with a cycle of {cycle:g} s, tensor {{}}, ready at {{}} s, leaves at {moment:g} s: "
            for tensor in tensors:
                told_of = told.format(tensor, READY[tensor])
                due = math.ceil(READY[tensor] / cycle) * cycle
                if moment < READY[tensor]:
                    return told_of + "it is sent before it is ready."
                if moment % cycle:
                    return told_of + f"messages leave when a cycle begins, at 0, {cycle:g}, {2 * cycle:g} … s."
                if moment > due:
                    return told_of + f"the cycle at {due:g} s takes it; messages don't wait for later gradients."
        moments = [moment for moment, _ in messages]
        if moments != sorted(moments):
            return f"the messages leave at {moments} s: list them in the order of time."
    messages, reason = _fused(answer, np.array([1.0, 0.5]), np.array([8.0, 8.0]), 100.0, 0.5)
    if not reason and sorted(moment for moment, _ in messages) != [0.5, 1.0]:
        return "a gradient that is ready just when a cycle begins goes with it: ready at 0.5 and 1 s, cycle 0.5 s."
    return reason


def _threshold(answer: Callable) -> str:
    cases = [
        (READY, NBYTES, THRESHOLD, CYCLE, ""),
        (READY, NBYTES, 300.0, 4.0, ""),
        (np.array([0.25, 0.25, 0.25]), np.array([600.0, 400.0, 8.0]), 1000.0, 0.5, "as many bytes as the threshold: "),
        (
            np.array([0.25, 0.25, 0.25]),
            np.array([100.0, 5000.0, 100.0]),
            1000.0,
            0.5,
            "one larger than the threshold: ",
        ),
        (READY, NBYTES, 0.0, 4.0, "threshold 0 switches fusion off: "),
    ]
    for ready, nbytes, threshold, cycle, what in cases:
        messages, reason = _fused(answer, ready, nbytes, threshold, cycle)
        if reason:
            return reason
        expected = _expected(ready, nbytes, threshold, cycle)
        got, right = [tensors for _, tensors in messages], [tensors for _, tensors in expected]
        if got == right:
            continue
        sizes = [nbytes[tensors].sum() for tensors in got]
        told = f"{what}gradients of {', '.join(f'{size:g}' for size in nbytes)} bytes, threshold {threshold:g}: "
        too_long = [size for size, tensors in zip(sizes, got) if size > threshold and len(tensors) > 1]
        if got == [t for _, t in _expected(ready, nbytes / 4, threshold, cycle)]:
            return told + f"a message has {max(too_long):g}. The threshold counts bytes, not numbers."
        if got == [t for _, t in _expected(ready, nbytes, math.inf, cycle)]:
            return told + "all that a cycle finds is in one message; a message that is full must be closed."
        if too_long:
            return told + f"a message has {too_long[0]:g}. Look whether a tensor still fits *before* it is added."
        if all(len(tensors) == 1 for tensors in got):
            return told + "each travels alone. What a cycle finds goes together as long as it fits."
        return told + f"the messages should be {right}, not {got}."
    return ""


# send

MESSAGES = [(1.0, [3, 2]), (1.0, [1]), (8.0, [0])]
SIZES = np.array([16.0, 32.0, 8.0, 8.0])


def _all_reduce(nbytes: Any) -> Any:
    """1 s and 1/16 s for each byte."""
    return 1 + np.asarray(nbytes) / 16


TIMES = np.array([[1.0, 3.0], [3.0, 6.0], [8.0, 10.0]])


def _sent(answer: Callable) -> tuple[np.ndarray, str]:
    result = answer([(moment, list(tensors)) for moment, tensors in MESSAGES], SIZES.copy(), _all_reduce)
    if result is None:
        return np.empty((0, 2)), "it returns nothing: return start and end of each message."
    try:
        result = np.array([[float(start), float(end)] for start, end in result])
    except (TypeError, ValueError):
        return np.empty((0, 2)), f"it should return a pair (start, end) for each message; it returns {_short(result)}."
    if result.shape != TIMES.shape:
        return result, f"for {len(MESSAGES)} messages it returns {len(result)} pairs."
    return result, ""


def _durations(answer: Callable) -> str:
    result, reason = _sent(answer)
    if reason:
        return reason
    took, right = result[:, 1] - result[:, 0], TIMES[:, 1] - TIMES[:, 0]
    if np.allclose(took, right):
        return ""
    if np.allclose(result[:, 1], right):
        return "the second number is the message's duration; it should be its end."
    if np.allclose(took, [sum(_all_reduce(SIZES[tensor]) for tensor in tensors) for _, tensors in MESSAGES]):
        return "each tensor pays its own latency: a message is one all-reduce, of the sum of its bytes."
    if np.allclose(took, [_all_reduce(len(tensors)) for _, tensors in MESSAGES]):
        return "the bytes of a message are those of its tensors, `nbytes[i]`; you count tensors."
    return f"the messages take {took} s; all_reduce of {[16, 32, 16]} bytes takes {right} s."


def _starts(answer: Callable) -> str:
    result, reason = _sent(answer)
    if reason:
        return reason
    starts, told = (
        result[:, 0],
        f"messages that may leave at 1, 1 and 8 s and take 2, 3 and 2 s start at {result[:, 0]}: ",
    )
    if np.allclose(starts, TIMES[:, 0]):
        return ""
    if np.allclose(starts, [moment for moment, _ in MESSAGES]):
        return told + "the second starts while the first is still on its way. One at a time."
    for number, ((moment, _), start) in enumerate(zip(MESSAGES, starts)):
        if start < moment - 1e-9:
            return told + f"number {number} starts before its moment, {moment:g} s: its gradients are not ready."
        if number and start < TIMES[number - 1, 1] - 1e-9:
            return told + f"number {number} starts before the one in front of it has ended."
    return told + f"they could start at {TIMES[:, 0]}."


# slowest

GRID = np.linspace(0, 40, 40_001)


def _exponential(t: np.ndarray) -> np.ndarray:
    return 1 - np.exp(-t)


def _uniform(t: np.ndarray) -> np.ndarray:
    return np.clip(t, 0, 2) / 2


def _maximum(answer: Callable, cumulative: Callable, grid: np.ndarray, ranks: int) -> tuple[float, str]:
    result = answer(cumulative(grid), grid.copy(), ranks)
    if result is None:
        return math.nan, "it returns nothing."
    if np.size(result) != 1:
        return math.nan, f"it returns an array of {np.size(result)} numbers; the expected maximum is one number."
    return float(np.squeeze(result)), ""


def _one(answer: Callable) -> str:
    value, reason = _maximum(answer, _uniform, GRID, 1)
    if reason or abs(value - 1) < 2e-3:
        return reason
    return f"with a single rank and times between 0 and 2 s the mean is 1 s; you have {value:.4g}."


def _many(answer: Callable) -> str:
    for ranks in (2, 10, 500):
        right = (1 / np.arange(1, ranks + 1)).sum()
        value, reason = _maximum(answer, _exponential, GRID, ranks)
        if reason:
            return reason
        if abs(value - right) < 2e-3 * right:
            continue
        told = (
            f"exponential times with mean 1, {ranks} ranks: {value:.4g} where 1 + 1/2 + … + 1/{ranks} = {right:.4g}. "
        )
        for wrong, why in (
            (1, "That is the mean of one rank: how likely is it that *all* are done by t?"),
            (1 / ranks, "That is the mean of the quickest rank. All are done by t with probability Fᴺ."),
            (ranks, "That is N times the mean: the ranks work at the same time."),
        ):
            if abs(value - wrong) < 2e-3 * wrong:
                return told + why
        if abs(value * (GRID[1] - GRID[0]) - right) < 2e-3 * right:
            return told + "The width of the steps in `times` is missing."
        return told + "Integrate 1 − Fᴺ over t."
    return ""


def _any_grid(answer: Callable) -> str:
    grid = np.concatenate([np.linspace(0, 4, 2001), np.geomspace(4, 60, 500)[1:]])
    value, reason = _maximum(answer, _exponential, grid, 10)
    right = (1 / np.arange(1, 11)).sum()
    if reason or abs(value - right) < 4e-3 * right:
        return reason
    return (
        f"with times that are not evenly spaced it is {value:.4g} in place of {right:.4g}: each step has its own width."
    )


def _short(value: object) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) < 60 else text[:57] + "…"


EXERCISES = Exercises(
    Exercise(
        "fuse",
        (
            Part("Every gradient in one message", 0.15, _all_once),
            Part("In the order in which they become ready", 0.2, _order),
            Part("With the next cycle, and no earlier", 0.3, _cycles),
            Part("Up to the threshold", 0.35, _threshold),
        ),
    ),
    Exercise(
        "send",
        (
            Part("How long a message takes", 0.4, _durations),
            Part("When it starts", 0.6, _starts),
        ),
    ),
    Exercise(
        "slowest",
        (
            Part("One rank", 0.2, _one),
            Part("Many ranks", 0.6, _many),
            Part("Any grid of times", 0.2, _any_grid),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
