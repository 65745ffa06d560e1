"""Checks of notebook 3a: the gradient noise scale, and the curve of updates by batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.notebook.answers import case, compare, number, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion

# --- noise_scale


def _drawn(small: int, large: int, few: int, many: int, dims: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Gradients [few, dims] of batches of `small` examples, and [many, dims] of batches of `large` ones."""
    random = np.random.default_rng([small, large, few, many])
    mean, sigma = random.normal(size=dims), random.uniform(1, 4, dims)
    return tuple(random.normal(mean, sigma / size**0.5, (n, dims)) for size, n in ((small, few), (large, many)))


def _ratio(squares: Sequence[float], sizes: Sequence[float]) -> float:
    """b / a of |g|² = a + b / m, from |g|² at two sizes m."""
    a, b = np.linalg.solve([[1, 1 / size] for size in sizes], squares)
    return float(b / a)


def _two_norms(noise_scale: Callable) -> None:
    mistakes = {
        "tr(C) = 8 and |G|² = 3; you return |G|² / tr(C): the other way round.": 3 / 8,
        "this is tr(C) = 8; it must still be divided by |G|² = 3.": 8,
        "this is |G|² = 3; asked for is tr(C) = 8 divided by it.": 3,
        "you divide tr(C) = 8 by the 4 of the large batch, which still has noise in it: |G|² is 3.": 8 / 4,
        "you divide tr(C) = 8 by the 7 of the small batch, which has its noise in it: |G|² is 3.": 8 / 7,
        "the formula wants squared norms; you use the norms.": _ratio((7**0.5, 2), (2, 8)),
        "7 belongs to 2 examples and 4 to 8; you have the sizes the wrong way round.": _ratio((7, 4), (8, 2)),
        "tr(C) / |G|² is 8/3; you return its root.": (8 / 3) ** 0.5,
        "you divide by the sum of the sizes where it is their difference: l · q − s · p is |G|² times (l − s).": (
            8 / 3 * (8 + 2) / (8 - 2)
        ),
        "you take the noise from the spread of the gradients, but one gradient has none: a rank has one before the "
        "all-reduce and one after. The mean squared lengths are enough.": 0,
        "8/3 is right, yours has the wrong sign: the small batch is the noisier one.": -8 / 3,
    }
    with case("|g|² is 7 with 2 examples and 4 with 8"):
        with np.errstate(all="ignore"):
            got = number(noise_scale(np.array([[7**0.5, 0.0]]), np.array([[0.0, 2.0]]), 2, 8))
        compare(got, 8 / 3, "tr(C) / |G|², with tr(C) = 8 and |G|² = 3,", mistakes, rtol=1e-5)


MISMEASURED = {
    "you average the gradients and then square: the noise averages out before it is measured. Square each gradient's "
    "norm first, then take the mean.": lambda g: (g.mean(0) ** 2).sum(),
    "you add up over the gradients; add up over their components (axis 1) and take the mean over the gradients "
    "(axis 0).": lambda g: (g**2).sum(),
    "you square the mean of the norms; take the mean of the squares.": lambda g: np.linalg.norm(g, axis=1).mean() ** 2,
    "you use the first gradient of each; take the mean over all.": lambda g: (g[0] ** 2).sum(),
    "you use the variance of the gradients; the formula wants their mean squared norm.": lambda g: g.var(0).sum(),
}


def _many_gradients(noise_scale: Callable) -> None:
    for small, large, few, many in ((4, 64, 50, 30), (16, 1024, 20, 7)):
        gradients, sizes = _drawn(small, large, few, many), (small, large)
        mistakes = {why: _ratio([square(g) for g in gradients], sizes) for why, square in MISMEASURED.items()}
        p, q = lengths = [(g**2).sum(1).mean() for g in gradients]
        expected = _ratio(lengths, sizes)
        of_signal = (large * q - small * p) / (large - small)
        mistakes["you take tr(C) as small · (p − q), as if the large batch had no noise; it has tr(C) / large."] = (
            small * (p - q) / of_signal
        )
        with case(f"{few} gradients of {small} examples, {many} of {large}"), np.errstate(all="ignore"):
            got = number(noise_scale(*(g.copy() for g in gradients), small, large))
            compare(got, expected, "the noise scale", mistakes, rtol=1e-5)


def _keeps_gradients(noise_scale: Callable) -> None:
    gradients = _drawn(4, 64, 8, 3)
    with unchanged(*gradients):
        noise_scale(*gradients, 4, 64)


# --- floor_and_bend

BATCHES = np.array([8.0, 32, 128, 512, 2048])
ITERATED = 1e-3  # relative error of a fit that an optimizer has ended early


