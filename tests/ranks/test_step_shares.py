"""Shares of a training step: spans that are known, and all that there can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.ranks import step_shares
from course_lib.ranks.step_shares import CALLBACKS, HOROVOD, INPUT, KERAS, METRICS, MOVING, NETWORK, OTHERS, WAITING

MS = 10**6  # nanoseconds
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8).map(
    lambda rows: np.array([(begin, begin + length) for begin, length in rows], np.int64).reshape(-1, 2)
)


def write(folder, rank, *, reduced=(), seconds=0.1, horovod=0.0, others=0.0, queued=0.0, **spans):
    """A profile of one step, its spans and all-reduces (ready, done) in milliseconds."""
    kinds = ("operation", "metric", "callback", "input", "watching", "kernel")
    content = {kind: MS * np.array(spans.get(kind, ()), np.int64).reshape(-1, 2) for kind in kinds}
    times = MS * np.array(reduced, np.int64).reshape(-1, 2)
    content |= {"names": np.array([f"gradient {i}" for i in range(len(times))], str)}
    content |= {"ready": times[:, 0], "done": times[:, 1], "horovod": horovod, "others": others, "queued": queued}
    np.savez(folder / f"rank-{rank}.npz", seconds=seconds, steps=1, **content)


def test_each_part_of_a_step_has_its_share(tmp_path):
    # Rank 1's clock is 5 ms ahead. It is ready for its gradient 20 ms after rank 0; the bytes then take 10 ms.
    write(tmp_path, 0, operation=[(0, 40)], reduced=[(40, 70)], input=[(65, 75)], callback=[(80, 90)])
    write(tmp_path, 1, operation=[(5, 65)], metric=[(60, 67)], reduced=[(65, 75)], watching=[(80, 85)])
    first, second = step_shares.read(tmp_path)
    assert first.milliseconds == pytest.approx(100)
    assert second.milliseconds == pytest.approx(95)  # less the profile's own work
    expected = {NETWORK: 40, WAITING: 20, MOVING: 10, INPUT: 5, CALLBACKS: 10, KERAS: 15}
    assert first.shares == pytest.approx({part: expected.get(part, 0) / 100 for part in step_shares.PARTS})
    expected = {NETWORK: 60, METRICS: 2, MOVING: 8, KERAS: 25}
    assert second.shares == pytest.approx({part: expected.get(part, 0) / 95 for part in step_shares.PARTS})
    expected = "Rank 1 is the slowest: others wait for it 20% of their time. On it: Keras's work between"
    assert step_shares.bottleneck([first, second]).startswith(expected)


def test_who_has_the_core_has_the_time(tmp_path):
    write(tmp_path, 0, operation=[(0, 100)], queued=0.03, horovod=0.005, others=0.015)
    write(tmp_path, 1, operation=[(0, 100)], queued=0.004, horovod=0.03, others=0.01)
    first, second = step_shares.read(tmp_path)
    assert [first.shares[part] for part in (NETWORK, HOROVOD, INPUT, OTHERS)] == pytest.approx([0.7, 0.05, 0.15, 0.1])
    assert [second.shares[part] for part in (NETWORK, HOROVOD, INPUT, OTHERS)] == pytest.approx([0.96, 0.03, 0.01, 0])


def test_a_gpu_that_waits_for_its_kernels_is_named(tmp_path):
    write(tmp_path, 0, operation=[(0, 30)], kernel=[(10, 20), (25, 35)])
    (only,) = step_shares.read(tmp_path)
    assert only.shares[NETWORK] == pytest.approx(0.35)
    assert only.gpu == pytest.approx(0.2)
    assert step_shares.bottleneck([only]).startswith("The GPU computes 20% of the time")


@given(*[SPANS] * 3)
def test_a_union_covers_what_its_spans_cover_and_nothing_twice(first, second, third):
    joined = step_shares.union(first, second, third)
    covered = {moment for begin, end in np.concatenate([first, second, third]) for moment in range(begin, end)}
    assert [moment for begin, end in joined for moment in range(begin, end)] == sorted(covered)
    assert all(joined[1:, 0] > joined[:-1, 1])
