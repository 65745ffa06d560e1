"""Checks of notebook 1b's update rules: each is held against Keras's own optimizer, step by step.

Where an answer is wrong, the plausible mistakes are tried out on the same gradients; the one that gives the
learner's numbers is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Part

# (w, gradient, state, η) → (new w, new state); the state of the first step is None.
Rule = Callable[[np.ndarray, np.ndarray, Any, float], "tuple[np.ndarray, Any]"]

STEPS = 50
ETA = 2.0**-6  # Keras keeps its learning rate in float32: this one is exact there
TOLERANCE = 1e-6


def gradients(small: bool = False) -> np.ndarray:
    """Gradients of 50 steps for a [2, 3] array of weights: of size about 1, or where `small` down to 0.0001.

    With small ones it shows where a rule puts its ε.
    """
    rng = np.random.default_rng(11)
    drawn = rng.choice([-1.0, 1.0], (STEPS, 2, 3), p=[0.3, 0.7]) * rng.uniform(0.5, 2, (STEPS, 2, 3))
    return drawn * 10.0 ** np.array([[0, -1, -2], [-3, -4, -4]]) if small else drawn


def start() -> np.ndarray:
    """The weights before the first step."""
    return np.array([[3.0, -2.0, 1.0], [0.5, 0.0, -1.0]])


@lru_cache
def keras_path(name: str, small: bool = False) -> np.ndarray:
    """The weights after each of 50 steps of Keras's own optimizer, in float64: [50, 2, 3].

    name: "sgd", "momentum", "nesterov", "adagrad", "rmsprop" or "adam".
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    keras = tf.keras.optimizers
    # TensorFlow takes a Python float for float32, and 0.999 rounded to that shifts Adam by 2e-6 in 50 steps.
    momentum, beta_1, beta_2 = np.array([0.9, 0.9, 0.999])
    make = {
        "sgd": keras.SGD,
        "momentum": partial(keras.SGD, momentum=momentum),
        "nesterov": partial(keras.SGD, momentum=momentum, nesterov=True),
        "adagrad": keras.Adagrad,
        "rmsprop": keras.RMSprop,
        "adam": partial(keras.Adam, beta_1=beta_1, beta_2=beta_2),
    }[name]
    optimizer = make(learning_rate=ETA, jit_compile=False)
    weights = tf.Variable(start())
    path = []
    for g in gradients(small):
        optimizer.apply_gradients([(tf.constant(g), weights)])
        path.append(weights.numpy())
    return np.array(path)


def walk(rule: Rule, small: bool = False) -> np.ndarray:
    """The weights after each of 50 steps of `rule`: [50, 2, 3]. ValueError, with a sentence, where it can't be."""
    w, state, path = start(), None, []
    for g in gradients(small):
        w, state = one_step(rule, w.copy(), g.copy(), state, ETA)
        path.append(w)
    return np.array(path)


def one_step(rule: Rule, w: np.ndarray, g: np.ndarray, state: Any, eta: float, **more: Any) -> tuple[np.ndarray, Any]:
    """A learner's rule: new weights and new state. ValueError, with a sentence, where it returns something else."""
    # A warning of NumPy's would go to stderr, and nbgrader gives no points to a cell that writes there.
    with np.errstate(all="ignore"):
        answer = rule(w, g, state, eta, **more)
    if answer is None:
        raise ValueError("the function returns nothing: return the new weights and the new state.")
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise ValueError("return two things, the new weights and the new state: `return w, state`.")
    new = np.asarray(answer[0], float)
    if new.shape != w.shape:
        raise ValueError(f"weights of shape {w.shape} become weights of shape {new.shape}; the shape should stay.")
    return new, answer[1]


def _memory(name: str, *, up: bool = False, eta_power: int = 1, reset: bool = False, flaw: str = "") -> Rule:
    """One of the rules with a mistake in it: the sign, η to a power, no memory between steps, or a named flaw."""

    def step(w: np.ndarray, g: np.ndarray, kept: Any, eta: float) -> tuple[np.ndarray, Any]:
        kept = None if reset else kept
        change, kept = _CHANGES[name](g, kept, flaw)
        return w + (1 if up else -1) * eta**eta_power * change, kept

    return step


def _with_momentum(g: np.ndarray, speed: Any, flaw: str, *, ahead: bool = False) -> tuple[np.ndarray, Any]:
    # Here the speed is the textbook's, without η: the same numbers while η stays.
    before = 0.0 if speed is None else speed
    now = 0.9 * before + (0.1 * g if flaw == "average" else g)
    if flaw == "late":
        return before, now
    if flaw == "ahead" or ahead:
        return (now if flaw == "no beta" else 0.9 * now) + g, now
    return now, now


