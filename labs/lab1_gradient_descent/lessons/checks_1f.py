"""Checks of notebook 1f: Nesterov's momentum in Keras's form, and η and β for a ravine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course_lib.notebook.answers import case, number, several
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.update_rules import collected, delayed
from labs.lab1_gradient_descent.lessons.rules_in_keras import STARTS_ANEW, Changes, update_rule, velocity_mistakes


def _nesterov_mistakes(g: np.ndarray, eta: np.ndarray) -> Changes:
    v = collected(eta * g, 0.9)
    return {
        STARTS_ANEW: -(0.9 * eta * g + eta * g),
        "that is how θ moves, by u alone. w lies ahead of θ, by β u before the step and by another β u after it.": -v,
        "w's old place has the old β u in it: going from θ to w, take that away again.": -1.9 * v,
        "the new velocity is added whole, and the step once more: look ahead by β u.": -(v + eta * g),
        "that is the way ahead of θ alone: θ itself moves, too, and takes w with it.": -0.9 * v,
        "that is how the way ahead changes, β (u − old u): θ itself moves, too, by u.": -0.9 * (v - delayed(v)),
        "η g is added where it should be subtracted.": -0.9 * v + eta * g,
        "that is θ, the point behind: Keras keeps the point ahead.": -(v - 0.9 * delayed(v)),
        **velocity_mistakes(v, lambda v, step: 0.9 * v + step, g, eta),
    }


# --- heavy_ball

# (λ_min, λ_max, steps until both distances are a thousandth of the start's)
RAVINES = ((1.0, 10.0, 25), (1.0, 50.0, 62), (0.02, 4.0, 128), (2.0, 2000.0, 300))


def _steps_in_a_ravine(eta: float, beta: float, ends: tuple[float, float], most: int) -> int | None:
    """Steps of momentum until both distances stay a thousandth of the start's.

    `most` + 1 if there are more; None if it diverges.
    """
    curvatures = np.array(ends)
    place, velocity, last = np.ones(2), np.zeros(2), 0
    for step in range(1, most + 1):
        velocity = beta * velocity - eta * curvatures * place
        place = place + velocity
        distance = np.max(np.abs(place))
        if not distance < 1e6:
            return None
        last = step if distance > 1e-3 else last
    return last + 1


def _in_budget(*ravines: tuple[float, float, int]) -> Callable[[Callable], None]:
    def judge(heavy_ball: Callable) -> None:
        for low, high, budget in ravines:
            with case(f"λ from {low:g} to {high:g}"):
                eta, beta = map(number, several(heavy_ball(low, high), "η", "β"))
                _judge_settings(eta, beta, low, high, budget)

    return judge


def _judge_settings(eta: float, beta: float, low: float, high: float, budget: int) -> None:
    if not eta > 0:
        raise Wrong(f"η is {eta:g}; it should be above 0.")
    if not 0 <= beta < 1:
        raise Wrong(f"β is {beta:g}; it lies between 0 and 1" + (", and η comes first." if 0 < eta < 1 else "."))
    with np.errstate(all="ignore"):
        needed = _steps_in_a_ravine(eta, beta, (low, high), 4 * budget)
    if needed is not None and needed <= budget:
        return
    root = (high**0.5 - low**0.5) / (high**0.5 + low**0.5)
    if np.allclose((beta, eta), ((1 + root) ** 2 / high, root**2), rtol=0.05):
        raise Wrong("β and η are exchanged: η comes first.")
    count = "diverges" if needed is None else f"needs {f'over {4 * budget}' if needed > 4 * budget else needed} steps"
    told = f"with η = {eta:.3g} and β = {beta:.3g} momentum {count}; the budget is {budget}: "
    if beta == 0:
        raise Wrong(told + "without β this is gradient descent.")
    if eta * high > 2 * (1 + beta):
        raise Wrong(told + "η λ_max is above 2 (1 + β).")
    if eta * high > 1.02 * (1 + beta**0.5) ** 2:
        raise Wrong(told + "η λ_max is above (1 + √β)², where the swings die out more slowly.")
    if eta * low < 0.98 * (1 - beta**0.5) ** 2:
        plain = [2 / (low + high), 1 / high, 2 / high]
        whose = "that is a learning rate for gradient descent. With this β, " if np.isclose(eta, plain).any() else ""
        raise Wrong(told + whose + "η λ_min is below (1 − √β)²: along the floor it creeps.")
    raise Wrong(told + f"each step multiplies the distance by √β = {beta**0.5:.3g} at best; a smaller β would do.")


EXERCISES = Exercises(
    update_rule("nesterov", "Nesterov", _nesterov_mistakes),
    Exercise(
        "heavy_ball",
        Criterion("this-ravine", "In budget where κ = 50", 0.5, _in_budget(RAVINES[1])),
        Criterion("every-ravine", "In budget where κ = 10, 200, 1,000", 0.5, _in_budget(*RAVINES[:1], *RAVINES[2:])),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
