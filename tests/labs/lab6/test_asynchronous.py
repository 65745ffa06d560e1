"""Simulated asynchronous SGD: who hands in when, how stale that is, and which updates follow."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import stragglers
from labs.lab6_beyond_synchronous.lessons.asynchronous import Arrivals, arrivals, async_sgd

RANDOM, EVEN = stragglers.exponential(1.0), stragglers.lognormal(0.01)


def slope(weights, _):
    return 2 * weights


def test_one_worker_is_plain_descent():
    arrived = arrivals(RANDOM, 1, 5)
    assert not arrived.staleness.any()
    start = np.array([1.0, -2.0])
    assert async_sgd(slope, start, arrived, 0.1) == pytest.approx(start * 0.8**5)
    assert start.tolist() == [1.0, -2.0]


def test_one_worker_with_momentum_is_the_heavy_ball():
    w, v = 1.0, 0.0
    for _ in range(6):
        v = 0.5 * v + 0.1 * 2 * w
        w -= v
    assert async_sgd(slope, np.ones(1), arrivals(RANDOM, 1, 6), 0.1, 0.5) == pytest.approx([w])


def test_staleness_is_counted_from_the_reading():
    arrived = Arrivals(3, np.array([0, 0, 1, 0, 2, 1, 2]), np.arange(7.0))
    assert arrived.staleness.tolist() == [0, 0, 2, 1, 4, 2, 1]


def test_gradients_are_taken_at_the_weights_that_were_read():
    seen = []

    def gradient(weights, update):
        seen.append(weights[0])
        return np.ones(1)

    path = {}
    order = Arrivals(2, np.array([0, 0, 1, 0]), np.arange(4.0))
    async_sgd(gradient, np.zeros(1), order, 1.0, after_update=lambda update, weights: path.update({update: weights[0]}))
    assert path == {0: 0, 1: -1, 2: -2, 3: -3, 4: -4}
    assert seen == [path[update - stale] for update, stale in enumerate(order.staleness)] == [0, -1, 0, -2]


def test_a_rate_may_depend_on_staleness():
    order = Arrivals(2, np.array([0, 1, 0, 1]), np.arange(4.0))  # staleness 0, 1, 1, 1
    end = async_sgd(lambda *_: np.ones(1), np.zeros(1), order, lambda stale: 1.0 if stale == 0 else 0.25)
    assert end == pytest.approx([-1.75])


@pytest.mark.parametrize("workers", [2, 5, 32])
def test_mean_staleness_is_n_minus_1_however_fast_the_workers_are(workers):
    slower = np.geomspace(1, 10, workers)
    for factors in ((), slower):
        assert arrivals(RANDOM, workers, 20_000, slower=factors).staleness.mean() == pytest.approx(
            workers - 1, rel=0.02
        )


def test_random_times_make_staleness_geometric_and_even_times_make_it_constant():
    stale = arrivals(RANDOM, 8, 50_000).staleness[1_000:]
    for k in (0, 3, 10):
        assert np.mean(stale == k) == pytest.approx((1 / 8) * (7 / 8) ** k, rel=0.1)
    assert np.mean(np.abs(arrivals(EVEN, 8, 4_000).staleness[100:] - 7) <= 2) > 0.95


def test_slower_workers_hand_in_less():
    worker = arrivals(RANDOM, 2, 20_000, slower=(1, 4)).worker
    assert np.mean(worker == 0) == pytest.approx(0.8, abs=0.02)


def test_times_grow_and_the_seed_decides():
    one, same, other = (arrivals(RANDOM, 4, 50, seed) for seed in (1, 1, 2))
    assert (np.diff(one.time) >= 0).all() and len(one.worker) == 50
    assert np.array_equal(one.time, same.time) and not np.array_equal(one.time, other.time)


def test_the_mean_path_is_that_of_momentum_1_minus_1_over_n():
    """E[w_t+1 − w_t] = (1 − 1/N) E[w_t − w_t−1] − (η / N) E[∇L(w_t)] (Mitliagkas et al. 2016)."""
    workers, eta, updates = 5, 0.2, 30
    found = []
    for seed in range(4_000):
        path = []
        async_sgd(
            lambda w, _: w, np.ones(1), arrivals(RANDOM, workers, updates, seed), eta,
            after_update=lambda _, w, path=path: path.append(w[0]),
        )  # fmt: skip
        found.append(path)
    w, v, theory = 1.0, eta, [1.0, 1 - eta]
    w -= v
    for _ in range(updates - 1):
        v = (1 - 1 / workers) * v + eta / workers * w
        w -= v
        theory.append(w)
    error = np.std(found, 0) / np.sqrt(len(found))
    assert np.abs(np.mean(found, 0) - theory)[2:] == pytest.approx(0, abs=5 * error.max())


@pytest.mark.parametrize(("workers", "slower"), [(0, ()), (2, (1.0,)), (1, (1.0, 2.0))])
def test_factors_that_do_not_fit_are_refused(workers, slower):
    with pytest.raises(ValueError, match="give one for each"):
        arrivals(RANDOM, workers, 3, slower=slower)
