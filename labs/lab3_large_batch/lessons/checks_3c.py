"""Checks of notebook 3c: ghost batch norm, batch norm across ranks, decay of kernels only, gradient noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.collectives import simulated
from course_lib.notebook.answers import array, compare, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

ROUNDING = {"rtol": 1e-5, "atol": 1e-8}


def _activations(*shape: int) -> np.ndarray:
    """Examples whose level and spread grow with their number, so that it shows who is put with whom."""
    random = np.random.default_rng(7)
    order = np.arange(1.0, shape[0] + 1).reshape(-1, *[1] * (len(shape) - 1))
    return order + np.sqrt(order) * random.normal([1.0, -2.0, 4.0], [1.0, 0.5, 2.0], shape)


# --- ghost_batch_norm

EPSILON = 0.1  # large, so that it shows where it stands
ONE, ZERO = np.ones(3), np.zeros(3)
GAMMA, BETA = np.array([1.0, 2.0, 0.5]), np.array([0.0, -1.0, 3.0])


def _normalises(
    answer: Callable, shape: tuple[int, ...], ghost: int, gamma: np.ndarray = ONE, beta: np.ndarray = ZERO
) -> None:
    x, gamma, beta = _activations(*shape), gamma.copy(), beta.copy()
    with unchanged(x, gamma, beta):
        result = answer(x, ghost, gamma, beta, EPSILON)
    result = array(result, shape)

    batches = len(x) // ghost
    pixels = tuple(range(2, len(shape)))  # the axes of height and width, once the ghost batches have one of their own
    stacked = x.reshape(batches, ghost, *shape[1:])
    mean, variance = (f((1, *pixels), keepdims=True) for f in (stacked.mean, stacked.var))
    count = stacked.size / variance.size
    deviation, deviant = stacked - mean, np.sqrt(variance + EPSILON)

    def over(axes: tuple[int, ...], groups: int = batches) -> np.ndarray:
        """Normalised over these axes, when x is cut into so many groups."""
        x_ = x.reshape(groups, -1, *shape[1:])
        return (x_ - x_.mean(axes, keepdims=True)) / np.sqrt(x_.var(axes, keepdims=True) + EPSILON)

    windows = np.stack([x[number : number + ghost] for number in range(batches)])
    at_windows = (windows - windows.mean((1, *pixels), keepdims=True)) / np.sqrt(
        windows.var((1, *pixels), keepdims=True) + EPSILON
    )

    mistakes = {
        "the statistics are those of the whole batch, not of each ghost.": over((0, 1, *pixels)),
        "`ghost` is the number of examples in a ghost batch, not the number of ghost batches.": over(
            (1, *pixels), groups=ghost
        ),
        "a ghost batch is made of consecutive examples: the first `ghost`, the next `ghost`, …": over(
            (0, *pixels), groups=ghost
        ),
        "the ghost batches overlap: the next one starts `ghost` examples further on.": at_windows,
        "the channels are mixed: each channel, the last axis, has its own mean and variance.": over(
            (1, *pixels, len(shape))
        ),
        "height and width are left out: the mean is over the examples *and* over all pixels.": over((1,)),
        "each example is normalised by itself: the mean is over the examples of a ghost batch, too.": over(pixels),
        "ε belongs under the root: √(σ² + ε), not σ + ε.": deviation / (np.sqrt(variance) + EPSILON),
        "ε is missing: √(σ² + ε).": deviation / np.sqrt(variance),
        "divide by the root of σ² + ε, not by σ² + ε.": deviation / deviant**2,
        "σ² is a mean over n values: /n, not /(n − 1).": deviation / np.sqrt(variance * count / (count - 1) + EPSILON),
    }
    mistakes = {why: gamma * wrong.reshape(shape) + beta for why, wrong in mistakes.items()}
    normal = (deviation / deviant).reshape(shape)
    mistakes |= {
        "γ and β are not applied.": normal,
        "β is not added.": gamma * normal,
        "γ is not applied.": normal + beta,
        "first times γ, then plus β: β is not scaled.": gamma * (normal + beta),
    }
    told = f"for x {list(shape)} and ghost = {ghost} the result"
    compare(result, gamma * normal + beta, told, mistakes, **ROUNDING)


def _rows(ghost_batch_norm: Callable) -> None:
    _normalises(ghost_batch_norm, (12, 3), ghost=4)


def _images(ghost_batch_norm: Callable) -> None:
    _normalises(ghost_batch_norm, (12, 2, 5, 3), ghost=4)


def _scaled(ghost_batch_norm: Callable) -> None:
    _normalises(ghost_batch_norm, (12, 3), 4, GAMMA, BETA)


def _one_ghost(ghost_batch_norm: Callable) -> None:
    _normalises(ghost_batch_norm, (6, 2, 2, 3), 6, GAMMA, BETA)


# --- synchronised_statistics


def _on_ranks(answer: Callable, x: np.ndarray, ranks: int) -> tuple[np.ndarray, list[np.ndarray], list]:
    """All activations as rows [n, 3], the ranks' shares as such, and what each rank returns: (mean, variance)."""

    def program(rank: simulated.Rank, share: np.ndarray) -> Any:
        with np.errstate(all="ignore"):
            return answer(rank, share)

    shares = np.split(x, ranks)
    results = []
    for rank, result in enumerate(simulated.run(program, [share.copy() for share in shares]).results):
        mean, variance = several(result, "the mean", "the variance", what=f"rank {rank}")
        mean = array(mean, (3,), f"for the mean rank {rank}")
        results.append((mean, array(variance, (3,), f"for the variance rank {rank}")))
    rows = [share.reshape(-1, 3) for share in shares]
    return np.concatenate(rows), rows, results


