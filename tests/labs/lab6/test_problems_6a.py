"""What notebook 6a trains: the small network, the three problems of Hogwild, the bowl."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.data.splits import Part
from labs.lab6_beyond_synchronous.lessons import bowl, ratings, small_network

DRAWN = {
    "sparse": lambda: ratings.Sparse.drawn(3_000, 20),
    "ratings": lambda: ratings.Ratings.drawn(20_000, 100, 60),
    "dense": lambda: ratings.Dense.drawn(300, 500),
}


def test_the_network_s_gradient_is_that_of_its_loss():
    random = np.random.default_rng(0)
    part = Part(random.normal(size=(8, small_network.PIXELS)), random.integers(10, size=8))
    weights = small_network.start(1).astype(float)
    found = small_network.gradient(weights, *part)
    for _ in range(5):
        direction = random.normal(size=small_network.SIZE)
        direction *= 1e-5 / np.linalg.norm(direction)
        change = small_network.loss(weights + direction, part) - small_network.loss(weights - direction, part)
        assert 2 * found @ direction == pytest.approx(change, rel=1e-4)


def test_weights_that_are_no_numbers_score_as_chance():
    part = Part(np.zeros((4, small_network.PIXELS)), np.zeros(4, int))
    weights = np.full(small_network.SIZE, np.nan)
    assert small_network.accuracy(weights, part) == 0.1 and small_network.loss(weights, part) == np.inf


def test_every_epoch_has_every_example_once(monkeypatch):
    monkeypatch.setattr(small_network, "fashion", lambda: type("P", (), {"train": Part(None, np.zeros(64, int))}))
    batches = small_network.batches(6, seed=3, size=16)
    assert batches.shape == (6, 16)
    assert sorted(batches[:4].ravel()) == list(range(64)) and len(set(batches[4:].ravel())) == 32


@pytest.mark.parametrize("name", DRAWN)
def test_a_step_is_down_the_slope_and_counts_what_it_touches(name):
    problem = DRAWN[name]()
    random = np.random.default_rng(9)
    for example in (0, 7):
        weights = problem.start() + random.normal(0, 0.1, problem.size)
        before, count = weights.copy(), np.zeros(problem.size, int)
        touched = problem.step(weights, count, example)
        change = weights - before
        assert count.sum() == touched and set(count) <= {0, 1}
        assert np.array_equal(count > 0, change != 0)
        slope = np.zeros(problem.size)
        for at in np.flatnonzero(count)[:30]:
            nudge = np.zeros(problem.size)
            nudge[at] = 1e-5
            slope[at] = (_one(problem, before + nudge, example) - _one(problem, before - nudge, example)) / 2e-5
        seen = np.flatnonzero(slope)
        assert -change[seen] / problem.rate == pytest.approx(slope[seen], rel=1e-4)


def _one(problem, weights, example):
    """The loss of one example; half the squared error of a rating."""
    if isinstance(problem, ratings.Ratings):
        rows = weights.reshape(-1, problem.rank)
        predicted = rows[problem.user[example]] @ rows[problem.users + problem.item[example]]
        return (predicted - problem.rating[example]) ** 2 / 2
    if isinstance(problem, ratings.Sparse):
        score = weights[problem.features[example]].sum()
    else:
        score = weights @ problem.inputs[example]
    return np.logaddexp(0, score) - problem.answers[example] * score


@pytest.mark.parametrize("name", DRAWN)
def test_the_problems_can_be_learnt(name):
    problem = DRAWN[name]()
    weights, count = problem.start(), np.zeros(problem.size, int)
    before = problem.loss(weights)
    for example in range(problem.examples):
        problem.step(weights, count, example)
    assert problem.loss(weights) < 0.9 * before


def test_a_sparse_example_has_one_value_of_each_field():
    problem = ratings.Sparse.drawn(500, 20, popularity=1.0)
    assert np.array_equal(problem.features // 20, np.tile(np.arange(10), (500, 1)))
    counts = np.bincount(problem.features.ravel() % 20)
    assert counts[0] > 3 * counts[10]


def test_a_bowl_takes_one_worker_down_and_throws_many_out():
    one, many = bowl.losses(bowl.RATE, (1, 16))
    assert one < 0.01 and many == bowl.DIVERGED


def test_the_path_with_momentum_is_the_mean_of_asynchronous_paths():
    found = bowl.paths(workers=4, rate=0.2, updates=30, runs=2_000)
    error = 5 * found.std(0).max() / np.sqrt(len(found))
    assert np.abs(found.mean(0) - bowl.path(0.05, 0.75, 30)).max() < error


def test_the_mean_path_does_not_show_that_single_runs_diverge():
    assert bowl.losses(1.2, (4,))[0] > 1e3
    momentum, rate = 1 - 1 / 4, 1.2 / 4  # of the one worker with the mean's path
    assert all(abs(bowl.path(rate, momentum, 400, curvature)[-1]) < 0.1 for curvature in bowl.CURVATURES)
