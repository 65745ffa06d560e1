"""Checks of notebook 3a, second half: a Hessian times a vector, and its largest eigenvalue by power iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part

# hessian_vector. L(w) = ½ wᵀ A w + ¼ Σ c wᵢ⁴, whose Hessian is A + 3 diag(c w²): known, and different at each w.

W, V = np.array([0.5, -1.0, 2.0, 0.25]), np.array([1.0, 2.0, -1.0, 0.5])
A = np.array([[4.0, 1, 0, 0.5], [1, 3, -1, 0], [0, -1, 2, 0.3], [0.5, 0, 0.3, 1]])
C = np.array([0.3, 0.2, 0.1, 0.4])


def _gradient(w: np.ndarray) -> np.ndarray:
    return A @ w + C * w**3


def _hessian(w: np.ndarray) -> np.ndarray:
    return A + np.diag(3 * C * w**2)


def _product(answer: Callable, w: np.ndarray = W, v: np.ndarray = V) -> tuple[np.ndarray | None, str]:
    found = answer(_gradient, w.copy(), v.copy())
    if found is None:
        return None, "it returns None: is there a `return`?"
    found = np.asarray(found)
    if found.shape != v.shape:
        return None, f"w and v have shape {v.shape}; it returns shape {found.shape}."
    return found, ""


def _right_product(answer: Callable) -> str:
    found, reason = _product(answer)
    if found is None:
        return reason
    right = _hessian(W) @ V
    if np.allclose(found, right, rtol=1e-4):
        return ""
    for other, why in (
        (2 * right, "it is twice H v: between w + ε v and w − ε v lies 2 ε."),
        (right / 2, "it is half of H v: between w and w + ε v lies ε, not 2 ε."),
        (-right, "it is −H v: which gradient is subtracted from which?"),
        (_gradient(W), "it is the gradient at w; H v is how the gradient changes along v."),
        (_hessian(W) @ W, "it is H w: step along v, not along w."),
        (np.full(4, V @ right), "each number is vᵀ H v: H v has a number for each weight."),
    ):
        if np.allclose(found, other, rtol=1e-2):
            return why
    if np.abs(found).max() < 1e-2 * np.abs(right).max():
        return "it is almost 0: divide the difference of the gradients by the distance of the points."
    if np.allclose(found * np.linalg.norm(V), right, rtol=1e-2):
        return "it is H v for a v of length 1: v has its own length."
    return f"for a loss whose H v is {np.round(right, 3)} it returns {np.round(found, 3)}."


def _accurate(answer: Callable) -> str:
    found, reason = _product(answer)
    if found is None:
        return reason
    right = _hessian(W) @ V
    off = np.abs(found - right).max() / np.abs(right).max()
    if off < 1e-6:
        return ""
    if off < 1e-2:
        return (
            f"it is right to {off:.0e} only. With gradients at w + ε v and at w − ε v, one on each side, "
            "the error falls as ε² in place of ε."
        )
    return "first make it right."


def _any_length(answer: Callable) -> str:
    """A product with v of length 1000 or 0.001 is still H v: it is linear in v."""
    for length in (1e3, 1e-3):
        v = V * length / np.linalg.norm(V)
        found, reason = _product(answer, v=v)
        if found is None:
            return reason
        right = _hessian(W) @ v
        off = np.abs(found - right).max() / np.abs(right).max()
        if not off < 1e-4:
            return (
                f"with a v of length {length:g} it is off by {100 * off:.2g} %: make the *step* as long as ε, "
                "whatever the length of v."
            )
    return ""


def _unchanged(answer: Callable) -> str:
    w, v = W.copy(), V.copy()
    answer(_gradient, w, v)
    for name, now, before in (("w", w, W), ("v", v, V)):
        if not np.array_equal(now, before):
            return f"it changes {name}: write `{name} = {name} + …`, not `{name} += …`."
    return ""


# power_iteration


def _matrix(*eigenvalues: float) -> np.ndarray:
    random = np.random.default_rng(3)
    turned, _ = np.linalg.qr(random.normal(size=(len(eigenvalues),) * 2))
    return turned @ np.diag(eigenvalues) @ turned.T


def _iterate(answer: Callable, matrix: np.ndarray, steps: int) -> tuple[Any, Any, int, str]:
    """What the answer returns for a matrix, how many products it took, and what is wrong with its form."""
    taken = [0]
    start = np.random.default_rng(4).normal(size=len(matrix)) * 3

    def product(v: np.ndarray) -> np.ndarray:
        taken[0] += 1
        if not np.isfinite(v).all():
            raise OverflowError("v has grown beyond all numbers: bring it back to length 1 after each product.")
        return matrix @ v

    given = start.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        found = answer(product, given, steps)
    if not np.array_equal(given, start):
        return None, None, 0, "it changes the v that it was given: write `v = …`, not `v /= …`."
    if found is None:
        return None, None, 0, "it returns None: is there a `return`?"
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        return None, None, 0, "it should return two things: the eigenvalue and the vector."
    value, vector = found
    if np.ndim(value) != 0:
        return None, None, 0, f"the eigenvalue is one number; yours has shape {np.shape(value)}."
    if np.shape(vector) != start.shape:
        return None, None, 0, f"the vector has shape {start.shape}; yours has {np.shape(vector)}."
    return float(value), np.asarray(vector), taken[0], ""


def _value(answer: Callable) -> str:
    matrix = _matrix(5.0, 3.0, 1.0, 0.5)
    value, _, _, reason = _iterate(answer, matrix, 60)
    if reason:
        return reason
    if np.isclose(value, 5, rtol=1e-4):
        return ""
    start = np.random.default_rng(4).normal(size=4) * 3
    unit = start / np.linalg.norm(start)
    for other, why in (
        (25.0, "it is 25, the square: H was applied once too often in the estimate vᵀ H v."),
        (start @ matrix @ start, "it is vᵀ H v of the first v: in each step v is replaced by H v, at length 1."),
        (unit @ matrix @ unit, "it is vᵀ H v of the first v: in each step v is replaced by H v, at length 1."),
        (np.linalg.norm(matrix @ unit), "it is ‖H v‖ of the first v: in each step v is replaced by H v, at length 1."),
        (1.0, "it is 1, the length of v; the eigenvalue is vᵀ H v."),
        (np.trace(matrix), "it is 9.5, the sum of all eigenvalues."),
        (0.5, "it is the smallest eigenvalue, 0.5; wanted is the largest."),
    ):
        if np.isclose(value, other, rtol=1e-3):
            return why
    if not np.isfinite(value) or abs(value) > 1e6:
        return f"it is {value:.3g}: bring v back to length 1 after each product."
    return f"the eigenvalues are 5, 3, 1 and 0.5, and after 60 steps it says {value:.4g}."


def _sign(answer: Callable) -> str:
    value, _, _, reason = _iterate(answer, _matrix(2.0, 1.0, -4.0), 60)
    if reason:
        return reason
    if np.isclose(value, -4, rtol=1e-4):
        return ""
    if np.isclose(value, 4, rtol=1e-4):
        return "the eigenvalues are 2, 1 and −4, and it says 4: a length has no sign, vᵀ H v has one."
    return f"the eigenvalues are 2, 1 and −4: the largest in magnitude is −4, and it says {value:.4g}."


def _vector(answer: Callable) -> str:
    matrix = _matrix(5.0, 3.0, 1.0, 0.5)
    _, vector, _, reason = _iterate(answer, matrix, 60)
    if reason:
        return reason
    length = np.linalg.norm(vector)
    if not np.isclose(length, 1, rtol=1e-6):
        return f"the vector has length {length:.4g}; it should be 1."
    if not np.allclose(matrix @ vector, 5 * vector, atol=1e-3):
        return f"H v is not 5 v: they differ by up to {np.abs(matrix @ vector - 5 * vector).max():.2g}."
    return ""


def _economy(answer: Callable) -> str:
    steps = 25
    _, _, taken, reason = _iterate(answer, _matrix(*np.linspace(50, 1, 60)), steps)
    if reason:
        return reason
    if taken < steps:
        return f"{steps} steps were asked for, and it took {taken} products."
    if taken > steps + 1:
        return (
            f"{steps} steps took {taken} products with H. One for each step, and one for the value at the end, "
            "are enough; keep H v in a variable."
        )
    value, _, _, reason = _iterate(answer, 1e9 * _matrix(5.0, 3.0, 1.0, 0.5), 400)
    return reason or ("" if np.isfinite(value) and np.isclose(value, 5e9) else "with 400 steps the numbers overflow.")


EXERCISES = Exercises(
    Exercise(
        "hessian_vector",
        (
            Part("H v of a known loss", 0.5, _right_product),
            Part("From both sides", 0.2, _accurate),
            Part("A v of any length", 0.2, _any_length),
            Part("w and v stay as they are", 0.1, _unchanged),
        ),
    ),
    Exercise(
        "power_iteration",
        (
            Part("The eigenvalue", 0.4, _value),
            Part("Its sign", 0.2, _sign),
            Part("The vector", 0.2, _vector),
            Part("One product a step", 0.2, _economy),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
