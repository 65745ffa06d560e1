"""Checks of notebook 2a: the data-parallel step, and the ring all-reduce, on simulated ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib import simulated
from course_lib.assess.exercises import Exercise, Exercises, Part
from course_lib.simulated import DeadlockError, Outcome

# parallel_step

ETA = 0.1


def _problem(examples: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    x = random.normal(size=(examples, 3))
    return random.normal(size=3), x, x @ [1.0, -2.0, 0.5] + random.normal(size=examples)


def _gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 2 * x.T @ (x @ w - y) / len(x)


def _step(answer: Callable, ranks: int) -> tuple[list[Any], list[list[int]]]:
    """The weights that each rank returns, and the examples that each asked the gradient of."""
    w, x, y = _problem()
    seen: list[list[int]] = [[] for _ in range(ranks)]

    def program(me: simulated.Rank, _: object) -> Any:
        def gradient(w: np.ndarray, some_x: np.ndarray, some_y: np.ndarray) -> np.ndarray:
            seen[me.rank] += [int(np.flatnonzero((x == row).all(1))[0]) for row in np.atleast_2d(some_x)]
            return _gradient(w, some_x, some_y)

        return answer(me, gradient, w.copy(), x.copy(), y.copy(), ETA)

    return simulated.run(program, [None] * ranks).results, seen


def _shares(answer: Callable) -> str:
    for ranks in (2, 3):
        _, seen = _step(answer, ranks)
        for rank, examples in enumerate(seen):
            if len(examples) == 24:
                return (
                    f"on {ranks} ranks, rank {rank} calculates the gradient of all 24 examples: nothing is shared out."
                )
            right = list(range(rank, 24, ranks))
            if sorted(examples) != right:
                asked = f"rank {rank} of {ranks} should take the examples {right[0]}, {right[1]}, {right[2]} …"
                got = ", ".join(map(str, examples[:3])) if examples else "none"
                return f"{asked}; it takes {got}{' …' if len(examples) > 3 else ''}"
    return ""


def _same_step(answer: Callable) -> str:
    w, x, y = _problem()
    whole = _gradient(w, x, y)
    for ranks in (1, 2, 4):
        results, _ = _step(answer, ranks)
        for rank, result in enumerate(results):
            if np.shape(result) != (3,):
                return f"it returns {result!r} where the weights have shape (3,)."
            moved = (w - np.asarray(result)) / ETA
            if np.allclose(moved, whole, atol=1e-9):
                continue
            told = f"on {ranks} ranks, rank {rank} "
            own = _gradient(w, x[rank::ranks], y[rank::ranks])
            if np.allclose(moved, own):
                return told + "takes a step with its own gradient: all-reduce the gradients."
            for factor, why in (
                (ranks, "the step is N times too long: all_reduce adds up; divide by the number of ranks."),
                (1 / ranks, "the step is N times too short: divide by the number of ranks once only."),
                (-1, "the step goes uphill: w − η times the gradient."),
                (0, "the weights do not move."),
            ):
                if np.allclose(moved, factor * whole):
                    return f"on {ranks} ranks {why}"
            return told + f"moves by {-ETA * moved} where one rank with the whole batch moves by {-ETA * whole}."
    return ""


def _agree(answer: Callable) -> str:
    results, _ = _step(answer, 3)
    if all(np.array_equal(results[0], other) for other in results[1:]):
        return ""
    return (
        "the ranks end with different weights: what they subtract must be the same everywhere, the all-reduced average."
    )


# ring_all_reduce


def _ring(answer: Callable, values: Sequence[np.ndarray]) -> tuple[Outcome | None, str]:
    try:
        return simulated.run(answer, [value.copy() for value in values]), ""
    except DeadlockError as error:
        return None, f"{error} Send first, then receive: if all wait to receive first, nobody ever sends."


def _sums(answer: Callable, ranks: int, length: int, dtype: type = np.int64) -> str:
    random = np.random.default_rng([ranks, length])
    values = [random.integers(-9, 10, length).astype(dtype) for _ in range(ranks)]
    outcome, reason = _ring(answer, values)
    told = f"{ranks} ranks, {length} numbers: "
    if outcome is None:
        return told + reason
    expected = np.sum(values, axis=0)
    for rank, result in enumerate(outcome.results):
        result = np.asarray(result) if result is not None else np.array(None)
        if result.shape != (length,):
            return told + f"rank {rank} returns shape {result.shape}; it should be ({length},)."
        if result.dtype != dtype:
            return told + f"of type {np.dtype(dtype)} come in, {result.dtype} go out."
        if not np.array_equal(result, expected.astype(dtype)):
            return told + _why_not(result, expected, values, rank)
    return ""


def _why_not(result: np.ndarray, expected: np.ndarray, values: Sequence[np.ndarray], rank: int) -> str:
    ranks, length = len(values), len(expected)
    wrong = np.flatnonzero(result != expected)
    if np.allclose(result.astype(float) * ranks, expected):
        return f"rank {rank} has the average; the ring's result is the sum."
    covered = length // ranks * ranks
    if covered < length and wrong.min() >= covered:
        return (
            f"the last {length - covered} are lost: {ranks} does not divide {length}, so some chunks must be longer "
            "(`np.array_split` takes care of it)."
        )
    if np.array_equal(result, values[rank]):
        return f"rank {rank} still has only its own numbers."
    return f"rank {rank} has {result[wrong[0]]} in place of {expected[wrong[0]]} at index {wrong[0]}."


# The number of a chunk on rank r is this times 100^r: two digits of a sum tell what came from one rank, and how often.
CHUNKS = np.array([5, 7, 11, 13])


def _four(answer: Callable) -> str:
    """Four ranks with a chunk of one number each, marked so that each part can be told in the result."""
    outcome, reason = _ring(answer, [CHUNKS * 100**rank for rank in range(4)])
    if outcome is None:
        return reason
    whole = CHUNKS * 1_01_01_01
    for rank, result in enumerate(outcome.results):
        if np.shape(result) != (4,):
            return f"rank {rank} returns {result!r} where 4 numbers are expected."
        if np.allclose(4 * np.asarray(result, float), whole):
            return f"rank {rank} has the average; the ring's result is the sum."
        for chunk in np.flatnonzero(result != whole):
            return f"chunk {chunk} on rank {rank} {_why_not_whole(int(result[chunk]), chunk)}"
    return ""


def _why_not_whole(number: int, chunk: int) -> str:
    parts = [number // 100**rank % 100 for rank in range(4)]
    if any(part % CHUNKS[chunk] for part in parts):
        return "holds parts of other chunks: the number of the chunk is off. Which one arrives in which round?"
    if twice := [rank for rank in range(4) if parts[rank] > CHUNKS[chunk]]:
        return f"has the part of rank {twice[0]} twice: in the second half, put in place, don't add."
    missing = " and ".join(str(rank) for rank in range(4) if parts[rank] == 0)
    return f"lacks the part of rank {missing}: which chunk is whole on which rank after the first half?"


def _any_ranks(answer: Callable) -> str:
    return next(filter(None, (_sums(answer, ranks, 2 * ranks) for ranks in range(1, 10))), "")


def _any_length(answer: Callable) -> str:
    cases = [(ranks, length) for ranks in (2, 3, 7) for length in (*range(12), 29, 50)]
    return next(filter(None, (_sums(answer, *case) for case in cases)), "")


def _any_type(answer: Callable) -> str:
    for dtype in (np.float64, np.float32, np.float16, np.int32):
        if reason := _sums(answer, 4, 10, dtype):
            return reason
    given = [np.arange(6.0) for _ in range(3)]
    kept = [value.copy() for value in given]
    simulated.run(answer, given)
    if any(not np.array_equal(a, b) for a, b in zip(given, kept)):
        return "it changes the array that it was given: work on a copy."
    return ""


def _cost(answer: Callable) -> str:
    for ranks in (5, 2, 8):
        length = 3 * ranks
        outcome, reason = _ring(answer, [np.ones(length) for _ in range(ranks)])
        if outcome is None:
            return reason
        trace, told = outcome.trace, f"{ranks} ranks, {length} numbers: "
        if stray := [m for m in outcome.messages if m.target != (m.source + 1) % ranks]:
            return (
                told + f"rank {stray[0].source} sends to rank {stray[0].target}; in a ring it sends to its right only."
            )
        sent = np.bincount(trace.source, trace.elements, ranks).max(initial=0)
        bound = 2 * (ranks - 1) * length // ranks
        if sent != bound:
            return told + f"a rank sends {sent:.0f} numbers in all; 2(N−1)/N · {length} = {bound} are enough."
        if trace.rounds != 2 * (ranks - 1):
            return told + f"it takes {trace.rounds} rounds; 2(N−1) = {2 * (ranks - 1)} are enough."
        if outcome.unread:
            return told + f"{outcome.unread} messages were sent that nobody received."
    return ""


EXERCISES = Exercises(
    Exercise(
        "parallel_step",
        (
            Part("The step of one rank with the whole batch", 0.5, _same_step),
            Part("Each rank calculates its own share", 0.25, _shares),
            Part("All ranks agree", 0.25, _agree),
        ),
    ),
    Exercise(
        "ring_all_reduce",
        (
            Part("Four ranks, four numbers", 0.3, _four),
            Part("Any number of ranks", 0.2, _any_ranks),
            Part("Any length", 0.2, _any_length),
            Part("Any type", 0.1, _any_type),
            Part("2(N−1) rounds, 2(N−1)/N of the numbers", 0.2, _cost),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
