"""Local SGD, elastic averaging and gossip in one process."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab6_beyond_synchronous.lessons import gossip, local_sgd, small_network


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    small_network.fashion.cache_clear()
    yield
    small_network.fashion.cache_clear()


def test_with_a_period_of_one_it_is_sgd_with_the_whole_batch():
    training = local_sgd.Training(local_sgd.meeting("local", 1, 1), 0.1, 1, ranks=4, updates=3)
    weights, part = small_network.start(1), small_network.fashion().train
    for at in local_sgd.batches(3, 1, 4).reshape(3, -1):
        weights = weights - 0.1 * small_network.gradient(weights, part.images[at], part.labels[at])
        training.step()
    np.testing.assert_allclose(training.weights[2], weights, atol=1e-5)


def test_ranks_agree_after_a_meeting_only():
    training = local_sgd.Training(local_sgd.meeting("local", 3, 1), 0.1, 1, ranks=4, updates=6)
    far = []
    for _ in range(6):
        training.step()
        far.append(gossip.distance(training.weights) > 1e-6)
    assert far == [True, True, False, True, True, False]


def test_the_learner_s_elastic_step_is_the_library_s(answer):
    random = np.random.default_rng(1)
    start, moves = random.normal(size=5), random.normal(size=(4, 5))
    meet = local_sgd.Elastic(1, 0.05)
    weights = meet.step(1, np.tile(start, (4, 1)), moves)
    after = meet.step(2, weights, moves)
    learner = answer("6b_fewer_meetings", "elastic_step")
    expected, centre = learner(weights, start, moves / 0.1, 0.1, 0.5)
    np.testing.assert_allclose(after, expected, atol=1e-6)
    np.testing.assert_allclose(meet.centre, centre, atol=1e-6)


@pytest.mark.parametrize("matrix", [gossip.ring(6), gossip.fixed_pairs(6),
                                    gossip.random_pairs(6, np.random.default_rng(1))])  # fmt: skip
def test_gossip_s_matrices_keep_the_mean(matrix):
    np.testing.assert_allclose(matrix.sum(0), 1)
    np.testing.assert_allclose(matrix.sum(1), 1)
    np.testing.assert_allclose(matrix, matrix.T)


def test_own_classes_are_those_of_a_share_of_the_sorted_images():
    labels = small_network.fashion().train.labels
    for at in local_sgd.batches(5, 1, 10, own_classes=True).transpose(1, 0, 2):
        assert len(np.unique(labels[at])) <= 3


def test_momentum_is_that_of_eamsgd():
    """v ← βv + η∇L(x − βv); x ← x − v − α(x − c); c ← c + αΣ(x − c) (arXiv:1412.6651)."""
    training = local_sgd.Training(local_sgd.Elastic(1, 0.2), 0.05, 1, ranks=2, momentum=0.9, updates=3)
    part, x = small_network.fashion().train, [small_network.start(1)] * 2
    v, c = [np.zeros_like(x[0])] * 2, x[0]
    for here in local_sgd.batches(3, 1, 2):
        slopes = [small_network.gradient(x[i] - 0.9 * v[i], part.images[here[i]], part.labels[here[i]]) for i in (0, 1)]
        v = [0.9 * v[i] + 0.05 * slopes[i] for i in (0, 1)]
        pulled = [0.2 * (one - c) for one in x]
        x, c = [x[i] - v[i] - pulled[i] for i in (0, 1)], c + sum(pulled)
        training.step()
    np.testing.assert_allclose(training.weights, x, atol=1e-5)
    np.testing.assert_allclose(training.meet.centre, c, atol=1e-5)


@pytest.mark.parametrize("way", ["local", "elastic", "ring", "fixed pairs", "random pairs"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_all_ways_train(way, momentum):
    rate = 0.05 * (1 - momentum)
    training = local_sgd.Training(local_sgd.meeting(way, 4, 1, 4), rate, 1, ranks=4, momentum=momentum, updates=40)
    seen, _ = training.run()
    assert len(seen) == 4 and seen[-1][1] > 0.3
