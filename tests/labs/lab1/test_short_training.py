"""The network that 1e trains dozens of times, and what its experiments measure on it."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from course_lib.notebook import experiments

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to import


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 128)
    return (60 * rng.standard_normal((128, 28, 28, 1)) + 180 * y[:, None, None, None]).clip(0, 255), y


@pytest.fixture(scope="module")
def trainer():
    from labs.lab1_gradient_descent.lessons.short_training import Trainer

    return Trainer(width=0.25)


def test_it_learns_and_starts_anew(trainer, images):
    trainer.start(1)
    first = [w.copy() for w in trainer.model.get_weights()]
    untrained = trainer.score(*images)
    seen = []
    trainer.train(*images, seed=1, rate=0.05, updates=12, batch=32, after=seen.append)
    assert seen == list(range(1, 13))
    assert trainer.score(*images)[0] < untrained[0]
    trainer.start(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, trainer.model.get_weights()))
    trainer.start(2)
    assert not all(np.array_equal(a, b) for a, b in zip(first, trainer.model.get_weights()))


def test_a_run_that_has_become_nan_ends(trainer, images):
    seen = []
    trainer.train(*images, seed=1, rate=float("nan"), updates=50, batch=32, after=seen.append)
    assert len(seen) == 21


def test_without_batch_norm_there_are_biases():
    from labs.lab1_gradient_descent.lessons.short_training import network

    names = [layer.__class__.__name__ for layer in network(normalise=False, dropout=0.3).layers]
    assert "BatchNormalization" not in names and "Dropout" in names
    assert network().count_params() == 24_282  # as models.quick_cnn


def test_both_ends_of_a_spectrum():
    lanczos = runpy.run_path(str(experiments.find()["starts"]))["lanczos"]
    rng = np.random.default_rng(1)
    turn, _ = np.linalg.qr(rng.standard_normal((80, 80)))
    values = np.concatenate([[-0.5], rng.uniform(-0.01, 0.01, 77), [3.0, 20.0]])
    matrix = turn @ np.diag(values) @ turn.T
    assert lanczos(lambda v: matrix @ v, 80, rng, steps=30) == pytest.approx((-0.5, 20.0), rel=1e-6)
