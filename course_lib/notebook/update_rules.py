"""Helpers for judges of update rules: run a learner's rule on given gradients, and compare its steps.

An update rule is one step of an optimizer, (w, gradient, state, η) → (new w, new state); the first state is None. The
right steps, and those of typical mistakes, are computed for all steps at once, from the weights and gradients of the
learner's steps. So no judge contains a rule that a learner could submit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.notebook.answers import array, case, compare, name_mistake, returned, same, unchanged
from course_lib.notebook.judging import Wrong

Rule = Callable[..., tuple[np.ndarray, Any]]

WRONG_SIGN = "the weights move up the slope: subtract."
ETA_MISSING = "η is not applied."
ROUNDING = 1e-9
NAMING_STEPS = 10  # enough to distinguish the mistakes; later, some of them make the weights diverge


@dataclass(frozen=True)
class Walk:
    """The steps of a rule.

    Attributes:
        before, after: weights before and after each step, [steps, *shape of the weights].
        gradients: [steps, *shape of the weights].
        rates: learning rates, [steps, 1, …].
    """

    before: np.ndarray
    after: np.ndarray
    gradients: np.ndarray
    rates: np.ndarray  # [steps, 1, …]


def take_step(rule: Rule, w: np.ndarray, g: np.ndarray, state: Any, eta: float, **settings: Any) -> tuple:
    """Call the rule once; return the new weights, float64, and the new state. Raises Wrong for other return values."""
    with np.errstate(all="ignore"):
        answer = returned(rule(w, g, state, eta, **settings))
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise Wrong("return two things, the new weights and the new state: `return w, state`.")
    return np.array(array(answer[0], w.shape, "as the new weights it"), float), answer[1]


def walk(rule: Rule, start: np.ndarray, gradients: np.ndarray, rates: Sequence[float], **settings: Any) -> Walk:
    """Call the rule from `start`, once for each gradient and learning rate. Raises Wrong if a step fails."""
    weights, state = [start], None
    for g, eta in zip(gradients, rates):
        w, state = take_step(rule, weights[-1].copy(), g.copy(), state, eta, **settings)
        if not np.isfinite(w).all():
            raise Wrong(f"after step {len(weights)} the weights are not finite numbers.")
        weights.append(w)
    rates = np.reshape(rates, (-1, *[1] * start.ndim))
    return Walk(np.array(weights[:-1]), np.array(weights[1:]), gradients, rates)


def collected(x: np.ndarray, decay: float, start: float | np.ndarray = 0.0) -> np.ndarray:
    """The memory after each step of m ← decay · m + x, along the first axis of x."""
    memories, memory = np.empty_like(x), start
    for step, now in enumerate(x):
        memories[step] = memory = decay * memory + now
    return memories


def delayed(x: np.ndarray, first: float | np.ndarray = 0.0) -> np.ndarray:
    """The values x, delayed by one step; `first` is the value of the first step."""
    return np.concatenate([np.broadcast_to(first, (1, *x.shape[1:])), x[:-1]])


@np.errstate(all="ignore")
def compare_walk(
    taken: Walk, expected: np.ndarray, mistakes: Mapping[str, np.ndarray], *, rtol: float = 0.0, atol: float
) -> None:
    """Check the weights after each step; raise `Wrong` with the mistake, or with the first wrong step.

    Args:
        taken: the learner's steps.
        expected: the right weights after each step, [steps, …].
        mistakes: sentence → the change of the weights in each step with this mistake, [steps, …].
        rtol, atol: tolerances of the comparison.
    """
    if same(taken.after, expected, rtol, atol):
        return
    first = slice(NAMING_STEPS)
    mistaken = {sentence: (taken.before + change)[first] for sentence, change in mistakes.items()}
    name_mistake(taken.after[first], expected[first], mistaken, rtol=ROUNDING, atol=ROUNDING)
    right = np.isclose(taken.after, expected, rtol, atol)
    step = int(np.argmin(right.reshape(len(right), -1).all(axis=1)))
    error = np.abs(taken.after[step] - expected[step])
    place = (step, *np.unravel_index(np.argmax(error), error.shape))
    w, g, eta = taken.before[place], taken.gradients[place], taken.rates[step].item()
    with case(f"step {step + 1} from w = {w:.6g} with g = {g:.6g} and η = {eta:.6g}"):
        compare(taken.after[place] - w, expected[place] - w, "the change of w", rtol=0)


def judge_memory(rule: Rule, start: np.ndarray, gradients: np.ndarray, eta: float) -> None:
    """Check in two steps that the rule changes no argument and stores nothing outside the state. Raises Wrong."""
    w, state = start.copy(), None
    for number, g in enumerate(gradients[:2].copy()):
        with unchanged(w, g):
            new, after = take_step(rule, w, g, state, eta)
        if not np.isfinite(new).all():
            raise Wrong(f"after step {number + 1} the weights are not finite numbers.")
        if not np.array_equal(take_step(rule, w, g, state, eta)[0], new):
            where = "the state is changed in place" if number else "something is stored outside the state"
            raise Wrong(f"the rule returns different results for the same arguments: {where}. Return a new state.")
        w, state = new, after
