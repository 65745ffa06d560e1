"""Checks of the first half of notebook 3a: the gradient noise scale, and the curve of updates by batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part, one_number

# noise_scale


def _drawn(small: int, large: int, few: int, many: int, dims: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Gradients [few, dims] and [many, dims] of batches of `small` and of `large` examples."""
    random = np.random.default_rng([small, large, few, many])
    mean, sigma = random.normal(size=dims), random.uniform(1, 4, dims)
    return tuple(random.normal(mean, sigma / size**0.5, (n, dims)) for size, n in ((small, few), (large, many)))


def _estimate(squares: tuple[float, float], sizes: tuple[float, float]) -> float:
    """From |g|² = a + b / m at two sizes m."""
    a, b = np.linalg.solve([[1, 1 / size] for size in sizes], squares)
    return float(b / a)


def _squares(gradients: np.ndarray) -> float:
    return float((gradients**2).sum(1).mean())


def _by_hand(answer: Callable) -> str:
    # |g|² is 7 for two examples and 4 for eight: 3 + 8 / m.
    value = answer(np.array([[7**0.5, 0.0]]), np.array([[0.0, 2.0]]), 2, 8)
    if reason := one_number(value):
        return reason
    if np.isclose(value, 8 / 3):
        return ""
    told = "|g|² = 7 with 2 examples and 4 with 8 "
    for wrong, why in (
        (3 / 8, "give tr(C) = 8 and |G|² = 3; you return |G|² / tr(C): the other way round."),
        (8, "give tr(C) = 8; that must still be divided by |G|² = 3."),
        (3, "give |G|² = 3 and tr(C) = 8; you return |G|², not their ratio."),
        (8 / 4, "give tr(C) = 8. You divide it by the 4 of the large batch, which still has noise in it: |G|² is 3."),
        (8 / 7, "give tr(C) = 8. You divide it by the 7 of the small batch, which has its noise in it: |G|² is 3."),
        (_estimate((7**0.5, 2), (2, 8)), "are squared norms; you use the norms."),
        (_estimate((7, 4), (8, 2)), "belong to 2 and 8 in this order; you have the sizes the wrong way round."),
        ((8 / 3) ** 0.5, "give tr(C) / |G|² = 8/3; you return its root."),
        (-8 / 3, "give 8/3; yours has the wrong sign: the small batch is the noisier one."),
    ):
        if np.isclose(value, wrong):
            return told + why
    return told + f"lie on |G|² + tr(C) / m with |G|² = 3 and tr(C) = 8, a ratio of 8/3; you return {value:.4g}."


def _many(answer: Callable) -> str:
    for small, large, few, many in ((4, 64, 50, 30), (16, 1024, 20, 7)):
        a, b = _drawn(small, large, few, many)
        value = answer(a.copy(), b.copy(), small, large)
        if reason := one_number(value):
            return reason
        if np.isclose(value, _estimate((_squares(a), _squares(b)), (small, large))):
            continue
        told = f"{few} gradients of {small} examples, {many} of {large}: "
        with np.errstate(all="ignore"):
            for pair, why in (
                (
                    [float((g.mean(0) ** 2).sum()) for g in (a, b)],
                    "you average the gradients and then square: the noise averages out before it is measured. "
                    "Square each gradient's norm first, then take the mean.",
                ),
                (
                    [float((g**2).sum()) for g in (a, b)],
                    "you add up over the gradients; add up over their components (axis 1) and take the mean over the "
                    "gradients (axis 0).",
                ),
                (
                    [float(np.linalg.norm(g, axis=1).mean() ** 2) for g in (a, b)],
                    "you square the mean of the norms; take the mean of the squares.",
                ),
                (
                    [float((g**2).sum(1)[0]) for g in (a, b)],
                    "you use the first gradient of each; take the mean over all.",
                ),
                (
                    [float(g.var(0).sum()) for g in (a, b)],
                    "you use the variance of the gradients; the formula wants their mean squared norm.",
                ),
            ):
                if np.isclose(value, _estimate(pair, (small, large))):
                    return told + why
        return told + f"expected {_estimate((_squares(a), _squares(b)), (small, large)):.4g}, got {value:.4g}."
    return ""


def _as_found(answer: Callable) -> str:
    a, b = _drawn(4, 64, 8, 3)
    kept = a.copy(), b.copy()
    answer(a, b, 4, 64)
    if not (np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])):
        return "it changes the arrays that it was given."
    return ""


# floor_and_bend

_BATCHES = np.array([8.0, 32, 128, 512, 2048])


def _pair(value: Any) -> str:
    if value is None:
        return "it returns None."
    if np.shape(value) != (2,):
        return f"it returns {value!r}; a floor and a bend are expected."
    return ""


def _exact(answer: Callable) -> str:
    floor, bend = 20.0, 300.0
    updates = floor + floor * bend / _BATCHES
    value = answer(_BATCHES.copy(), updates.copy())
    if reason := _pair(value):
        return reason
    got = np.asarray(value, float)
    if np.allclose(got, (floor, bend)):
        return ""
    told = "20 · (1 + 300 / B) has the floor 20 and the bend 300; "
    for wrong, why in (
        ((bend, floor), "you return the bend first."),
        ((floor, floor * bend), "your second number is floor times bend: divide by the floor."),
        ((floor, 1 / bend), "your second number is one over the bend."),
        ((floor, floor / (floor * bend)), "your second number is one over the bend."),
        (tuple(np.polyfit(_BATCHES, updates, 1)[::-1]), "you fit a line over B; updates are a line over 1/B."),
        ((updates.min(), bend), "the least of the measured updates is not yet the floor."),
    ):
        if np.allclose(got, wrong):
            return told + why
    return told + f"you return {got[0]:.4g} and {got[1]:.4g}."


def _weighted(batches: np.ndarray, updates: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Floor and bend with the least Σ (weight · error)²."""
    slope, floor = np.polyfit(1 / batches, updates, 1, w=weights)
    return np.array([floor, slope / floor])


def _relative(answer: Callable) -> str:
    updates = (20 + 6000 / _BATCHES) * [1.1, 0.9, 1.1, 0.9, 1.1]
    value = answer(_BATCHES.copy(), updates.copy())
    if reason := _pair(value):
        return reason
    got = np.asarray(value, float)
    if np.allclose(got, _weighted(_BATCHES, updates, 1 / updates), rtol=1e-3):
        return ""
    told = "with updates that scatter by a tenth: "
    if np.allclose(got, _weighted(_BATCHES, updates, np.ones(5)), rtol=1e-3):
        return told + (
            "you minimise the errors in updates, so that the smallest batch, with the most updates, decides alone. "
            "Divide each row by its number of updates."
        )
    if np.allclose(got, _weighted(_BATCHES, updates, updates**-0.5), rtol=1e-3):
        return told + "you divide by the root of the updates; divide by the updates, on both sides."
    if np.allclose(got, _weighted(_BATCHES, updates, updates), rtol=1e-3):
        return told + "you multiply by the updates; divide by them."
    right = _weighted(_BATCHES, updates, 1 / updates)
    return told + f"expected {right[0]:.4g} and {right[1]:.4g}, got {got[0]:.4g} and {got[1]:.4g}."


EXERCISES = Exercises(
    Exercise(
        "noise_scale",
        (
            Part("From two squared norms", 0.5, _by_hand),
            Part("From many gradients", 0.4, _many),
            Part("The gradients stay as they are", 0.1, _as_found),
        ),
    ),
    Exercise(
        "floor_and_bend",
        (
            Part("A curve without scatter", 0.6, _exact),
            Part("Relative errors count", 0.4, _relative),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
