"""The closed forms against the plans' own messages, counted one by one."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import collectives
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link

LINK, INNER = Link(3e-5, 5e8), Link(4e-6, 1e10)


def pairs(ranks, length, group=1, inner=None, link=LINK):
    """(seconds by the closed form, the plan) of every algorithm for `length` numbers of 4 bytes."""
    near = (group, inner)
    yield allreduce.ring(ranks, 4 * length, link, *near), collectives.ring(ranks, length)
    yield allreduce.halving(ranks, 4 * length, link, *near), collectives.halving(ranks, length)
    far = allreduce.halving(ranks, 4 * length, link, *near, far_first=True)
    yield far, collectives.halving(ranks, length, far_first=True)
    yield allreduce.doubling(ranks, 4 * length, link, *near), collectives.doubling(ranks, length)
    if group > 1:
        formula = allreduce.hierarchical(ranks, 4 * length, link, group, inner)
        yield formula, collectives.hierarchical(ranks, length, group)
    if group > 1 and (ranks < group or ranks % group == 0):
        formula = allreduce.sharded(ranks, 4 * length, link, group, inner)
        yield formula, collectives.sharded(ranks, length, group)


@pytest.mark.parametrize("link", [Link(1.0, math.inf), Link(0.0, 1.0)], ids=["rounds", "bytes"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 12, 16, 31, 32, 33])
def test_the_closed_forms_are_those_of_the_traces(ranks, link):
    length = 32 * 3 * 5 * 7 * ranks
    for seconds, plan in pairs(ranks, length, link=link):
        assert seconds == pytest.approx(collectives.trace(plan).seconds(link.alpha, link.beta), rel=1e-12)
    for group in (1, 2, 3, 4, 5, 8):
        plan = collectives.hierarchical(ranks, 11 * 17 * length, group)  # chunks of up to 17 groups, all even
        seconds = allreduce.hierarchical(ranks, 4 * 11 * 17 * length, link, group)
        assert seconds == pytest.approx(collectives.trace(plan).seconds(link.alpha, link.beta), rel=1e-5)


@given(ranks=st.integers(2, 33), length=st.integers(0, 1001))
def test_with_uneven_chunks_each_round_is_at_most_a_number_longer(ranks, length):
    hierarchical = allreduce.hierarchical(ranks, 4 * length, LINK, 4), collectives.hierarchical(ranks, length, 4)
    for seconds, plan in (*pairs(ranks, length), hierarchical):
        trace = collectives.trace(plan)
        late = trace.seconds(LINK.alpha, LINK.beta) - seconds
        assert abs(late) <= trace.rounds * 4 * LINK.beta + 1e-12


@settings(max_examples=30)
@given(hosts=st.integers(1, 9), group=st.sampled_from([2, 4, 8, 16]), some=st.integers(0, 15))
def test_on_hosts_the_closed_forms_are_those_of_the_messages_that_leave_them(hosts, group, some):
    ranks = hosts * group if hosts > 1 else max(1, group - some)  # full hosts, or one that need not be full
    length = 3 * 5 * 7 * 64 * ranks
    for seconds, plan in pairs(ranks, length, group, INNER):
        counted = allreduce.counted(collectives.trace(plan), LINK, group, INNER)
        assert seconds == pytest.approx(counted, rel=1e-6)


def test_counted_without_hosts_is_the_traces_own_sum():
    for plan in (collectives.ring(5, 17), collectives.halving(6, 40), collectives.hierarchical(9, 40, 4)):
        trace = collectives.trace(plan)
        assert allreduce.counted(trace, LINK) == pytest.approx(trace.seconds(LINK.alpha, LINK.beta))
    assert allreduce.counted(collectives.trace(collectives.ring(1, 5)), LINK) == 0


def test_one_rank_takes_no_time_and_arrays_broadcast():
    ranks, nbytes = np.array([[1], [2], [65_536]]), np.array([1.0, 1e9])
    forms = (
        allreduce.ring,
        allreduce.halving,
        allreduce.doubling,
        partial(allreduce.sharded, group=8),
        partial(allreduce.hierarchical, group=8),
        partial(allreduce.hybrid, group=8, threshold=1e6),
    )
    for form in forms:
        seconds = form(ranks, nbytes, link=LINK)
        assert seconds.shape == (3, 2)
        assert (seconds[0] == 0).all() and (seconds[1:] > 0).all()
        assert seconds[1, 0] == form(2, 1.0, link=LINK)
        assert isinstance(form(2, 1.0, link=LINK), float)


def test_hybrid_takes_the_ring_from_the_threshold_on():
    short, long = allreduce.hybrid(64, np.array([999.0, 1000.0]), LINK, 8, threshold=1000)
    assert short == allreduce.hierarchical(64, 999, LINK, 8)
    assert long == allreduce.ring(64, 1000, LINK)


def test_the_crossing_of_ring_and_hierarchical_is_the_one_derived_by_hand():
    ranks, group = np.array([8, 16, 64, 1024]), 8
    found = allreduce.crossing(
        lambda n, size: allreduce.hierarchical(n, size, LINK, group),
        lambda n, size: allreduce.ring(n, size, LINK),
        ranks,
    )
    by_hand = LINK.alpha / LINK.beta * ranks * (ranks - 2 * group) / (2 * ranks - group)
    assert np.isnan(found[:2]).all()
    assert found[2:] == pytest.approx(by_hand[2:])


def test_for_powers_of_two_no_ring_is_quicker_than_halving():
    found = allreduce.crossing(
        lambda n, size: allreduce.halving(n, size, LINK),
        lambda n, size: allreduce.ring(n, size, LINK),
        2 ** np.arange(17),
    )
    assert np.isnan(found).all()


def test_on_hosts_the_nearest_partner_first_is_never_slower_than_any_other_of_two_log_n_rounds_or_more():
    """As MPICH orders them. Hosts of 8, a link inside ten times as fast."""
    link, near = Link(1e-5, 1e10), Link(1e-6, 1e11)
    nbytes = np.array([1e4, 1e6, 1e8, 1e9])
    seconds = allreduce.halving(1024, nbytes, link, 8, near)
    assert 1e3 * seconds == pytest.approx([0.15, 0.36, 21.7, 216], rel=0.03)
    far = allreduce.halving(1024, nbytes, link, 8, near, far_first=True)
    ring, leaders = allreduce.ring(1024, nbytes, link, 8, near), allreduce.hierarchical(1024, nbytes, link, 8, near)
    assert (seconds < np.minimum(ring, leaders)).all() and (seconds < far).all()
    assert far[-1] > ring[-1]


def test_with_a_link_for_each_rank_a_sharded_ring_sends_less_across_than_leaders_do():
    own = allreduce.sharded(64, 8e6, LINK, 8, INNER, shared=False)
    assert own < allreduce.sharded(64, 8e6, LINK, 8, INNER) < allreduce.hierarchical(64, 8e6, LINK, 8, INNER)
    messages = collectives.trace(collectives.sharded(64, 2_000_000, 8))
    out = messages.source // 8 != messages.target // 8
    across = [messages.elements[out & (messages.round == number)].max() for number in range(7, 21)]
    assert across == [31_250] * 14


def test_a_fit_finds_the_link_and_weighs_small_and_large_alike():
    nbytes = 4.0 ** np.arange(1, 13)
    exact = allreduce.ring(4, nbytes, LINK)
    found = allreduce.fit(4, nbytes, exact)
    assert (found.alpha, found.beta) == pytest.approx((LINK.alpha, LINK.beta))
    noise = np.random.default_rng(0).lognormal(0, 0.1, (200, 12))
    fits = [allreduce.fit(4, nbytes, exact * factor) for factor in noise]
    assert np.mean([fit.alpha for fit in fits]) == pytest.approx(LINK.alpha, rel=0.03)
    assert np.mean([fit.beta for fit in fits]) == pytest.approx(LINK.beta, rel=0.05)


def test_a_fit_is_never_negative():
    assert allreduce.fit(2, np.array([1e3, 1e6]), np.array([1e-6, 1e-2])).alpha == 0
    assert allreduce.fit(2, np.array([1e3, 1e6]), np.array([1e-2, 1e-3])).beta == 0
