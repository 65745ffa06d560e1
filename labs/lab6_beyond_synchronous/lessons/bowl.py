"""A bowl, L = Σ aᵢwᵢ² / 2 with curvatures from .02 to 1, on which asynchronous descent takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.cost import stragglers
from labs.lab6_beyond_synchronous.lessons.asynchronous import arrivals, async_sgd

CURVATURES = np.geomspace(0.02, 1, 40)
NOISE, UPDATES, SEEDS = 0.1, 400, 4
RATE = 1.2  # for one worker; at 2 it would diverge
DIVERGED = 1e6
TIME = stragglers.exponential(1.0)  # of a worker, for a gradient


def losses(rate: float | Callable[[int], float], workers: Sequence[int]) -> np.ndarray:
    """The loss after UPDATES noisy gradients by number of workers, a mean over SEEDS; at the start it is 1.

    Args:
        rate: as in `async_sgd`; DIVERGED is the most that a run counts.
    """
    return np.array([np.mean([_loss(rate, number, seed) for seed in range(SEEDS)]) for number in workers])


def paths(workers: int, rate: float, updates: int, runs: int, curvature: float = 1.0) -> np.ndarray:
    """Paths of one weight on L = a w² / 2 from w = 1, [runs, updates + 1]; only the order of the workers is random."""
    found = np.empty((runs, updates + 1))
    for run, path in enumerate(found):
        async_sgd(
            lambda w, _: curvature * w, np.ones(1), arrivals(TIME, workers, updates, run), rate,
            after_update=lambda update, w, path=path: path.__setitem__(update, w[0]),
        )  # fmt: skip
    return found


def path(rate: float, momentum: float, updates: int, curvature: float = 1.0) -> np.ndarray:
    """The path of one worker with momentum, [updates + 1]: v ← βv + ηg, w ← w − v, from w = 1.

    At first v is what it would be if the first gradient had always been there, as the asynchronous workers hold it.
    """
    weights, w, v = [1.0], 1.0, rate * curvature / max(1e-9, 1 - momentum)
    for _ in range(updates):
        v = momentum * v + rate * curvature * w
        w -= v
        weights.append(w)
    return np.array(weights)


def _loss(rate: float | Callable[[int], float], workers: int, seed: int) -> float:
    noise = NOISE * np.random.default_rng(seed).standard_normal((UPDATES, len(CURVATURES)))

    def gradient(weights: np.ndarray, update: int) -> np.ndarray:
        return CURVATURES * weights + np.sqrt(CURVATURES) * noise[update]

    with np.errstate(all="ignore"):
        end = async_sgd(gradient, np.ones(len(CURVATURES)), arrivals(TIME, workers, UPDATES, seed), rate)
        loss = float((CURVATURES * end**2).sum() / CURVATURES.sum())
    return min(loss, DIVERGED) if np.isfinite(loss) else DIVERGED
