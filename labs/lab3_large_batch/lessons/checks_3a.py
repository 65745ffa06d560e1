"""Checks of notebook 3a: the gradient noise scale, the curve of updates by batch size, and the Hessian of a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.notebook.answers import array, case, compare, name_mistake, number, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

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
        expected = _ratio([(g**2).sum(1).mean() for g in gradients], sizes)
        with case(f"{few} gradients of {small} examples, {many} of {large}"), np.errstate(all="ignore"):
            got = number(noise_scale(*(g.copy() for g in gradients), small, large))
            compare(got, expected, "the noise scale", mistakes, rtol=1e-5)


def _keeps_gradients(noise_scale: Callable) -> None:
    gradients = _drawn(4, 64, 8, 3)
    with unchanged(*gradients):
        noise_scale(*gradients, 4, 64)


# --- floor_and_bend

BATCHES = np.array([8.0, 32, 128, 512, 2048])


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
    }
    told = "the pair of floor and bend of 20 · (1 + 300 / B)"
    compare(_fitted(floor_and_bend, updates), (floor, bend), told, mistakes, rtol=1e-5)


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
    }
    with case("updates that scatter by a tenth"):
        compare(
            _fitted(floor_and_bend, updates), weighted(1 / updates), "the pair of floor and bend", mistakes, rtol=1e-3
        )


# --- hessian_vector. L(w) = ½ wᵀ A w + ¼ Σ c wᵢ⁴, whose Hessian is A + 3 diag(c w²): known, and different at each w.

W, V = np.array([0.5, -1.0, 2.0, 0.25]), np.array([1.0, 2.0, -1.0, 0.5])
A = np.array([[4.0, 1, 0, 0.5], [1, 3, -1, 0], [0, -1, 2, 0.3], [0.5, 0, 0.3, 1]])
C = np.array([0.3, 0.2, 0.1, 0.4])
HESSIAN = A + np.diag(3 * C * W**2)  # at W


def _gradient(w: np.ndarray) -> np.ndarray:
    return A @ w + C * w**3


def _product(hessian_vector: Callable, v: np.ndarray = V) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array(hessian_vector(_gradient, W.copy(), v.copy()), v.shape)


def _error(found: np.ndarray, right: np.ndarray) -> float:
    """The largest error, relative to the largest number."""
    return float(np.abs(found - right).max() / np.abs(right).max())


def _known_loss(hessian_vector: Callable) -> None:
    found, right = _product(hessian_vector), HESSIAN @ V
    if same(found, right, rtol=1e-4):
        return
    mistakes = {
        "it is twice H v: between w + ε v and w − ε v lies 2 ε.": 2 * right,
        "it is half of H v: between w and w + ε v lies ε, not 2 ε.": right / 2,
        "it is −H v: which gradient is subtracted from which?": -right,
        "it is the gradient at w; H v is how the gradient changes along v.": _gradient(W),
        "it is H w: step along v, not along w.": HESSIAN @ W,
        "each number is vᵀ H v: H v has a number for each weight.": np.full(4, V @ right),
        "it is H v for a v of length 1: v has its own length.": right / np.linalg.norm(V),
    }
    name_mistake(found, right, mistakes, rtol=1e-2)
    if np.abs(found).max() < 1e-2 * np.abs(right).max():
        raise Wrong("it is almost 0: divide the difference of the gradients by the distance of the points.")
    raise Wrong(f"for a loss whose H v is {np.round(right, 3)} it returns {np.round(found, 3)}.")


def _both_sides(hessian_vector: Callable) -> None:
    error = _error(_product(hessian_vector), HESSIAN @ V)
    if not error < 1e-2:
        raise Wrong("first make it right.")
    if not error < 1e-6:
        raise Wrong(
            f"it is right to {error:.0e} only. With gradients at w + ε v and at w − ε v, one on each side, "
            "the error falls as ε² in place of ε."
        )


def _any_length(hessian_vector: Callable) -> None:
    for length in (1e3, 1e-3):
        v = V * length / np.linalg.norm(V)
        error = _error(_product(hessian_vector, v), HESSIAN @ v)
        if not error < 1e-4:
            raise Wrong(
                f"with a v of length {length:g} it is off by {100 * error:.2g} %: make the *step* as long as ε, "
                "whatever the length of v."
            )


def _keeps_vectors(hessian_vector: Callable) -> None:
    w, v = W.copy(), V.copy()
    with unchanged(w, v):
        hessian_vector(_gradient, w, v)


# --- power_iteration


def _matrix(*eigenvalues: float) -> np.ndarray:
    turned, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(len(eigenvalues),) * 2))
    return turned @ np.diag(eigenvalues) @ turned.T


def _start(dims: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=dims) * 3


def _iterated(power_iteration: Callable, matrix: np.ndarray, steps: int) -> tuple[float, np.ndarray, int]:
    """The eigenvalue and vector that it finds, and with how many products."""
    taken, v = 0, _start(len(matrix))

    def product(v: np.ndarray) -> np.ndarray:
        nonlocal taken
        taken += 1
        if not np.isfinite(v).all():
            raise Wrong("v has grown beyond all numbers: bring it back to length 1 after each product.")
        return matrix @ v

    with unchanged(v):
        value, vector = several(power_iteration(product, v, steps), "the eigenvalue", "the vector")
    return number(value, "for the eigenvalue it"), array(vector, v.shape, "for the vector it"), taken


def _value(power_iteration: Callable) -> None:
    matrix = _matrix(5.0, 3.0, 1.0, 0.5)
    value, _, _ = _iterated(power_iteration, matrix, 60)
    if same(value, 5, rtol=1e-4):
        return
    start = _start(4)
    unit = start / np.linalg.norm(start)
    mistakes = {
        "it is 25, the square: H was applied once too often in the estimate vᵀ H v.": 25,
        "it is vᵀ H v of the first v: in each step v is replaced by H v, at length 1.": start @ matrix @ start,
        "it is vᵀ H v of the first v at length 1: in each step v is replaced by H v, at length 1.": unit
        @ matrix
        @ unit,
        "it is ‖H v‖ of the first v: in each step v is replaced by H v, at length 1.": np.linalg.norm(matrix @ unit),
        "it is 1, the length of v; the eigenvalue is vᵀ H v.": 1,
        "it is 9.5, the sum of all eigenvalues.": 9.5,
        "it is the smallest eigenvalue, 0.5; wanted is the largest.": 0.5,
    }
    name_mistake(value, 5, mistakes, rtol=1e-3)
    if abs(value) > 1e6:
        raise Wrong(f"it is {value:.3g}: bring v back to length 1 after each product.")
    raise Wrong(f"the eigenvalues are 5, 3, 1 and 0.5, and after 60 steps it says {value:.4g}.")


def _sign(power_iteration: Callable) -> None:
    value, _, _ = _iterated(power_iteration, _matrix(2.0, 1.0, -4.0), 60)
    with case("the eigenvalues are 2, 1 and −4"):
        mistakes = {"it says 4: a length has no sign, vᵀ H v has one.": 4}
        compare(value, -4, "the largest in magnitude", mistakes, rtol=1e-4)


def _vector(power_iteration: Callable) -> None:
    matrix = _matrix(5.0, 3.0, 1.0, 0.5)
    _, vector, _ = _iterated(power_iteration, matrix, 60)
    length = np.linalg.norm(vector)
    if not np.isclose(length, 1, rtol=1e-6):
        raise Wrong(f"the vector has length {length:.4g}; it should be 1.")
    difference = np.abs(matrix @ vector - 5 * vector).max()
    if not difference < 1e-3:
        raise Wrong(f"H v is not 5 v: they differ by up to {difference:.2g}.")


def _products(power_iteration: Callable) -> None:
    steps = 25
    _, _, taken = _iterated(power_iteration, _matrix(*np.linspace(50, 1, 60)), steps)
    if taken < steps:
        raise Wrong(f"{steps} steps were asked for, and it took {taken} products.")
    if taken > steps + 1:
        raise Wrong(
            f"{steps} steps took {taken} products with H. One for each step, and one for the value at the end, "
            "are enough; keep H v in a variable."
        )
    value, _, _ = _iterated(power_iteration, 1e9 * _matrix(5.0, 3.0, 1.0, 0.5), 400)
    if not np.isclose(value, 5e9):
        raise Wrong("with 400 steps the numbers overflow.")


# --- relative_product

SCALE = np.array([2.0, 0.5, 3.0, 1.5])


def _scaled_hessian(relative_product: Callable) -> None:
    scale, v = SCALE.copy(), V.copy()
    with unchanged(scale, v):
        turned = relative_product(lambda vector: HESSIAN @ vector, scale)
        if not callable(turned):
            raise Wrong("it should return a function v → [d], as `product` is one; what it returns can't be called.")
        found = array(turned(v), v.shape, "for a vector it")
    mistakes = {
        "only v is scaled: the second derivative has a factor of s from each of its two sides.": HESSIAN @ (SCALE * V),
        "only the product is scaled: the second derivative has a factor of s from each of its two sides.": SCALE
        * (HESSIAN @ V),
        "it divides by s: that is the Hessian by w where w = u / s.": (HESSIAN @ (V / SCALE)) / SCALE,
        "s² stands in front: one s belongs to each side, sᵢ Hᵢⱼ sⱼ.": SCALE**2 * (HESSIAN @ V),
        "s² is multiplied with v: one s belongs to each side, sᵢ Hᵢⱼ sⱼ.": HESSIAN @ (SCALE**2 * V),
        "it is H v: s has no effect.": HESSIAN @ V,
        "the s on the two sides cancel: multiply on both.": SCALE * (HESSIAN @ (V / SCALE)),
        "the s on the two sides cancel: multiply with s on both.": (HESSIAN @ (SCALE * V)) / SCALE,
    }
    compare(found, SCALE * (HESSIAN @ (SCALE * V)), "the product", mistakes)


def _same_function(relative_product: Callable) -> None:
    """One function in two scales has one relative Hessian."""
    found = []
    for factor in (np.ones(4), np.array([4.0, 4.0, 1.0, 1.0])):  # w → factor · w, and the Hessian by the new weights
        hessian = HESSIAN / np.outer(factor, factor)
        turned = relative_product(lambda v, hessian=hessian: hessian @ v, SCALE * factor)
        found.append(array(turned(V.copy()), V.shape, "for a vector it"))
    if not same(found[1], found[0]):
        raise Wrong("one function, two of its weights four times as long: its products differ, and should be the same.")


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
    Exercise(
        "hessian_vector",
        Criterion("known-loss", "H v of a known loss", 0.5, _known_loss),
        Criterion("both-sides", "From both sides", 0.2, _both_sides),
        Criterion("any-length", "A v of any length", 0.2, _any_length),
        Criterion("unchanged", "w and v stay as they are", 0.1, _keeps_vectors),
    ),
    Exercise(
        "power_iteration",
        Criterion("value", "The eigenvalue", 0.4, _value),
        Criterion("sign", "Its sign", 0.2, _sign),
        Criterion("vector", "The vector", 0.2, _vector),
        Criterion("products", "One product a step", 0.2, _products),
    ),
    Exercise(
        "relative_product",
        Criterion("product", "Products with the Hessian by u", 0.6, _scaled_hessian),
        Criterion("same-function", "One function, two scales", 0.4, _same_function),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
