"""Bulk-synchronous training: in every step all ranks wait for the slowest.

Each rank's time for a step is drawn anew, from a distribution with mean 1: the unit is the mean step of one rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr  # Φ(z), of the standard normal distribution


@dataclass(frozen=True)
class StepTime:
    """How long a rank takes for a step: a distribution with mean 1.

    draw: (generator, shape) → random times; cumulative: t [n] → the probability that a step takes at most t, F(t).
    """

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    cumulative: Callable[[np.ndarray], np.ndarray]


def normal(spread: float) -> StepTime:
    """Normal with standard deviation `spread`: many small causes add up."""
    return StepTime(
        "normal", lambda random, shape: random.normal(1, spread, shape), lambda t: ndtr((np.asarray(t) - 1) / spread)
    )


def lognormal(spread: float) -> StepTime:
    """Log-normal with mean 1 and standard deviation `spread`: causes multiply, now and then a step is far too long."""
    sigma = math.sqrt(math.log1p(spread**2))
    mu = -(sigma**2) / 2

    def cumulative(t: np.ndarray) -> np.ndarray:
        t = np.asarray(t, float)
        return np.where(t > 0, ndtr((np.log(np.maximum(t, 1e-300)) - mu) / sigma), 0.0)

    return StepTime("log-normal", lambda random, shape: random.lognormal(mu, sigma, shape), cumulative)


def exponential(spread: float) -> StepTime:
    """At least 1 − spread, and an exponential wait of mean `spread` on top: a rare interruption, of any length."""
    return StepTime(
        "exponential",
        lambda random, shape: 1 - spread + random.exponential(spread, shape),
        lambda t: -np.expm1(-np.maximum(np.asarray(t, float) - 1 + spread, 0) / spread),
    )


def expected_maximum(time: StepTime, ranks: int | Sequence[int]) -> float | np.ndarray:
    """The mean time of the slowest of N ranks, E[max] = ∫ 1 − F(t)ᴺ dt from 0, for each number of ranks.

    For the exponential it is 1 − s + s · (1 + 1/2 + … + 1/N), where s is the spread.
    """
    grid = np.concatenate([np.linspace(0, 4, 8001), np.geomspace(4, 1000, 4000)[1:]])
    beyond = 1 - np.clip(time.cumulative(grid), 0, 1) ** np.asarray(ranks, float)[..., None]
    return ((beyond[..., 1:] + beyond[..., :-1]) / 2 @ np.diff(grid))[()]


def simulate(time: StepTime, ranks: int, steps: int, seed: int = 0) -> np.ndarray:
    """Times of all ranks in all steps, [steps, ranks]."""
    return time.draw(np.random.default_rng(seed), (steps, ranks))


def efficiency(seconds: np.ndarray) -> float:
    """The share of the time that ranks compute, where all wait for the slowest in each step: seconds [steps, ranks]."""
    return float(seconds.mean() / seconds.max(1).mean())
