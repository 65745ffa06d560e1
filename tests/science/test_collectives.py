"""The simulated all-reduces against np.sum; `cost/test_allreduce` compares their rounds and bytes with the formulas."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.collectives import (
    chunks,
    double_tree,
    doubling,
    halving,
    hierarchical,
    hybrid,
    ring,
    run,
    sharded,
    trace,
)

ALGORITHMS = {
    "ring": ring,
    "halving": halving,
    "halving, far first": partial(halving, far_first=True),
    "doubling": doubling,
    "two trees": partial(double_tree, segments=1),
    "two trees, 4 segments": partial(double_tree, segments=4),
    "sharded by 1": partial(sharded, group=1),
    "hierarchical by 2": partial(hierarchical, group=2),
    "hierarchical by 4": partial(hierarchical, group=4),
    "hierarchical by 5": partial(hierarchical, group=5),
    "hybrid": partial(hybrid, group=4, threshold=20),
}
DTYPES = st.sampled_from([np.float64, np.float16, np.int64])


@pytest.mark.parametrize("name", ALGORITHMS)
@given(ranks=st.integers(1, 33), length=st.integers(0, 200), dtype=DTYPES, seed=st.integers(0, 99))
def test_every_rank_holds_the_sum_and_none_sends_or_receives_twice_in_a_round(name, ranks, length, dtype, seed):
    # Whole numbers: their sums are exact in each of the types, in any order.
    values = np.random.default_rng(seed).integers(-9, 10, (ranks, length)).astype(dtype)
    before = values.copy()
    plan = list(ALGORITHMS[name](ranks, length))
    result = run(plan, values)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.broadcast_to(values.sum(0), values.shape))
    np.testing.assert_array_equal(values, before)
    messages = trace(plan)
    for end in (messages.source, messages.target):
        assert len({*zip(messages.round, end)}) == len(end)
    assert (messages.source != messages.target).all()


@pytest.mark.parametrize("ranks", [1, 2, 5, 8, 33])
def test_ring_costs_what_the_formula_says(ranks):
    messages = trace(ring(ranks, 100 * ranks))
    assert messages.rounds == 2 * (ranks - 1)
    assert (messages.largest() == 100).all()
    sent = np.bincount(messages.source, messages.elements, ranks)
    assert (sent == 2 * (ranks - 1) / ranks * 100 * ranks).all()
    assert messages.seconds(2.0, 0.5, itemsize=4) == 2 * (ranks - 1) * (2 + 0.5 * 400)


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_halving_begins_with_the_nearest_or_the_farthest_partner(ranks):
    for far_first in (False, True):
        messages = trace(halving(ranks, 64, far_first))
        assert abs(messages.source - messages.target)[0] == (ranks // 2 if far_first else 1)


@pytest.mark.parametrize(("ranks", "group"), [(8, 4), (64, 8), (12, 3), (6, 8)])
def test_sharded_adds_up_over_all_hosts_and_refuses_one_that_is_not_full(ranks, group):
    values = np.random.default_rng(0).integers(-9, 10, (ranks, 50))
    assert (run(sharded(ranks, 50, group), values) == values.sum(0)).all()
    with pytest.raises(ValueError, match="multiple of 4"):
        trace(sharded(9, 50, 4))


@pytest.mark.parametrize("ranks", [2, 5, 12, 33, 64])
def test_two_trees_take_logarithmically_many_rounds_and_no_rank_is_inside_both(ranks):
    messages = trace(double_tree(ranks, 1, segments=1))
    assert messages.rounds <= 4 * math.log2(ranks) + 4
    whole = trace(double_tree(ranks, 2, segments=1))
    sent = np.bincount(whole.source, whole.elements, ranks)
    assert sent.max() <= 4  # 2 n: no rank sends more than twice its tensor
    assert trace(double_tree(ranks, 6400, segments=64)).largest().sum() < 2.8 * 6400


def test_a_group_that_is_not_full_adds_no_rounds():
    assert trace(hierarchical(15, 60, 4)).rounds == trace(hierarchical(16, 60, 4)).rounds


def test_hybrid_takes_the_ring_for_long_tensors_only():
    for length, plan in ((99, hierarchical(8, 99, 4)), (100, ring(8, 100))):
        assert trace(hybrid(8, length, 4, 100)).rounds == trace(plan).rounds


@given(length=st.integers(0, 1000), parts=st.integers(1, 40))
def test_chunks_cover_everything_with_lengths_that_differ_by_one_at_most(length, parts):
    ends = chunks(length, parts)
    assert (ends[0], ends[-1]) == (0, length)
    assert set(np.diff(ends)) <= {length // parts, length // parts + 1}
