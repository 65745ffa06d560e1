"""Checks of notebook 2a: the data-parallel step, and the ring all-reduce, on simulated ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.collectives import simulated
from course_lib.collectives.simulated import DeadlockError, Outcome
from course_lib.notebook.answers import array, case, compare, same, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong


def _ranks(number: int) -> str:
    return f"{number} rank{'s' * (number != 1)}"


def _on_ranks(program: Callable, values: Sequence[Any]) -> Outcome:
    def silenced(me: simulated.Rank, value: Any) -> Any:
        with np.errstate(all="ignore"):  # of each thread
            return program(me, value)

    return simulated.run(silenced, values)


# parallel_step

ETA = 0.1
EXAMPLES = 24


def _problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    x = random.normal(size=(EXAMPLES, 3))
    return random.normal(size=3), x, x @ [1.0, -2.0, 0.5] + random.normal(size=EXAMPLES)


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

        given = w.copy(), x.copy(), y.copy()
        with unchanged(*given):
            return answer(me, gradient, *given, ETA)

    try:
        return _on_ranks(program, [None] * ranks).results, seen
    except DeadlockError as error:
        raise Wrong(
            "some ranks call me.all_reduce and wait there for others that never call it: all ranks must call it, and "
            "equally often."
        ) from error


def _same_step(answer: Callable) -> None:
    w, x, y = _problem()
    step = -ETA * _gradient(w, x, y)
    for ranks in (1, 2, 4):
        results, _ = _step(answer, ranks)
        with case(f"on {_ranks(ranks)}"):
            for rank, result in enumerate(results):
                own = -ETA * _gradient(w, x[rank::ranks], y[rank::ranks])
                moved = array(result, w.shape, f"rank {rank}") - w
                mistakes = {
                    f"rank {rank} takes a step with its own gradient: all-reduce the gradients.": own,
                    "the step is N times too long: all_reduce adds up; divide by the number of ranks.": ranks * step,
                    "the step is N times too short: divide by the number of ranks once only.": step / ranks,
                    "each rank's gradient is a mean already: divide their sum by the number of ranks, not by that of "
                    "the examples.": ranks * step / EXAMPLES,
                    "the ranks' weights are added up: all-reduce the gradients.": (ranks - 1) * w + ranks * step,
                    "the step goes uphill: w − η times the gradient.": -step,
                    "the weights do not move.": 0 * step,
                }
                compare(moved, step, f"the step of rank {rank}", mistakes, atol=1e-9)


def _shares(answer: Callable) -> None:
    for ranks in (2, 3):
        _, seen = _step(answer, ranks)
        for rank, examples in enumerate(seen):
            with case(f"on {ranks} ranks"):
                if len(examples) == EXAMPLES:
                    raise Wrong(
                        f"rank {rank} calculates the gradient of all {EXAMPLES} examples: nothing is shared out."
                    )
                share = list(range(rank, EXAMPLES, ranks))
                if sorted(examples) != share:
                    taken = ", ".join(map(str, examples[:3])) + " …" * (len(examples) > 3)
                    first = ", ".join(map(str, share[:3]))
                    raise Wrong(f"rank {rank} should take the examples {first} …; it takes {taken or 'none'}.")


def _agree(answer: Callable) -> None:
    results, _ = _step(answer, 3)
    first, *others = (array(result, (3,), f"rank {rank}") for rank, result in enumerate(results))
    if not all(np.array_equal(first, other) for other in others):
        raise Wrong(
            "the ranks end with different weights: what they subtract must be the same everywhere, the all-reduced "
            "average."
        )


# ring_all_reduce

AVERAGED = "rank {} has the average; the ring's result is the sum."


def _ring(answer: Callable, values: Sequence[np.ndarray]) -> Outcome:
    return _run(answer, [value.copy() for value in values])


def _run(answer: Callable, values: Sequence[np.ndarray]) -> Outcome:
    """The ring on the values themselves. What its errors mean, `Wrong` says."""
    sent = []

    def program(me: simulated.Rank, value: np.ndarray) -> Any:
        send = me.send

        def noted(array: np.ndarray, to: int) -> None:
            sent.append(me.rank)
            send(array, to)

        me.send = noted
        return answer(me, value)

    try:
        return _on_ranks(program, values)
    except DeadlockError as error:
        if not sent:
            raise Wrong("all ranks wait to receive, and nobody has sent: send first, then receive.") from error
        waits, source = re.findall(r"rank (\d+) for rank (\d+)", str(error))[0]
        raise Wrong(
            f"rank {waits} waits for a message of rank {source} that never comes: send to the right and receive from "
            "the left, equally often."
        ) from error
    except IndexError as error:
        raise Wrong(f"there is no such chunk ({error}): count chunks modulo the number of ranks.") from error
    except ValueError as error:
        if "can't send" in str(error) or "can't receive" in str(error):
            raise Wrong(
                f"{error}: with one rank there is nothing to send, in no round."
                if len(values) == 1
                else f"{error}: count ranks modulo the number of ranks, so that the last one's right is 0."
            ) from error
        if "broadcast" in str(error):
            raise Wrong(
                "what arrives is longer or shorter than the chunk that it is added to: is it the same chunk on both "
                "ranks, and only one chunk?"
            ) from error
        raise


# The number of a chunk on rank r is this times 100^r: two digits of a sum tell what came from one rank, and how often.
CHUNKS = np.array([5, 7, 11, 13])


def _four(answer: Callable) -> None:
    """Four ranks with a chunk of one number each, marked so that each part can be told in the result."""
    whole = CHUNKS * 1_01_01_01
    for rank, result in enumerate(_ring(answer, [CHUNKS * 100**rank for rank in range(4)]).results):
        found = array(result, (4,), f"rank {rank}")
        if np.allclose(4 * found.astype(float), whole):
            raise Wrong(AVERAGED.format(rank))
        for chunk in np.flatnonzero(found != whole):
            if not float(found[chunk]).is_integer():
                raise Wrong(f"chunk {chunk} on rank {rank} is {found[chunk]}.")
            raise Wrong(f"chunk {chunk} on rank {rank} {_why_not_whole(int(found[chunk]), CHUNKS[chunk])}")


def _why_not_whole(number: int, marked: int) -> str:
    parts = [number // 100**rank % 100 for rank in range(4)]
    if any(part % marked for part in parts):
        return "holds parts of other chunks: the number of the chunk is off. Which one arrives in which round?"
    if twice := [rank for rank in range(4) if parts[rank] > marked]:
        return f"has the part of rank {twice[0]} twice: in the second half, put in place, don't add."
    missing = [str(rank) for rank in range(4) if parts[rank] == 0]
    who = f"ranks {', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else f"rank {missing[0]}"
    return (
        f"lacks the part{'s' * (len(missing) > 1)} of {who}: which chunk is whole on which rank after the first half?"
    )


def _sums(answer: Callable, ranks: int, length: int, dtype: type = np.int64) -> None:
    random = np.random.default_rng([ranks, length])
    values = [random.integers(-9, 10, length).astype(dtype) for _ in range(ranks)]
    expected = np.sum(values, axis=0).astype(dtype)
    with case(f"{_ranks(ranks)}, {length} numbers"):
        for rank, result in enumerate(_ring(answer, values).results):
            found = array(result, (length,), f"rank {rank}")
            if found.dtype != dtype:
                raise Wrong(f"numbers of type {np.dtype(dtype)} come in, and the sum has type {found.dtype}.")
            if not np.array_equal(found, expected):
                raise Wrong(_why_not_sum(found, expected, values, rank))


def _why_not_sum(found: np.ndarray, expected: np.ndarray, values: Sequence[np.ndarray], rank: int) -> str:
    ranks, length = len(values), len(expected)
    index, covered = np.flatnonzero(found != expected)[0], length // ranks * ranks
    if same(found, expected / ranks):
        return AVERAGED.format(rank)
    if index >= covered > 0:
        return (
            f"the last {length - covered} of {length} numbers are not summed: {ranks} does not divide {length}, so "
            "some chunks must be longer (`np.array_split` takes care of it)."
        )
    if np.array_equal(found, values[rank]):
        return f"rank {rank} still has only its own numbers."
    return f"rank {rank} has {found[index]} in place of {expected[index]} at index {index}."


def _any_ranks(answer: Callable) -> None:
    for ranks in range(1, 10):
        _sums(answer, ranks, 2 * ranks)


def _any_length(answer: Callable) -> None:
    for ranks in (2, 3, 7):
        for length in (29, 50, *range(12)):  # the long ones tell more of a mistake
            _sums(answer, ranks, length)


def _any_type(answer: Callable) -> None:
    for dtype in (np.float64, np.float32, np.float16, np.int32):
        _sums(answer, 4, 10, dtype)


def _x_stays(answer: Callable) -> None:
    given = [np.arange(6.0) for _ in range(3)]
    before = [x.copy() for x in given]
    _run(answer, given)
    if not all(map(np.array_equal, given, before)):
        raise Wrong("x is changed in place: the parts that np.array_split returns are views of x. Copy x first.")


def _cost(answer: Callable) -> None:
    for ranks in (5, 2, 8):
        length, rounds = 3 * ranks, 2 * (ranks - 1)
        with case(f"{ranks} ranks, {length} numbers"):
            outcome = _ring(answer, [np.ones(length) for _ in range(ranks)])
            for message in outcome.messages:
                if message.target != (message.source + 1) % ranks:
                    raise Wrong(
                        f"rank {message.source} sends to rank {message.target}; in a ring it sends to its right only."
                    )
            sent = np.bincount(outcome.trace.source, outcome.trace.elements, ranks).max(initial=0)
            enough = rounds * length // ranks
            if sent != enough:
                raise Wrong(f"a rank sends {sent:.0f} numbers in all; 2(N−1)/N · {length} = {enough} are enough.")
            if outcome.trace.rounds != rounds:
                raise Wrong(f"it takes {outcome.trace.rounds} rounds; 2(N−1) = {rounds} are enough.")
            if outcome.unread:
                raise Wrong(f"{outcome.unread} messages were sent that nobody received.")


EXERCISES = Exercises(
    Exercise(
        "parallel_step",
        Criterion("whole-batch", "The step of one rank with the whole batch", 0.5, _same_step),
        Criterion("own-share", "Each rank calculates its own share", 0.25, _shares),
        Criterion("agreement", "All ranks agree", 0.25, _agree),
    ),
    Exercise(
        "ring_all_reduce",
        Criterion("four-ranks", "Four ranks, four numbers", 0.3, _four),
        Criterion("any-ranks", "Any number of ranks", 0.2, _any_ranks),
        Criterion("any-length", "Any length", 0.2, _any_length),
        Criterion("any-type", "Any type", 0.05, _any_type),
        Criterion("x-stays", "x stays as it is", 0.05, _x_stays),
        Criterion("cost", "2(N−1) rounds, 2(N−1)/N of the numbers", 0.2, _cost),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