def _fitted(answer: Callable, updates: np.ndarray) -> tuple[float, float]:
    with np.errstate(all="ignore"):
        floor, bend = several(answer(BATCHES.copy(), updates.copy()), "the floor", "the bend")
    return number(floor, "for the floor it"), number(bend, "for the bend it")


def _without_scatter(floor_and_bend: Callable) -> None:
    floor, bend = 20.0, 300.0
    updates = floor + floor * bend / BATCHES
    mistakes = {
        "you return the bend first.": (bend, floor),
        "your second number is floor times bend: divide by the floor.": (floor, floor * bend),
        "your second number is one over the bend.": (floor, 1 / bend),
        "you fit a line over B; updates are a line over 1/B.": tuple(np.polyfit(BATCHES, updates, 1)[::-1]),
        "the least of the measured updates is not yet the floor.": (updates.min(), bend),
        "you fit a line to the logarithms: that is a power of B, which has no floor.": (
            lambda power, constant: (np.exp(constant), power)
        )(*np.polyfit(np.log(BATCHES), np.log(updates), 1)),
    }
    told = "the pair of floor and bend of 20 · (1 + 300 / B)"
    compare(_fitted(floor_and_bend, updates), (floor, bend), told, mistakes, rtol=ITERATED)


def _iterated(updates: np.ndarray, errors: Callable, slope: Callable) -> tuple[float, float]:
    """Floor and bend with the least squares of `errors(q)`, q = updates / fit, by Gauss and Newton's method."""
    rows = np.column_stack([np.ones(len(BATCHES)), 1 / BATCHES])
    a_c = np.array([20.0, 6000.0])
    for _ in range(30):
        fit = rows @ a_c
        q = updates / fit
        changes = (slope(q) * -q / fit)[:, None] * rows  # of the errors with a and c
        a_c = a_c - np.linalg.lstsq(changes, errors(q), rcond=None)[0]
    return float(a_c[0]), float(a_c[1] / a_c[0])


def _relative_errors(floor_and_bend: Callable) -> None:
    updates = (20 + 6000 / BATCHES) * [1.1, 0.9, 1.1, 0.9, 1.1]

    def weighted(weights: np.ndarray) -> tuple[float, float]:
        """With the least Σ (weight · error)²."""
        slope, floor = np.polyfit(1 / BATCHES, updates, 1, w=weights)
        return floor, slope / floor

    mistakes = {
        "you minimise the errors in updates, so that the smallest batch, with the most updates, decides alone. "
        "Divide each row by its number of updates.": weighted(np.ones(5)),
        "you divide by the root of the updates; divide by the updates, on both sides.": weighted(updates**-0.5),
        "you multiply by the updates; divide by them.": weighted(updates),
        "the curve goes through the first and the last batch only; all batches should count.": _through(updates, 0, -1),
        "the floor is the mean of the updates with the largest batches, and only the bend is fitted; fit both.": (
            _with_floor(updates, updates[-2:].mean())
        ),
    }
    others = (  # errors relative to the fit, and of the logarithm: right as well
        _iterated(updates, lambda q: q - 1, np.ones_like),
        _iterated(updates, np.log, lambda q: 1 / q),
    )
    with case("updates that scatter by a tenth"):
        got = _fitted(floor_and_bend, updates)
        if not any(same(got, other, ITERATED) for other in others):
            compare(got, weighted(1 / updates), "the pair of floor and bend", mistakes, rtol=ITERATED)


def _through(updates: np.ndarray, one: int, other: int) -> tuple[float, float]:
    """Floor and bend of the curve through two of the points."""
    slope = (updates[one] - updates[other]) / (1 / BATCHES[one] - 1 / BATCHES[other])
    floor = updates[one] - slope / BATCHES[one]
    return floor, slope / floor


def _with_floor(updates: np.ndarray, floor: float) -> tuple[float, float]:
    """This floor, and the bend with the least squared relative errors."""
    x, y = floor / BATCHES / updates, 1 - floor / updates
    return floor, (x @ y) / (x @ x)


EXERCISES = Exercises(
    Exercise(
        "noise_scale",
        Criterion("two-norms", "From two squared norms", 0.5, _two_norms),
        Criterion("many-gradients", "From many gradients", 0.4, _many_gradients),
        Criterion("unchanged", "The gradients stay as they are", 0.1, _keeps_gradients),
    ),
    Exercise(
        "floor_and_bend",
        Criterion("no-scatter", "A curve without scatter", 0.6, _without_scatter),
        Criterion("relative-errors", "Relative errors count", 0.4, _relative_errors),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
