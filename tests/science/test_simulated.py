from __future__ import annotations

import threading

import numpy as np
import pytest

from course_lib.collectives import simulated
from course_lib.collectives.simulated import DeadlockError, marked, origin, ring_among, run


def ring_sum(me, x):
    """All that everybody has, passed round the ring N − 1 times."""
    total, passed = x, x
    for _ in range(me.size - 1):
        me.send(passed, (me.rank + 1) % me.size)
        passed = me.receive((me.rank - 1) % me.size)
        total = total + passed
    return total


@pytest.mark.parametrize("size", [1, 2, 5, 33])
def test_messages_arrive_and_rounds_count_what_must_follow_what(size):
    values = [np.array([float(rank), 1.0]) for rank in range(size)]
    outcome = run(ring_sum, values)
    for result in outcome.results:
        np.testing.assert_array_equal(result, np.sum(values, axis=0))
    assert outcome.trace.rounds == size - 1
    assert len(outcome.messages) == size * (size - 1)
    assert outcome.unread == 0


def test_a_rank_receives_one_message_a_round():
    def gather(me, x):
        if me.rank:
            me.send(x, 0)
            return None
        return [me.receive(rank) for rank in range(1, me.size)]

    outcome = run(gather, [np.ones(2)] * 5)
    assert [message.round for message in outcome.messages] == [0, 1, 2, 3]
    assert outcome.trace.elements.tolist() == [2, 2, 2, 2]


def test_what_was_sent_is_a_copy():
    def program(me, x):
        if me.rank == 0:
            me.send(x, 1)
            x[:] = 9
            return x
        return me.receive(0)

    assert run(program, [np.zeros(2), np.zeros(2)]).results[1].tolist() == [0, 0]


@pytest.mark.parametrize(
    "program",
    [
        lambda me, x: (me.receive((me.rank - 1) % me.size), me.send(x, (me.rank + 1) % me.size)),
        lambda me, x: me.receive(0) if me.rank == 1 else None,  # from one that has ended
    ],
)
def test_a_deadlock_is_an_error_that_says_who_waits_for_whom(program):
    with pytest.raises(DeadlockError, match="rank 1 for rank 0"):
        run(program, [np.zeros(1)] * 3)


def test_the_error_of_one_rank_ends_all():
    def program(me, x):
        if me.rank == 2:
            raise KeyError("mine")
        me.receive(2)

    with pytest.raises(KeyError, match="mine"):
        run(program, [None] * 4)


def test_an_interrupt_ends_ranks_that_would_send_for_ever(monkeypatch):
    turns = []

    def program(me, x):
        while True:
            turns.append(me.rank)
            me.send(x, 1 - me.rank)
            me.receive(1 - me.rank)

    def interrupted(thread, timeout=None):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(program, [np.zeros(1)] * 2)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("to", [-1, 3, 0])
def test_nobody_sends_to_itself_or_out_of_range(to):
    with pytest.raises(ValueError, match=f"can't send to rank {to}"):
        run(lambda me, x: me.send(np.zeros(1), to) if me.rank == 0 else None, [None] * 3)


def test_all_reduce_gives_everybody_the_same_sum():
    values = [np.random.default_rng(rank).normal(size=3) for rank in range(4)]
    first, *others = run(lambda me, x: me.all_reduce(x), values).results
    np.testing.assert_allclose(first, np.sum(values, axis=0))
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_messages_nobody_received_are_counted():
    assert run(lambda me, x: me.send(np.zeros(1), 1) if me.rank == 0 else None, [None] * 2).unread == 1


def test_marked_numbers_tell_where_they_come_from():
    numbers = sum(marked(rank, 3) for rank in (0, 2))
    assert [origin(number) for number in numbers] == [(0, (0, 2)), (1, (0, 2)), (2, (0, 2))]
    with pytest.raises(ValueError, match="no sum of one element"):
        origin(marked(0, 3)[1] + marked(1, 3)[2])


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.int64, np.float16])
def test_a_ring_among_some_ranks_is_their_sum_and_the_others_are_not_asked(ranks, dtype):
    members = range(1, 1 + 2 * ranks, 2)
    for length in (0, 1, 7):
        values = [np.arange(length).astype(dtype) + rank for rank in range(2 * ranks + 1)]

        def program(me, x):
            return ring_among(me, x, members) if me.rank in members else x

        outcome = run(program, values)
        total = np.sum([values[rank] for rank in members], axis=0, dtype=dtype)
        for rank, result in enumerate(outcome.results):
            np.testing.assert_array_equal(result, total if rank in members else values[rank])
            assert result.dtype == dtype
        assert outcome.trace.rounds == 2 * (ranks - 1)


def test_ranks_that_exchange_messages_for_ever_are_ended(monkeypatch):
    monkeypatch.setattr(simulated, "MOST_MESSAGES", 100)

    def program(me, x):
        while True:
            me.send(x, 1 - me.rank)
            x = me.receive(1 - me.rank)

    with pytest.raises(simulated.EndlessError, match="does its loop come to an end"):
        run(program, [np.zeros(1)] * 2)
