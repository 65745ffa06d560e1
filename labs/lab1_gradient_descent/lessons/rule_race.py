"""Update rules on surfaces of two weights, for the race of notebook 1f.

A rule is `w, state = rule(w, g, state, eta, …)`, as in notebook 1b. `momentum` and `adam` take the same steps as the
rules that the learner writes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Rule = Callable[..., tuple[np.ndarray, Any]]
STEPS = 1000  # of a walk: enough to see whether a rule stays where it arrived
LATEST = 100  # a rule that arrives later counts as having failed
RATES = 2.0 ** np.arange(-8, 2.25, 0.25)
DECAYS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.98)
NEAR = 1e-3  # of the height of the start above the minimum
DECAY_NAMES = {"momentum": "beta", "nesterov": "beta", "rmsprop": "rho", "adam": "beta1"}


class Surface(NamedTuple):
    """A loss of two weights [2, …], its gradient, the start [2], and the loss at the minimum."""

    loss: Callable[[np.ndarray], np.ndarray]
    gradient: Callable[[np.ndarray], np.ndarray]
    start: np.ndarray
    lowest: float = 0.0


class Run(NamedTuple):
    """A rule's weights at the start and after each step, [steps + 1, 2], with its settings."""

    settings: dict[str, float]
    path: np.ndarray


def momentum(w: np.ndarray, g: np.ndarray, state: Any, eta: float, beta: float = 0.9) -> tuple[np.ndarray, Any]:
    """One step of the heavy ball: the step before, times β, and a step of plain SGD. The state is the place before."""
    rolled = 0.0 if state is None else beta * (w - state)
    return w + rolled - eta * g, w


def adam(w: np.ndarray, g: np.ndarray, state: Any, eta: float, beta1: float = 0.9) -> tuple[np.ndarray, Any]:
    """One step of Adam with β₂ = 0.999. The weights of a mean add up to the share that its correction divides out."""
    held = (0.0,) * 4 if state is None else state
    sums = tuple(decay * old + new for decay, old, new in zip((beta1, beta1, 0.999, 0.999), held, (g, 1.0, g * g, 1.0)))
    return w - eta * (sums[0] / sums[1]) / (np.sqrt(sums[2] / sums[3]) + 1e-7), sums


def walk(
    rule: Rule,
    gradient: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    eta: float | np.ndarray,
    steps: int = 80,
    **settings: float | np.ndarray,
) -> np.ndarray:
    """The weights at the start and after each step of a rule, [steps + 1, 2].

    With arrays of n for η and the settings, and a start [2, n], the walks of all of them: [steps + 1, 2, n].
    """
    path, state = [start], None
    with np.errstate(all="ignore"):  # a learning rate that is too large ends in infinity
        for _ in range(steps):
            w, state = rule(path[-1], gradient(path[-1]), state, eta, **settings)
            path.append(w)
    return np.array(path)


def steps_needed(path: np.ndarray, surface: Surface) -> np.ndarray:
    """Steps until the height above the minimum stays below a thousandth of the start's; `LATEST` + 1 if it is later.

    For a path [steps + 1, 2], or for several [steps + 1, 2, n].
    """
    with np.errstate(all="ignore"):
        height = surface.loss(np.moveaxis(path, 1, 0)) - surface.lowest
        far = ~(height <= NEAR * (surface.loss(surface.start) - surface.lowest))
    last = len(path) - np.argmax(far[::-1], axis=0)
    return np.where(far.any(axis=0), np.minimum(last, LATEST + 1), 0)


def best(name: str, rule: Rule, surface: Surface, decays: tuple[float, ...] = DECAYS) -> Run:
    """The run with the fewest steps; of equals, the one that is lowest after `LATEST` steps."""
    decay = DECAY_NAMES.get(name)
    pairs = list(itertools.product(RATES, decays if decay else (None,)))
    paths = _walks(rule, surface, [{"eta": eta, **({decay: value} if decay else {})} for eta, value in pairs])
    with np.errstate(all="ignore"):
        height = np.nan_to_num(surface.loss(paths[LATEST]), nan=np.inf)
    found = int(np.lexsort((height, steps_needed(paths, surface)))[0])
    eta, value = pairs[found]
    return Run({"eta": eta, **({decay: value} if decay else {})}, paths[..., found])


def _walks(rule: Rule, surface: Surface, settings: list[dict[str, float]]) -> np.ndarray:
    """The paths with all settings, [steps + 1, 2, n]."""
    arrays = {name: np.array([one[name] for one in settings]) for name in settings[0]}
    start = np.repeat(surface.start[:, None], len(settings), axis=1)
    try:
        return walk(rule, surface.gradient, start, steps=STEPS, **arrays)
    except Exception:  # a learner's rule that takes one number for η
        paths = [walk(rule, surface.gradient, surface.start, steps=LATEST + 20, **one) for one in settings]
        return np.stack(paths, axis=-1)


def race(
    rules: Mapping[str, Rule], surfaces: Mapping[str, Surface], report: Callable[[float, str], object] = lambda *_: None
) -> dict[str, dict[str, Run]]:
    """The best run of each rule on each surface: surface → rule → run.

    Args:
        report: called with the share of the work that is done, and what comes next.
    """
    runs: dict[str, dict[str, Run]] = {surface: {} for surface in surfaces}
    pairs = list(itertools.product(surfaces, rules))
    for number, (surface, name) in enumerate(pairs):
        report(number / len(pairs), f"{name}, {surface}")
        runs[surface][name] = best(name, rules[name], surfaces[surface])
    return runs