def _mean(synchronised_statistics: Callable) -> None:
    for shape, ranks in (((12, 3), 3), ((12, 2, 2, 3), 2)):
        rows, shares, results = _on_ranks(synchronised_statistics, _activations(*shape), ranks)
        for rank, (mean, _) in enumerate(results):
            mistakes = {
                "the mean is that of a rank's own share: all-reduce it.": shares[rank].mean(0),
                "the mean is N times too large: all_reduce adds up; divide by the number of ranks.": ranks
                * rows.mean(0),
                "the sum over pixels needs its divisor, too: a rank has b · H · W values.": rows.mean(0)
                * len(rows)
                / shape[0],
            }
            compare(mean, rows.mean(0), f"on rank {rank} of {ranks} the mean", mistakes, **ROUNDING)


def _variance(synchronised_statistics: Callable) -> None:
    for shape, ranks in (((12, 3), 3), ((12, 2, 2, 3), 2), ((8, 3), 1)):
        rows, shares, results = _on_ranks(synchronised_statistics, _activations(*shape), ranks)
        variance, square, squared_mean = rows.var(0), (rows**2).mean(0), rows.mean(0) ** 2
        within = np.mean([share.var(0) for share in shares], axis=0)
        squared_means = np.mean([share.mean(0) ** 2 for share in shares], axis=0)
        between = np.var([share.mean(0) for share in shares], axis=0)
        about_all = [((share - rows.mean(0)) ** 2).mean(0) for share in shares]
        for rank, (_, got) in enumerate(results):
            mistakes = {
                "that is the mean of the ranks' variances. It leaves out how far apart their means are. A variance is "
                "the mean of squared deviations: from which mean?": within,
                "that is the variance of the ranks' means; the variance within each rank is missing.": between,
                "the variance is that of a rank's own share: all-reduce.": shares[rank].var(0),
                "that is the mean square; the square of the mean is still to be subtracted.": square,
                "that is the standard deviation; asked for is its square.": np.sqrt(variance),
                "subtract the square of the mean of all, not the mean of the ranks' squares.": square - squared_means,
                "the deviations are from the common mean, as they should be, but those of a rank's own share only: "
                "all-reduce them, too.": about_all[rank],
                "the variance is N times too large: all_reduce adds up; divide by the number of ranks.": ranks
                * variance,
                "the mean square is N times too large: divide the sum by N.": ranks * square - squared_mean,
                "that is the sum of the ranks' variances; asked for is the variance of all examples.": ranks * within,
                "a variance is a mean over n values here: /n, not /(n − 1).": rows.var(0, ddof=1),
            }
            compare(got, variance, f"on rank {rank} of {ranks} the variance", mistakes, **ROUNDING)


FAR, SPREAD = 100.0, 0.01  # mean and standard deviation


