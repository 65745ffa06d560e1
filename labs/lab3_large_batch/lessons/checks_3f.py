"""Checks of notebook 3f: the Hessian of a loss, and the image that fools a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course_lib.notebook.answers import array, case, compare, name_mistake, number, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

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
        "it is H v divided by ‖v‖²: multiply by the length of v, don't divide by it.": right / (V @ V),
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
        "it is the smallest eigenvalue, 0.5; return the largest.": 0.5,
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


def _turned(relative_product: Callable, hessian: np.ndarray, scale: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What the function that is returned makes of v."""
    turned = relative_product(lambda vector: hessian @ vector, scale)
    if not callable(turned):
        raise Wrong("it should return a function v → [d], as `product` is one; what it returns can't be called.")
    try:
        found = turned(v)
    except TypeError as error:
        raise Wrong(
            f"it should return a function v → [d], as `product` is one; called with such a v: {error}."
        ) from None
    return array(found, v.shape, "for a vector it")


def _scaled_hessian(relative_product: Callable) -> None:
    scale, v = SCALE.copy(), V.copy()
    with unchanged(scale, v):
        found = _turned(relative_product, HESSIAN, scale, v)
    mistakes = {
        "only v is scaled: the second derivative has a factor of s from each of its two sides.": HESSIAN @ (SCALE * V),
        "only the product is scaled: the second derivative has a factor of s from each of its two sides.": SCALE
        * (HESSIAN @ V),
        "it divides by s: that is the Hessian by w where w = u / s.": (HESSIAN @ (V / SCALE)) / SCALE,
        "s² stands in front: one s belongs to each side, sᵢ Hᵢⱼ sⱼ.": SCALE**2 * (HESSIAN @ V),
        "s² is multiplied with v: one s belongs to each side, sᵢ Hᵢⱼ sⱼ.": HESSIAN @ (SCALE**2 * V),
        "it is H v: s has no effect.": HESSIAN @ V,
        "√s stands on both sides: ∂wᵢ/∂uᵢ is s, and each side has this factor.": np.sqrt(SCALE)
        * (HESSIAN @ (np.sqrt(SCALE) * V)),
        "the s on the two sides cancel: multiply on both.": SCALE * (HESSIAN @ (V / SCALE)),
        "the s on the two sides cancel: multiply with s on both.": (HESSIAN @ (SCALE * V)) / SCALE,
    }
    compare(found, SCALE * (HESSIAN @ (SCALE * V)), "the product", mistakes)


def _same_function(relative_product: Callable) -> None:
    """One function in two scales has one relative Hessian."""
    found = []
    for factor in (np.ones(4), np.array([4.0, 4.0, 1.0, 1.0])):  # w → factor · w, and the Hessian by the new weights
        hessian = HESSIAN / np.outer(factor, factor)
        found.append(_turned(relative_product, hessian, SCALE * factor, V.copy()))
    if not same(found[1], found[0]):
        raise Wrong("one function, two of its weights four times as long: its products differ, and should be the same.")


# --- fool

IMAGES = np.array([[60.0, 100, 250], [120, 3, 90]]).reshape(2, 1, 3, 1)
SLOPES = np.array([[0.2, -0.5, 0.01], [-3.0, -0.02, 0.7]]).reshape(2, 1, 3, 1)


def _fooled(fool: Callable, epsilon: float) -> np.ndarray:
    return array(fool(IMAGES.astype(np.uint8), SLOPES.copy(), epsilon), IMAGES.shape)


def _steepest_in_a_box(fool: Callable) -> None:
    epsilon = 2.0
    lengths = np.sqrt((SLOPES**2).sum(axis=(1, 2, 3), keepdims=True))
    steps = {
        "the loss falls: it is the direction of training.": -epsilon * np.sign(SLOPES),
        "the steps are as long as the gradient tells. To first order each pixel adds its slope times its step to the "
        "loss: is there a reason not to use the whole of what a pixel may change by?": epsilon * SLOPES,
        "the gradient is cut off at ε. To first order each pixel adds its slope times its step to the loss: is there a "
        "reason not to use the whole of what a pixel may change by?": np.clip(SLOPES, -epsilon, epsilon),
        "that is the steepest step of *length* ε. Here it is each single pixel that may change by ε.": epsilon
        * SLOPES
        / lengths,
        "that is the steepest step of *length* ε, over all images at once. Here it is each single pixel that may "
        "change by ε.": epsilon * SLOPES / np.linalg.norm(SLOPES),
        "only the pixel with the largest slope uses the whole of ε; what keeps the others from it?": epsilon
        * SLOPES
        / np.abs(SLOPES).max(axis=(1, 2, 3), keepdims=True),
        "pixels whose loss rises as they get darker move the wrong way: which sign does their slope have?": epsilon
        * np.ones_like(SLOPES),
        "only pixels with a positive slope move; where the slope is negative, a darker pixel raises the loss.": (
            epsilon * (SLOPES > 0)
        ),
        "ε is in the units of the pixels already.": 255 * epsilon * np.sign(SLOPES),
        "it returns the step alone; return the moved images.": epsilon * np.sign(SLOPES) - IMAGES,
    }
    mistakes = {why: np.clip(IMAGES + step, 0, 255) for why, step in steps.items()}
    mistakes |= {why: IMAGES + step for why, step in list(steps.items())[-1:]}
    expected = IMAGES + epsilon * np.sign(SLOPES)
    compare(_fooled(fool, epsilon), expected, "two images of three pixels moved by at most 2", mistakes, atol=1e-4)


def _stays_an_image(fool: Callable) -> None:
    moved = IMAGES + 16 * np.sign(SLOPES)
    mistakes = {
        "no pixel may leave 0 to 255.": moved,
        "pixels beyond 255 or below 0 come back at the other end: whole numbers of 8 bits wrap around. Clip before you "
        "convert to 8 bits.": moved % 256,
        "these images go from 0 to 255, not to 1.": np.clip(moved, 0, 1),
    }
    compare(_fooled(fool, 16), np.clip(moved, 0, 255), "two images moved by at most 16", mistakes, atol=1e-4)


def _keeps_images(fool: Callable) -> None:
    images, slopes = IMAGES.copy(), SLOPES.copy()
    with unchanged(images, slopes):
        fool(images, slopes, 4)


EXERCISES = Exercises(
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
    Exercise(
        "fool",
        Criterion("steepest", "The steepest step that is allowed", 0.6, _steepest_in_a_box),
        Criterion("image", "Still an image", 0.3, _stays_an_image),
        Criterion("unchanged", "Images and gradients stay as they are", 0.1, _keeps_images),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
