"""Notebook 2a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.collectives import simulated
from labs.lab2_horovod.lessons.checks_2a import check, points

NOTEBOOK = "2a_meet_the_ranks"


@pytest.mark.parametrize("exercise", ["parallel_step", "ring_all_reduce"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


STEP = "me.all_reduce(gradient(w, x[mine], y[mine]))"
MINE = "slice(me.rank, None, me.size)"
BLOCK = "slice(me.rank * len(x) // me.size, (me.rank + 1) * len(x) // me.size)"
FIRST_HALF = """
me.send(parts[(me.rank - step) % me.size], right)
parts[(me.rank - step - 1) % me.size] += me.receive(left)
"""
RECEIVE_FIRST = """
came = me.receive(left)
me.send(parts[(me.rank - step) % me.size], right)
parts[(me.rank - step - 1) % me.size] += came
"""
PUT = "parts[(me.rank - step) % me.size] = me.receive(left)"
EQUAL_CHUNKS = "[np.array(x[i * (len(x) // me.size) : (i + 1) * (len(x) // me.size)]) for i in range(me.size)]"

WRONG = {
    "the average forgotten": (
        "parallel_step",
        [("eta * total / me.size", "eta * total")],
        "divide by the number of ranks",
    ),
    "averaged twice": ("parallel_step", [("eta * total / me.size", "eta * total / me.size**2")], "once only"),
    "not averaged": (
        "parallel_step",
        [("eta * total / me.size", "eta * total"), (STEP, "gradient(w, x[mine], y[mine])")],
        "all-reduce the gradients",
    ),
    "uphill": ("parallel_step", [("w - eta * total / me.size", "w + eta * total / me.size")], "uphill"),
    "nothing learned": ("parallel_step", [("w - eta * total / me.size", "w")], "do not move"),
    "nothing returned": ("parallel_step", [("return w - eta * total / me.size", "pass")], "a `return` missing"),
    "the weights changed in place": (
        "parallel_step",
        [("return w - eta * total / me.size", "w -= eta * total / me.size; return w")],
        "changed in place",
    ),
    "the sum on rank 0 only": (
        "parallel_step",
        [(STEP, f"{STEP} if me.rank == 0 else gradient(w, x[mine], y[mine])")],
        "all ranks must call it",
    ),
    "the whole batch everywhere": ("parallel_step", [(MINE, "slice(None)")], "all 24"),
    "blocks in place of every N-th": ("parallel_step", [(MINE, BLOCK)], "should take the examples"),
    "the sum of means over all examples": (
        "parallel_step",
        [("eta * total / me.size", "eta * total / len(x)")],
        "a mean already",
    ),
    "the weights added up": (
        "parallel_step",
        [(STEP, f"me.all_reduce(w - eta * {STEP[14:-1]})"), ("return w - eta * total / me.size", "return total")],
        "weights are added up",
    ),
    "the deadlock order": ("ring_all_reduce", [(FIRST_HALF, RECEIVE_FIRST)], "send first, then receive"),
    "received from the right": (
        "ring_all_reduce",
        [("me.receive(left)", "me.receive(right)")],
        "rank 0 waits for a message of rank 1 that never comes",
    ),
    "the whole array sent": (
        "ring_all_reduce",
        [("me.send(parts[(me.rank - step) % me.size], right)", "me.send(x, right)")],
        "only one chunk",
    ),
    "a round too many": (
        "ring_all_reduce",
        [("range(me.size - 1)", "range(me.size)")],
        "with one rank there is nothing to send",
    ),
    "only the first half": (
        "ring_all_reduce",
        [(f"me.send(parts[(me.rank + 1 - step) % me.size], right)\n{PUT}", "pass")],
        "lacks the parts of ranks 1, 2 and 3",
    ),
    "the off-by-one chunk": ("ring_all_reduce", [("me.rank + 1 - step", "me.rank - step")], "the chunk is off"),
    "the sum taken twice": ("ring_all_reduce", [(PUT, PUT.replace("=", "+="))], "put in place, don't add"),
    "the remainder lost": (
        "ring_all_reduce",
        [("np.array_split(np.array(x), me.size)", EQUAL_CHUNKS + " + [np.array(x[len(x) // me.size * me.size :])]")],
        "are not summed",
    ),
    "works in place": ("ring_all_reduce", [("np.array(x)", "x")], "views of x"),
    "an average": (
        "ring_all_reduce",
        [("np.concatenate(parts)", "np.concatenate(parts) / me.size")],
        "has the average",
    ),
    "always floats": ("ring_all_reduce", [("np.array(x)", "np.array(x, float)")], "of type int64 come in"),
    "the ranks not modulo": ("ring_all_reduce", [("(me.rank + 1) % me.size", "me.rank + 1")], "the last one's right"),
    "the chunks not modulo": (
        "ring_all_reduce",
        [("(me.rank + 1 - step) % me.size", "me.rank + 1 - step")],
        "no such chunk",
    ),
    "half of the ring with the wrong chunk": (
        "ring_all_reduce",
        [("parts[(me.rank + 1 - step) % me.size]", "parts[(me.rank + 2 - step) % me.size]")],
        "chunk",
    ),
    "one round too few": ("ring_all_reduce", [("me.size - 1", "me.size - 2")], "lacks the part"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_sending_everything_to_everybody_is_right_and_no_ring(capsys):
    def ring_all_reduce(me, x):
        return me.all_reduce(x)

    assert 0 < points(ring_all_reduce, 10) <= 8
    assert "to its right only" in capsys.readouterr().out


def try_ring(ring, ranks, length, dtype):
    """The ring's sums against np.sum, and its messages against the bound."""
    random = np.random.default_rng([ranks, length])
    values = list(random.integers(0, 10, (ranks, length)).astype(dtype))  # sums below 100: exact in every type
    outcome = simulated.run(ring, values)
    for result in outcome.results:
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.sum(values, axis=0))
    sent = np.zeros(ranks)
    for message in outcome.messages:
        assert message.target == (message.source + 1) % ranks
        sent[message.source] += message.payload.nbytes
    itemsize, rounds = np.dtype(dtype).itemsize, 2 * (ranks - 1)
    assert (len(outcome.messages), outcome.trace.rounds, outcome.unread) == (ranks * rounds, rounds, 0)
    # 2(N−1)/N of the array from each rank; where N does not divide the length, on average.
    assert sent.sum() == rounds * length * itemsize
    assert sent.max() <= rounds * -(-length // ranks) * itemsize


@pytest.mark.parametrize("ranks", range(1, 10))
def test_the_ring_is_right_for_any_length_at_the_least_cost(answer, ranks):
    ring = answer(NOTEBOOK, "ring_all_reduce")
    for length in range(51):
        try_ring(ring, ranks, length, np.float64)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "int8", "uint8"])
def test_the_ring_is_right_for_each_type_that_horovod_reduces(answer, dtype):
    ring = answer(NOTEBOOK, "ring_all_reduce")
    for ranks in (1, 2, 5, 9):
        for length in (0, 3, 10, 50):
            try_ring(ring, ranks, length, dtype)
