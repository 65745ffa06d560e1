"""Checks of notebook 3c: ghost batch norm, batch norm across ranks, decay of kernels only, gradient noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib import simulated
from course_lib.assess.exercises import Exercise, Exercises, Part

# ghost_batch_norm

EPSILON = 0.1  # large, so that it shows where it stands
GAMMA, BETA = np.array([1.0, 2.0, 0.5]), np.array([0.0, -1.0, 3.0])


def _activations(*shape: int) -> np.ndarray:
    """Examples whose level and spread grow with their number, so that it shows who is put with whom."""
    random = np.random.default_rng(7)
    order = np.arange(1.0, shape[0] + 1).reshape(-1, *[1] * (len(shape) - 1))
    return order + np.sqrt(order) * random.normal([1.0, -2.0, 4.0], [1.0, 0.5, 2.0], shape)


def _normalised(x: np.ndarray, axes: tuple[int, ...], gamma: Any, beta: Any, epsilon: float = EPSILON) -> np.ndarray:
    deviation = x - x.mean(axes, keepdims=True)
    return gamma * deviation / np.sqrt((deviation**2).mean(axes, keepdims=True) + epsilon) + beta


def _but_channels(x: np.ndarray) -> tuple[int, ...]:
    return tuple(range(x.ndim))[:-1]


def _by_ghosts(x: np.ndarray, ghost: int, gamma: Any, beta: Any, epsilon: float = EPSILON) -> np.ndarray:
    parts = [x[start : start + ghost] for start in range(0, len(x), ghost)]
    return np.concatenate([_normalised(part, _but_channels(x), gamma, beta, epsilon) for part in parts])


def _shape(result: Any, shape: tuple[int, ...]) -> str:
    if result is None:
        return "it returns nothing."
    if np.shape(result) != shape:
        return f"it returns shape {np.shape(result)}; it should be {shape}, that of x."
    return ""


def _rows(answer: Callable) -> str:
    return _right(answer, _activations(12, 3), 4, 1.0, 0.0)


def _images(answer: Callable) -> str:
    return _right(answer, _activations(12, 2, 5, 3), 4, 1.0, 0.0)


def _right(answer: Callable, x: np.ndarray, ghost: int, gamma: Any, beta: Any) -> str:
    given = x.copy()
    result = answer(given, ghost, gamma, beta, EPSILON)
    told = f"x {list(x.shape)}, ghost = {ghost}: "
    if reason := _shape(result, x.shape):
        return told + reason
    if not np.array_equal(given, x):
        return told + "it changes x: work on a copy."
    if np.allclose(result, _by_ghosts(x, ghost, gamma, beta)):
        return ""
    for made, why in _slips(x, ghost, gamma, beta):
        if np.shape(made) == x.shape and np.allclose(result, made, equal_nan=True):
            return told + why
    first, expected = np.ravel(result)[0], np.ravel(_by_ghosts(x, ghost, gamma, beta))[0]
    return told + f"the first number is {first:.4f}; it should be {expected:.4f}."


def _slips(x: np.ndarray, ghost: int, gamma: Any, beta: Any) -> list[tuple[np.ndarray, str]]:
    """What plausible mistakes make of x, and the sentence for each."""
    examples = _but_channels(x)
    stacked = x.reshape((len(x) // ghost, ghost, *x.shape[1:]))
    within = tuple(range(1, stacked.ndim - 1))
    deviation = stacked - stacked.mean(within, keepdims=True)
    spread = stacked.std(within, keepdims=True)
    interleaved = np.empty_like(x)
    for first in range(len(x) // ghost):
        interleaved[first :: len(x) // ghost] = _normalised(x[first :: len(x) // ghost], examples, gamma, beta)
    bessel = deviation**2
    bessel = bessel.sum(within, keepdims=True) / (math.prod(stacked.shape[axis] for axis in within) - 1)

    def flat(values: np.ndarray) -> np.ndarray:
        return values.reshape(x.shape)

    slips = [
        (_normalised(x, examples, gamma, beta), "the statistics are those of the whole batch, not of each ghost."),
        (
            _by_ghosts(x, len(x) // ghost, gamma, beta),
            "`ghost` is the number of examples in a ghost batch, not the number of ghost batches.",
        ),
        (interleaved, "a ghost batch is made of consecutive examples: the first `ghost`, the next `ghost`, …"),
        (
            flat(_normalised(stacked, (*within, stacked.ndim - 1), gamma, beta)),
            "the channels are mixed: each channel, the last axis, has its own mean and variance.",
        ),
        (flat(gamma * deviation / (spread + EPSILON) + beta), "ε belongs under the root: √(σ² + ε), not σ + ε."),
        (flat(gamma * deviation / spread + beta), "ε is missing: √(σ² + ε)."),
        (flat(gamma * deviation / (spread**2 + EPSILON) + beta), "divide by the root of σ² + ε, not by σ² + ε."),
        (flat(gamma * deviation / np.sqrt(bessel + EPSILON) + beta), "σ² is a mean over n values: /n, not /(n − 1)."),
    ]
    if x.ndim > 2:
        slips += [
            (
                flat(_normalised(stacked, (1,), gamma, beta)),
                "height and width are left out: the mean is over the examples *and* over all pixels.",
            ),
            (
                _normalised(x, tuple(range(1, x.ndim - 1)), gamma, beta),
                "each example is normalised by itself: the mean is over the examples of a ghost batch, too.",
            ),
        ]
    return slips


def _scaled(answer: Callable) -> str:
    x = _activations(12, 3)
    if reason := _right(answer, x, 4, GAMMA, BETA):
        result = np.asarray(answer(x.copy(), 4, GAMMA, BETA, EPSILON))
        for gamma, beta, why in (
            (1.0, 0.0, "γ and β are not applied."),
            (GAMMA, 0.0, "β is not added."),
            (1.0, BETA, "γ is not applied."),
        ):
            if result.shape == x.shape and np.allclose(result, _by_ghosts(x, 4, gamma, beta)):
                return why
        if result.shape == x.shape and np.allclose(result, GAMMA * (_by_ghosts(x, 4, 1.0, 0.0) + BETA)):
            return "first times γ, then plus β: β is not scaled."
        return reason
    return ""


def _whole(answer: Callable) -> str:
    return _right(answer, _activations(6, 2, 2, 3), 6, GAMMA, BETA)


# synchronised_statistics


def _statistics(answer: Callable, *shape: int, ranks: int) -> tuple[np.ndarray, list[Any]]:
    x = _activations(*shape)
    each = len(x) // ranks
    shares = [x[rank * each : (rank + 1) * each] for rank in range(ranks)]
    return x, simulated.run(lambda me, mine: answer(me, mine.copy()), shares).results


def _pairs(results: list[Any]) -> str:
    for rank, result in enumerate(results):
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            return f"rank {rank} returns {result!r}; expected are two arrays: the mean and the variance."
        for values, what in zip(result, ("mean", "variance")):
            if np.shape(values) != (3,):
                return f"the {what} on rank {rank} has shape {np.shape(values)}; of 3 channels it should be (3,)."
    return ""


def _mean(answer: Callable) -> str:
    for shape, ranks in (((12, 3), 3), ((12, 2, 2, 3), 2)):
        x, results = _statistics(answer, *shape, ranks=ranks)
        axes = _but_channels(x)
        if reason := _pairs(results):
            return reason
        for rank, (mean, _) in enumerate(results):
            if np.allclose(mean, x.mean(axes)):
                continue
            each = len(x) // ranks
            told = f"on {ranks} ranks, rank {rank}: "
            if np.allclose(mean, x[rank * each : (rank + 1) * each].mean(axes)):
                return told + "the mean is that of its own share: all-reduce it."
            if np.allclose(mean, ranks * x.mean(axes)):
                return told + "the mean is N times too large: all_reduce adds up; divide by the number of ranks."
            return told + f"the mean is {np.round(mean, 4)}; that of the whole batch is {np.round(x.mean(axes), 4)}."
    return ""


def _variance(answer: Callable) -> str:
    for shape, ranks in (((12, 3), 3), ((12, 2, 2, 3), 2), ((8, 3), 1)):
        x, results = _statistics(answer, *shape, ranks=ranks)
        axes = _but_channels(x)
        if reason := _pairs(results):
            return reason
        shares = np.split(x, ranks)
        within = np.mean([share.var(axes) for share in shares], axis=0)
        square, whole = (x**2).mean(axes), x.var(axes)
        for rank, (_, variance) in enumerate(results):
            if np.allclose(variance, whole):
                continue
            told = f"on {ranks} ranks, rank {rank}: "
            for made, why in (
                (
                    within,
                    "that is the mean of the ranks' variances. It leaves out how far apart their means are: average "
                    "the mean *squares*, and subtract the square of the common mean.",
                ),
                (shares[rank].var(axes), "the variance is that of its own share: all-reduce."),
                (square, "that is the mean square; the square of the mean is still to be subtracted."),
                (np.sqrt(whole), "that is the standard deviation; asked for is its square."),
                (
                    square - np.mean([share.mean(axes) ** 2 for share in shares], axis=0),
                    "subtract the square of the mean of all, not the mean of the ranks' squares.",
                ),
                (ranks * square - x.mean(axes) ** 2, "the mean square is N times too large: divide the sum by N."),
                (ranks * within, "that is the sum of the ranks' variances; asked for is the variance of all examples."),
                (x.var(axes, ddof=1), "a variance is a mean over n values here: /n, not /(n − 1)."),
            ):
                if np.allclose(variance, made):
                    return told + why
            return told + f"the variance is {np.round(variance, 4)}; that of all examples is {np.round(whole, 4)}."
    return ""


# decayed_gradients

NAMES = [
    "conv2d/kernel:0",
    "batch_normalization/gamma:0",
    "batch_normalization/beta:0",
    "beta_head/kernel:0",
    "beta_head/bias:0",
]
DECAY = 0.1


def _variables() -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(3)
    shapes = [(3, 3, 1, 2), (2,), (2,), (4, 3), (3,)]
    return [random.normal(2, 1, shape) for shape in shapes], [random.normal(size=shape) for shape in shapes]


def _decays(answer: Callable) -> tuple[list[np.ndarray] | None, str]:
    """What was added to each gradient, in multiples of λ w: one number for each variable."""
    weights, gradients = _variables()
    given = [g.copy() for g in gradients]
    result = answer(list(NAMES), [w.copy() for w in weights], given, DECAY)
    if result is None:
        return None, "it returns nothing."
    result = list(result)
    if len(result) != len(NAMES):
        return None, f"of {len(NAMES)} variables come in, {len(result)} gradients go out."
    for name, got, g in zip(NAMES, result, gradients):
        if np.shape(got) != g.shape:
            return None, f"the gradient of {name} has shape {np.shape(got)}; it should be {g.shape}."
    if any(not np.array_equal(a, b) for a, b in zip(given, gradients)):
        return None, "it changes the gradients that it was given: make new ones (`g + …`, not `g += …`)."
    return [(np.asarray(got) - g) / (DECAY * w) for got, g, w in zip(result, gradients, weights)], ""


def _kernels(answer: Callable) -> str:
    added, reason = _decays(answer)
    if added is None:
        return reason
    for name, ratio in zip(NAMES, added):
        if not name.endswith("kernel:0") or np.allclose(ratio, 1):
            continue
        for factor, why in (
            (0, "gets no decay: it is a kernel"),
            (2, "gets 2 λ w: the gradient of ½ λ w² is λ w"),
            (0.5, "gets ½ λ w: the gradient of ½ λ w² is λ w"),
            (-1, "gets −λ w: decay is added to the gradient, since the update subtracts it"),
            (1 / DECAY, "gets w: λ is missing"),
        ):
            if np.allclose(ratio, factor):
                hint = ", whatever its layer is called: look at the end of the name." if "beta" in name else "."
                return f"{name} {why}{hint if factor == 0 else '.'}"
        return f"λ w should be added to the gradient of {name}; what is added is something else."
    return ""


def _skipped(answer: Callable) -> str:
    added, reason = _decays(answer)
    if added is None:
        return reason
    for name, ratio in zip(NAMES, added):
        if not name.endswith("kernel:0") and not np.allclose(ratio, 0):
            return f"{name} gets decay: only kernels should; bias, γ (gamma) and β (beta) keep their gradients."
    if all(np.allclose(ratio, 0) for ratio in added):
        return "nothing gets decay, the kernels neither."
    return ""


# noise_weights

BATCH, BASE, DRAWS = 32, 8, 4000


def _draws(answer: Callable, batch: int, base: int) -> tuple[np.ndarray | None, str]:
    """Many draws [DRAWS, batch]."""
    random = np.random.default_rng(11)
    first = answer(batch, base, random)
    if first is None:
        return None, "it returns nothing."
    if np.shape(first) != (batch,):
        return (
            None,
            f"of a batch of {batch} it returns shape {np.shape(first)}: one weight for each example, ({batch},).",
        )
    return np.stack([first] + [answer(batch, base, random) for _ in range(DRAWS - 1)]), ""


def _means(answer: Callable) -> str:
    z, reason = _draws(answer, BATCH, BASE)
    if z is None:
        return reason
    mean = z.mean()
    if abs(mean) < 0.05:
        return "the weights have mean 0: then so has the gradient, and nothing is learned. z ~ N(1, σ²)."
    return "" if abs(mean - 1) < 0.05 else f"the weights' mean is {mean:.2f}; it should be 1, or the step changes."


def _variances(answer: Callable) -> str:
    for batch, base in ((BATCH, BASE), (32, 2)):
        z, reason = _draws(answer, batch, base)
        if z is None:
            return reason
        variance, right = z.var(), batch / base - 1
        if abs(variance / right - 1) < 0.08:
            continue
        told = f"M = {batch}, m = {base}: the weights have variance {variance:.2f}; it should be {right:g}. "
        for wrong, why in (
            (right**2, "NumPy's `normal` takes the standard deviation σ, not σ²."),
            (batch / base, "Solve (1 + σ²) / M = 1 / m for σ²: what is the 1 for?"),
            ((batch / base) ** 2, "Solve (1 + σ²) / M = 1 / m for σ², and give `normal` σ."),
            (math.sqrt(right), "σ² is M/m − 1; its root is σ, and `normal` takes σ."),
            (1 - base / batch, "Is it M / m, or m / M?"),
            (0, "There is no noise."),
            (1, "The variance must grow with M, or a larger batch has less noise."),
        ):
            if abs(variance - wrong) < 0.08 * max(wrong, 0.1):
                return told + why
        return told.strip()
    return ""


def _independent(answer: Callable) -> str:
    z, reason = _draws(answer, BATCH, BASE)
    if z is None:
        return reason
    if z.std(axis=1).max() < 1e-9:
        return "all examples of a batch have the same weight: draw one for each, independently."
    if np.ptp(z, axis=0).max() < 1e-9:
        return "each call gives the same weights: draw anew, from `rng`."
    of_the_mean = z.mean(axis=1).var() * BATCH / z.var()
    if of_the_mean < 0.5:
        return "the weights of a batch depend on each other (are they made to add up to M?): draw them independently."
    if not np.array_equal(*[answer(6, 2, np.random.default_rng(1)) for _ in range(2)]):
        return (
            "the same generator in the same state gives other weights: draw from `rng`, so that a run can be repeated."
        )
    return ""


def _none(answer: Callable) -> str:
    z, reason = _draws(answer, BATCH, BATCH)
    if z is None:
        return reason
    return "" if np.allclose(z, 1) else "for M = m no noise is to be added: all weights are exactly 1."


EXERCISES = Exercises(
    Exercise(
        "ghost_batch_norm",
        (
            Part("Rows [B, C]", 0.35, _rows),
            Part("Images [B, H, W, C]", 0.3, _images),
            Part("γ and β", 0.2, _scaled),
            Part("One ghost batch is batch norm", 0.15, _whole),
        ),
    ),
    Exercise(
        "synchronised_statistics",
        (Part("The mean of the whole batch", 0.4, _mean), Part("Its variance", 0.6, _variance)),
    ),
    Exercise(
        "decayed_gradients",
        (Part("Kernels get λ w", 0.5, _kernels), Part("Bias, γ and β get none", 0.5, _skipped)),
    ),
    Exercise(
        "noise_weights",
        (
            Part("Mean 1", 0.25, _means),
            Part("The variance keeps the covariance", 0.4, _variances),
            Part("Independent draws from rng", 0.2, _independent),
            Part("M = m: no noise", 0.15, _none),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