def _far_from_zero(synchronised_statistics: Callable) -> None:
    x = (FAR + SPREAD * np.random.default_rng(5).normal(size=(256, 3))).astype(np.float32)
    expected = x.astype(float).var(0)
    *_, results = _on_ranks(synchronised_statistics, x, 4)
    *_, centred = _on_ranks(synchronised_statistics, x.astype(float) - FAR, 4)
    for rank, ((_, got), (_, near)) in enumerate(zip(results, centred)):
        told = f"for float32 values with mean {FAR:g} and standard deviation {SPREAD:g} the variance on rank {rank}"
        if same(near, expected, rtol=0.01) and not same(got, expected, rtol=0.01):
            raise Wrong(
                f"{told} is {got[0]:.2g}, and should be {expected[0]:.2g}; for the same values less {FAR:g}, in "
                "float64, it is right. That is cancellation: x² is about 10,000, where neighbouring float32 numbers "
                "are 0.001 apart, and a small difference of such numbers is only rounding error. Subtract the common "
                "mean from x first, then square."
            )
        compare(got, expected, told, rtol=0.01)


# --- decayed_gradients

SHAPES = {
    "conv2d/kernel:0": (3, 3, 1, 2),
    "batch_normalization/gamma:0": (2,),
    "batch_normalization/beta:0": (2,),
    "beta_head/kernel:0": (4, 3),
    "kernel_head/bias:0": (3,),
}
DECAY = 0.1


def _decays(answer: Callable) -> Iterator[tuple[str, bool, np.ndarray]]:
    """Of each variable the name, whether it is a kernel, and what is added to its gradient in multiples of λ w."""
    random = np.random.default_rng(3)
    weights = [random.normal(2, 1, shape) for shape in SHAPES.values()]
    gradients = [random.normal(size=shape) for shape in SHAPES.values()]
    with unchanged(*weights, *gradients):
        found = several(answer(list(SHAPES), list(weights), list(gradients), DECAY), *SHAPES)
    for name, got, w, g in zip(SHAPES, found, weights, gradients):
        yield name, name.endswith("kernel:0"), (array(got, g.shape, f"for {name} it") - g) / (DECAY * w)


def _kernels(decayed_gradients: Callable) -> None:
    for name, is_kernel, ratio in _decays(decayed_gradients):
        if not is_kernel:
            continue
        if not np.allclose(ratio, ratio.mean()):
            raise Wrong(f"λ w should be added to the gradient of {name}; what is added is something else.")
        mistakes = {
            f"{name} gets no decay: it is a kernel, whatever its layer is called: look at the end of the name.": 0,
            f"{name} gets 2 λ w: the gradient of ½ λ w² is λ w.": 2,
            f"{name} gets ½ λ w: the gradient of ½ λ w² is λ w.": 0.5,
            f"{name} gets −λ w: decay is added to the gradient, since the update subtracts it.": -1,
            f"{name} gets w: λ is missing.": 1 / DECAY,
        }
        compare(ratio.mean(), 1, f"what is added to the gradient of {name}, over λ w,", mistakes, **ROUNDING)


def _all_but_kernels(decayed_gradients: Callable) -> None:
    decays = list(_decays(decayed_gradients))
    for name, is_kernel, ratio in decays:
        if not is_kernel and not np.allclose(ratio, 0):
            raise Wrong(f"{name} gets decay: only kernels should; bias, γ (gamma) and β (beta) keep their gradients.")
    if all(np.allclose(ratio, 0) for _, _, ratio in decays):
        raise Wrong("nothing gets decay, the kernels neither.")


# --- noise_weights

BATCH, BASE = 32, 8
NUMBERS = 100_000  # at least so many are drawn
NORMAL = 3.0  # the kurtosis E[(z − 1)⁴] / σ⁴ of a normal distribution