def _with_sum(g: np.ndarray, total: Any, flaw: str) -> tuple[np.ndarray, Any]:
    before = (0.0 if flaw == "zero" else 0.1) if total is None else total
    square = {"plain": np.abs(g), "norm": np.sum(g * g)}.get(flaw, g * g)
    now = 0.9 * before + 0.1 * square if flaw == "average" else before + square
    used = before if flaw == "late" else now
    if flaw == "no root":
        return g / (used + 1e-7), now
    return g / np.sqrt(used + 1e-7), now


def _with_mean(g: np.ndarray, mean: Any, flaw: str) -> tuple[np.ndarray, Any]:
    before = 0.0 if mean is None else mean
    old, new = {"sum": (1.0, 1.0), "half sum": (0.9, 1.0), "swapped": (0.1, 0.9)}.get(flaw, (0.9, 0.1))
    now = old * before + new * (np.abs(g) if flaw == "plain" else g * g)
    if flaw == "no root":
        return g / (now + 1e-7), now
    return g / (np.sqrt(now) + 1e-7) if flaw == "outside" else g / np.sqrt(now + 1e-7), now


def _with_moments(g: np.ndarray, moments: Any, flaw: str) -> tuple[np.ndarray, Any]:
    first, second, count = moments or (0.0, 0.0, 0)
    count = 1 if flaw == "stuck" else count + 1
    first = first + (0.9 if flaw == "swapped" else 0.1) * (g - first)
    second = second + 0.001 * ((np.abs(g) if flaw == "plain" else g * g) - second)
    hat = 1e-7 / np.sqrt(1 - 0.999**count)  # Keras's ε, seen from behind the correction
    unbiased, spread = first / (1 - 0.9**count), second / (1 - 0.999**count)
    kept = first, second, count
    if flaw == "biased":
        return first / (np.sqrt(second) + 1e-7), kept
    if flaw == "first only":
        return unbiased / (np.sqrt(second) + 1e-7), kept
    if flaw == "second only":
        return first / (np.sqrt(spread) + hat), kept
    if flaw == "no root":
        return unbiased * np.sqrt(1 - 0.999**count) / (second + 1e-7), kept
    if flaw == "paper":
        return unbiased / (np.sqrt(spread) + 1e-7), kept
    if flaw == "inside":
        return unbiased / np.sqrt(spread + 1e-7), kept
    return unbiased / (np.sqrt(spread) + hat), kept


def _with_nothing(g: np.ndarray, nothing: Any, flaw: str) -> tuple[np.ndarray, Any]:
    return g, nothing


_CHANGES = {
    "sgd": _with_nothing,
    "momentum": _with_momentum,
    "nesterov": partial(_with_momentum, ahead=True),
    "adagrad": _with_sum,
    "rmsprop": _with_mean,
    "adam": _with_moments,
}

_FORGOT = {
    "momentum": "the velocity starts anew in each step, which leaves plain SGD: keep it in the state, and return it.",
    "nesterov": "the velocity starts anew in each step: keep it in the state, and return it.",
    "adagrad": "the sum of squares starts anew in each step: keep it in the state, and return it.",
    "rmsprop": "the mean of squares starts anew in each step: keep it in the state, and return it.",
    "adam": "m, v and the step's number start anew in each step: keep all three in the state, and return them.",
}

_FLAWS = {
    "momentum": {
        "average": "the gradient enters the velocity with the factor 1 − β; in Keras it enters whole, times η.",
        "late": "w moves by the velocity of the step before: update the velocity first.",
        "ahead": "this is Nesterov's rule: without it, w moves by the new velocity, v, and by nothing else.",
    },
    "nesterov": {
        "average": "the gradient enters the velocity with the factor 1 − β; in Keras it enters whole, times η.",
        "no beta": "the new velocity is added whole: look ahead by β v.",
    },
    "adagrad": {
        "zero": "the sum starts at 0: Keras starts it at 0.1, so that the first steps are not too long.",
        "no root": "the root is missing: divide by the root of the sum of squares.",
        "average": "the squares are averaged with decay, which makes this RMSprop: Adagrad adds them up.",
        "late": "w moves by the sum of the step before: add this gradient's square first.",
        "plain": "gradients are added up, not their squares.",
        "norm": "the squares of all weights are added into one number: keep one sum for each weight.",
    },
    "rmsprop": {
        "sum": "the squares are added up, which makes this Adagrad: RMSprop keeps a mean, ρ v + (1 − ρ) g².",
        "half sum": "the new square enters whole: in a mean it has the weight 1 − ρ.",
        "swapped": "ρ and 1 − ρ are swapped: the old mean has the weight ρ.",
        "no root": "the root is missing: divide by the root of the mean square.",
        "plain": "gradients are averaged, not their squares.",
        "outside": "ε stands outside the root: Keras has it inside, √(v + ε).",
    },
    "adam": {
        "biased": "the bias correction is forgotten: m and v start at 0 and are too small at first.",
        "first only": "the bias correction of v is forgotten: divide by √(1 − β₂ᵗ) under the fraction too.",
        "second only": "the bias correction of m is forgotten.",
        "stuck": "the step's number t stays 1: count it in the state, and raise the betas to the power t.",
        "swapped": "β₁ and 1 − β₁ are swapped: the old mean has the weight β₁.",
        "no root": "the root is missing: divide by the root of v.",
        "plain": "v averages gradients, not their squares.",
        "paper": "this is Algorithm 1 of the paper, with ε beside √v̂; Keras has ε beside √v, before the correction.",
        "inside": "ε stands inside the root: Adam adds it to √v.",
    },
}


