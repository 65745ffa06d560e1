"""A linear regression in which 5 of 100 inputs matter: a place to try when to prune, in milliseconds.

Neighbouring inputs resemble each other. Early in the training a true input shares its weight with its neighbours, and
only with time does the true one stand out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

INPUTS, TRUE, EXAMPLES, TEST_EXAMPLES = 100, 5, 300, 1_000
WIDTH, NOISE = 3.0, 0.1  # how far inputs resemble each other, in inputs; standard deviation of the answers' noise
UPDATES, FINAL, MOMENTUM = 200, 0.95, 0.9
PROBLEMS = 12

Schedule = Callable[[int, int, float], float]  # (update, updates, final) → the share that is pruned by then


class Regression(NamedTuple):
    """Inputs [n, INPUTS] and answers [n], to train on and to test with, and the learning rate."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    rate: float


@lru_cache(maxsize=PROBLEMS)
def regression(seed: int) -> Regression:
    """One problem, drawn with `seed`."""
    random = np.random.default_rng(seed)
    distance = np.minimum(np.arange(INPUTS), INPUTS - np.arange(INPUTS))
    smooth = np.abs(np.fft.rfft(np.exp(-((distance / WIDTH) ** 2) / 2)))

    def draw(examples: int) -> np.ndarray:
        rough = np.fft.rfft(random.normal(size=(examples, INPUTS)))
        field = np.fft.irfft(rough * smooth, INPUTS)
        return field / field.std()

    true = np.zeros(INPUTS)
    true[random.choice(INPUTS, TRUE, replace=False)] = random.choice([-1, 1], TRUE)
    x, x_test = draw(EXAMPLES), draw(TEST_EXAMPLES)
    y = x @ true + NOISE * random.normal(size=EXAMPLES)
    steepest = np.linalg.norm(x, 2) ** 2 / EXAMPLES
    return Regression(x, y, x_test, x_test @ true, 0.9 / steepest)


def error(share: Schedule, seed: int) -> float:
    """The mean squared error on test data over the answers' mean square, after a training that prunes by `share`.

    Gradient descent with momentum; the weights that are 0 stay 0, and every update leaves the largest of the others.
    """
    problem = regression(seed)
    covariance, target = problem.x.T @ problem.x / EXAMPLES, problem.x.T @ problem.y / EXAMPLES
    w = 0.01 * np.random.default_rng(seed).normal(size=INPUTS)
    velocity, stay = np.zeros(INPUTS), np.ones(INPUTS, bool)
    for update in range(UPDATES):
        keep = round((1 - float(share(update, UPDATES, FINAL))) * INPUTS)
        if keep < stay.sum():
            stay = np.zeros(INPUTS, bool)
            stay[np.argsort(np.abs(w), kind="stable")[INPUTS - keep :]] = True
            w, velocity = w * stay, velocity * stay
        velocity = MOMENTUM * velocity - problem.rate * (covariance @ w - target) * stay
        w = w + velocity
    return float(np.mean((problem.x_test @ w - problem.y_test) ** 2) / np.mean(problem.y_test**2))


def errors(share: Schedule) -> np.ndarray:
    """`error` of each of PROBLEMS problems."""
    return np.array([error(share, seed) for seed in range(PROBLEMS)])
