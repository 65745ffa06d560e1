"""What judges of update rules share: a learner's rule is walked over given gradients.

An update rule is one step of an optimizer, (w, gradient, state, η) → (new w, new state); the first step's state is
None. What the right rule would do, or one with a mistake, is calculated for all steps at once, from the weights and
gradients of the learner's walk: so no judge has a rule that could be handed in.
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
NAMING_STEPS = 10  # as many tell the mistakes apart; later some blow the weights up


@dataclass(frozen=True)
class Walk:
    """The steps of a rule. All arrays are [steps, …], with the weights' shape behind."""

    before: np.ndarray
    after: np.ndarray
    gradients: np.ndarray
    rates: np.ndarray  # [steps, 1, …]


def take_step(rule: Rule, w: np.ndarray, g: np.ndarray, state: Any, eta: float, **settings: Any) -> tuple:
    """New weights, in float64, and the new state. Raises Wrong where the rule returns something else."""
    with np.errstate(all="ignore"):
        answer = returned(rule(w, g, state, eta, **settings))
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise Wrong("return two things, the new weights and the new state: `return w, state`.")
    return np.array(array(answer[0], w.shape, "as the new weights it"), float), answer[1]


def walk(rule: Rule, start: np.ndarray, gradients: np.ndarray, rates: Sequence[float], **settings: Any) -> Walk:
    """The steps from `start`, one for each gradient and learning rate. Raises Wrong where one cannot be taken."""
    weights, state = [start], None
    for g, eta in zip(gradients, rates):
        w, state = take_step(rule, weights[-1].copy(), g.copy(), state, eta, **settings)
        if not np.isfinite(w).all():
            raise Wrong(f"after step {len(weights)} the weights are not finite numbers.")
        weights.append(w)
    rates = np.reshape(rates, (-1, *[1] * start.ndim))
    return Walk(np.array(weights[:-1]), np.array(weights[1:]), gradients, rates)


def collected(x: np.ndarray, decay: float, start: float | np.ndarray = 0.0) -> np.ndarray:
    """What a memory holds after each step: m ← decay · m + x, along the first axis."""
    held, memory = np.empty_like(x), start
    for step, now in enumerate(x):
        held[step] = memory = decay * memory + now
    return held


def delayed(x: np.ndarray, first: float | np.ndarray = 0.0) -> np.ndarray:
    """The values of the step before."""
    return np.concatenate([np.broadcast_to(first, (1, *x.shape[1:])), x[:-1]])


@np.errstate(all="ignore")
def compare_walk(
    taken: Walk, expected: np.ndarray, mistakes: Mapping[str, np.ndarray], *, rtol: float = 0.0, atol: float
) -> None:
    """Pass where the weights are as expected after each step; else name the mistake, or the first step that is wrong.

    Args:
        expected: the weights after each step [steps, …].
        mistakes: sentence → how a rule with this mistake changes the weights in each step [steps, …].
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
    """Two steps that change no argument, and remember nothing outside the state. Raises Wrong."""
    w, state = start.copy(), None
    for number, g in enumerate(gradients[:2].copy()):
        with unchanged(w, g):
            new, after = take_step(rule, w, g, state, eta)
        if not np.isfinite(new).all():
            raise Wrong(f"after step {number + 1} the weights are not finite numbers.")
        if not np.array_equal(take_step(rule, w, g, state, eta)[0], new):
            where = "the state is changed in place" if number else "something is remembered outside the state"
            raise Wrong(f"called twice with the same arguments, the rule answers differently: {where}. Make a new one.")
        w, state = new, after
