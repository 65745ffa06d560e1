"""How ranks share the images of a set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import data
from course_lib.system.errors import CourseError

NUMBERED = np.arange(103) * 10, np.arange(103)


@given(
    images=st.integers(1, 200), size=st.integers(1, 8), batch=st.integers(1, 30), option=st.sampled_from([1, 2]),
    epoch=st.integers(0, 5), seed=st.integers(0, 5),
)  # fmt: skip
def test_every_rank_gets_the_same_number_of_whole_batches_of_different_images(images, size, batch, option, epoch, seed):
    numbered = np.arange(images) * 10, np.arange(images)
    settings = {"batch_size": batch, "epoch": epoch, "seed": seed}
    batches = images // (size * batch)
    if not batches:
        with pytest.raises(CourseError, match="too few"):
            data.shard(numbered, 0, size, option, **settings)
        return
    parts = [data.shard(numbered, rank, size, option, **settings) for rank in range(size)]
    for x, y in parts:
        np.testing.assert_array_equal(x, y * 10)  # images keep their labels
        assert len(y) == len(set(y)) == batches * batch
    if option == 1:
        together = np.concatenate([y.reshape(-1, batch) for _, y in parts], axis=1)
        assert len(np.unique(together)) == together.size  # a partition
        # Batch k of all ranks together is batch k of one rank with the larger batch.
        alone = data.shard(numbered, 0, 1, 1, **{**settings, "batch_size": size * batch})[1]
        np.testing.assert_array_equal(np.sort(together, axis=1), np.sort(alone.reshape(-1, size * batch), axis=1))


def test_option_2_lets_each_rank_choose_from_the_whole_set():
    parts = [data.shard(NUMBERED, rank, 4, 2, batch_size=5)[1] for rank in range(4)]
    assert len(set(np.concatenate(parts))) < 100  # independent choices overlap
    assert all(part.max() > 75 and part.min() < 25 for part in parts)
    assert len({tuple(part) for part in parts}) == 4


@pytest.mark.parametrize("option", [1, 2])
def test_epochs_and_seeds_reshuffle_and_both_repeat(option):
    orders = {
        tuple(data.shard(NUMBERED, 1, 2, option, batch_size=5, epoch=epoch, seed=seed)[1])
        for epoch in range(3)
        for seed in range(3)
        for _ in range(2)
    }
    assert len(orders) == 9


def test_images_left_out_of_one_epoch_come_in_another():
    parts = [data.shard(NUMBERED, rank, 4, batch_size=5, epoch=epoch)[1] for epoch in range(10) for rank in range(4)]
    assert len(set(np.concatenate(parts))) == 103


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rank": 2}, "no rank 2 among 2 ranks"),
        ({"rank": 0, "size": 0}, "no rank 0 among 0 ranks"),
        ({"option": 3}, "option is 1 or 2, not 3"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 52}, "103 images are too few to give each of 2 ranks a batch of 52"),
        ({"data": (np.arange(5), np.arange(6))}, "differ in length: 5, 6"),
    ],
)
def test_impossible_shards_are_refused(arguments, sentence):
    with pytest.raises(CourseError, match=sentence):
        data.shard(**{"data": NUMBERED, "rank": 0, "size": 2, "batch_size": 5, **arguments})