def _mistakes(name: str) -> list[tuple[Rule, str]]:
    made = [
        (_memory(name, up=True), "the weights move up the slope: check the sign."),
        (_memory(name, eta_power=2), "η is applied twice."),
        (_memory(name, eta_power=0), "η is not applied."),
    ]
    if name in _FORGOT:
        made.append((_memory(name, reset=True), _FORGOT[name]))
    if name == "nesterov":
        made.append(
            (_memory("momentum"), "this is plain momentum: Nesterov's rule also looks ahead, by β v with the new v.")
        )
    return made + [(_memory(name, flaw=flaw), reason) for flaw, reason in _FLAWS.get(name, {}).items()]


def _same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return bool(np.all(np.abs(a - b) <= tolerance))


def _compare(name: str, rule: Rule, *, small: bool, tolerance: float) -> str:
    try:
        path = walk(rule, small)
    except ValueError as error:
        return str(error)
    expected = keras_path(name, small)
    if _same(path, expected, tolerance):
        return ""
    if not np.all(np.isfinite(path)):
        return f"after step {1 + int(np.argmin(np.isfinite(path).all((1, 2))))} the weights are not finite numbers."
    for mistaken, reason in _mistakes(name):
        if _same(path, walk(mistaken, small), 1e-9):
            return reason
    wrong = int(np.argmax(np.abs(path - expected).max((1, 2)) > tolerance))
    place = np.unravel_index(np.argmax(np.abs(path - expected)[wrong]), path.shape[1:])
    before = (path[wrong - 1] if wrong else start())[place]
    return (
        f"step {wrong + 1} with η = {ETA:.6f} and g = {gradients(small)[wrong][place]:.6f} should lead from "
        f"w = {before:.6f} to {expected[wrong][place]:.6f}, yours leads to {path[wrong][place]:.6f}."
    )


def _pure(rule: Rule) -> str:
    w, g, state = start(), gradients()[0], None
    for step in range(2):
        given, slope = w.copy(), g.copy()
        first, then = one_step(rule, given, slope, state, ETA)
        first = first.copy()
        if not np.array_equal(given, w):
            return "the caller's w is changed in place (`w -= …`): write `w = w - …`, which makes a new array."
        if not np.array_equal(slope, g):
            return "the caller's g is changed in place: make a new array."
        if not np.array_equal(one_step(rule, w.copy(), g.copy(), state, ETA)[0], first):
            where = "the state is changed in place" if step else "something is remembered outside the state"
            return f"called twice with the same arguments, the function answers differently: {where}. Make a new one."
        w, state = first, then
    one_step(rule, np.zeros(5), np.ones(5), None, ETA)
    return ""


def _rule(name: str, title: str) -> Exercise:
    return Exercise(
        name,
        (
            Part(f"{title}, {STEPS} steps", 0.5, lambda rule: _compare(name, rule, small=False, tolerance=1e-5)),
            Part(
                f"Equal to Keras's to {TOLERANCE:g}, small gradients included",
                0.3,
                lambda rule: (
                    _compare(name, rule, small=False, tolerance=TOLERANCE)
                    or _compare(name, rule, small=True, tolerance=TOLERANCE)
                ),
            ),
            Part("All memory is in the state", 0.2, _pure),
        ),
    )


EXERCISES = (
    _rule("sgd", "SGD"),
    _rule("momentum", "Momentum"),
    _rule("nesterov", "Nesterov"),
    _rule("adagrad", "Adagrad"),
    _rule("rmsprop", "RMSprop"),
    _rule("adam", "Adam"),
)
