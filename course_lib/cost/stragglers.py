"""Stragglers in synchronous training: in every step all ranks wait for the slowest.

Each step time of each rank is drawn independently from a distribution with mean 1; the unit is the mean step time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr  # Φ(z), of the standard normal distribution


@dataclass(frozen=True)
class StepTime:
    """The distribution of a rank's step time, with mean 1.

    Attributes:
        draw: (generator, shape) → random times.
        cumulative: t [n] → F(t) [n], the probability of a step time of at most t.
    """

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    cumulative: Callable[[np.ndarray], np.ndarray]


def normal(spread: float) -> StepTime:
    """Normal distribution with standard deviation `spread`: a sum of many small delays."""
    return StepTime(
        "normal", lambda random, shape: random.normal(1, spread, shape), lambda t: ndtr((np.asarray(t) - 1) / spread)
    )


def lognormal(spread: float) -> StepTime:
    """Log-normal distribution with standard deviation `spread`: a product of many factors; few steps are very long."""
    sigma = math.sqrt(math.log1p(spread**2))
    mu = -(sigma**2) / 2

    def cumulative(t: np.ndarray) -> np.ndarray:
        t = np.asarray(t, float)
        return np.where(t > 0, ndtr((np.log(np.maximum(t, 1e-300)) - mu) / sigma), 0.0)

    return StepTime("log-normal", lambda random, shape: random.lognormal(mu, sigma, shape), cumulative)


def exponential(spread: float) -> StepTime:
    """1 − spread plus an exponential delay of mean `spread`: rare interruptions of any length."""
    return StepTime(
        "exponential",
        lambda random, shape: 1 - spread + random.exponential(spread, shape),
        lambda t: -np.expm1(-np.maximum(np.asarray(t, float) - 1 + spread, 0) / spread),
    )


def expected_maximum(time: StepTime, ranks: int | Sequence[int]) -> float | np.ndarray:
    """The expected step time of the slowest of N ranks, E[max] = ∫₀^∞ 1 − F(t)ᴺ dt.

    For the exponential distribution with spread s it is 1 − s + s · (1 + 1/2 + … + 1/N).

    Args:
        ranks: N, or several N.

    Returns:
        A number, or an array with one entry for each N.
    """
    grid = np.concatenate([np.linspace(0, 4, 8001), np.geomspace(4, 1000, 4000)[1:]])
    beyond = 1 - np.clip(time.cumulative(grid), 0, 1) ** np.asarray(ranks, float)[..., None]
    return ((beyond[..., 1:] + beyond[..., :-1]) / 2 @ np.diff(grid))[()]


def simulate(time: StepTime, ranks: int, steps: int, seed: int = 0) -> np.ndarray:
    """Random step times [steps, ranks]."""
    return time.draw(np.random.default_rng(seed), (steps, ranks))


def efficiency(seconds: np.ndarray) -> float:
    """The fraction of time in which ranks compute, if all wait for the slowest in each step: seconds [steps, ranks]."""
    return float(seconds.mean() / seconds.max(1).mean())