def _draws(answer: Callable, batch: int = BATCH, base: int = BASE) -> np.ndarray:
    """Many draws [draws, batch]."""
    random = np.random.default_rng(11)
    with np.errstate(all="ignore"):
        z = np.stack([array(answer(batch, base, random), (batch,)) for _ in range(NUMBERS // batch)])
    if not np.isfinite(z).all():
        raise Wrong(
            f"for M = {batch} and m = {base} the weights are {z.flat[0]:.3g}: a root of a negative number? M is the "
            "larger one, and σ² grows with it."
        )
    return z


def _mean_one(noise_weights: Callable) -> None:
    z = _draws(noise_weights)
    if z.min() >= 0 and z.mean() > 1.05:
        raise Wrong(
            f"the mean of the weights is {z.mean():.2f}, and should be 1: without the negative weights it is too "
            "large, and so is the gradient. Leave them negative."
        )
    mistakes = {"the weights have mean 0: then so has the gradient, and nothing is learned. z ~ N(1, σ²).": 0}
    compare(z.mean(), 1, "the mean of the weights", mistakes, atol=0.05)


def _keeps_covariance(noise_weights: Callable) -> None:
    for batch, base in ((BATCH, BASE), (32, 2), (1_000, 64)):
        ratio = batch / base
        got, expected = _draws(noise_weights, batch, base).var(), ratio - 1
        told = f"for M = {batch} and m = {base} the variance of the weights"
        mistakes = {
            "NumPy's `normal` takes the standard deviation σ, not σ².": expected**2,
            "solve (1 + σ²) / M = 1 / m for σ²: what is the 1 for?": ratio,
            "solve (1 + σ²) / M = 1 / m for σ², and give `normal` σ.": ratio**2,
            "σ² is M/m − 1; its root is σ, and `normal` takes σ.": expected**0.5,
            "is it M / m, or m / M?": 1 - 1 / ratio,
            "M / m need not be a whole number: divide with /, not with //.": batch // base - 1,
            "that is 1/m − 1/M, the variance that the batch's *mean* lacks. A mean of M terms has an M-th of theirs.": (
                expected / batch
            ),
            "there is no noise.": 0,
            "the variance must grow with M, or a larger batch has less noise.": 1,
        }
        mistakes = {f"{told} is {got:.2f}, and should be {expected:g}: {why}": var for why, var in mistakes.items()}
        compare(got, expected, told, mistakes, rtol=0.02, atol=0.002)


def _normal(noise_weights: Callable) -> None:
    deviation = _draws(noise_weights) - 1
    variance = (deviation**2).mean()
    if variance < 1e-9:
        raise Wrong("there is no noise.")
    kurtosis, skew = (deviation**4).mean() / variance**2, (deviation**3).mean() / variance**1.5
    if abs(kurtosis - NORMAL) > 0.2 or abs(skew) > 0.1:
        raise Wrong(
            f"the weights are not normally distributed: E[(z − 1)⁴] / σ⁴ is {kurtosis:.1f} and E[(z − 1)³] / σ³ is "
            f"{skew:.1f}; for a normal distribution they are 3 and 0. Draw z ~ N(1, σ²)."
        )


def _independent(noise_weights: Callable) -> None:
    z = _draws(noise_weights)
    if z.std(axis=1).max() < 1e-9:
        raise Wrong("all examples of a batch have the same weight: draw one for each, independently.")
    if np.ptp(z, axis=0).max() < 1e-9:
        raise Wrong("each call gives the same weights: draw anew, from `rng`.")
    if z.mean(axis=1).var() * BATCH / z.var() < 0.5:
        raise Wrong("the weights of a batch depend on each other (do they add up to M?): draw them independently.")
    if not np.array_equal(*[noise_weights(6, 2, np.random.default_rng(1)) for _ in range(2)]):
        raise Wrong("the same generator in the same state gives other weights: draw from `rng`, to repeat a run.")


def _no_noise(noise_weights: Callable) -> None:
    if not np.allclose(_draws(noise_weights, BATCH, BATCH), 1):
        raise Wrong("for M = m no noise is to be added: all weights are exactly 1.")


EXERCISES = Exercises(
    Exercise(
        "ghost_batch_norm",
        Criterion("rows", "Rows [B, C]", 0.35, _rows),
        Criterion("images", "Images [B, H, W, C]", 0.3, _images),
        Criterion("scale-and-shift", "γ and β", 0.2, _scaled),
        Criterion("one-ghost", "One ghost batch is batch norm", 0.15, _one_ghost),
    ),
    Exercise(
        "synchronised_statistics",
        Criterion("mean", "The mean of the whole batch", 0.3, _mean),
        Criterion("variance", "Its variance", 0.4, _variance),
        Criterion("far-from-zero", "The variance of float32 values far from zero", 0.3, _far_from_zero),
    ),
    Exercise(
        "decayed_gradients",
        Criterion("kernels", "Kernels get λ w", 0.5, _kernels),
        Criterion("others", "Bias, γ and β get none", 0.5, _all_but_kernels),
    ),
    Exercise(
        "noise_weights",
        Criterion("mean", "Mean 1", 0.2, _mean_one),
        Criterion("variance", "The variance keeps the covariance", 0.3, _keeps_covariance),
        Criterion("normal", "A normal distribution", 0.15, _normal),
        Criterion("independent", "Independent draws from rng", 0.2, _independent),
        Criterion("no-noise", "M = m: no noise", 0.15, _no_noise),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
