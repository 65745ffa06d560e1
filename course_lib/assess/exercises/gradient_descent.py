"""Checks of lab 1a: years of computing, the loss of a line, its gradient, a step downhill, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part

# One example that is easy to follow by hand, and some with a mean, a spread and an error that all differ.
ONE = (np.array([3.0]), np.array([4.0]))
SOME = (np.array([0.5, 1.0, 2.5, 4.0, 7.0]), np.array([3.0, 1.0, -2.0, 6.0, 5.0]))
PLACES = ((2.0, 1.0), (-1.5, 0.25), (0.0, 0.0))


def _number(value: Any, what: str) -> tuple[float, str]:
    """(the value as a float, "" or what is wrong with it)."""
    if value is None:
        return math.nan, f"{what} is None: is there a `return`?"
    try:
        shape = np.shape(value)
    except ValueError:
        shape = None
    if shape != ():
        return math.nan, f"{what} has the shape {shape}; it should be one number. Was the mean over the examples taken?"
    if isinstance(value, str):
        return math.nan, f"{what} is the text {value!r}; it should be a number."
    return float(value), ""


def _pair(value: Any, names: Sequence[str]) -> tuple[list[float], list[str]]:
    """(two floats, for each "" or what is wrong with it), from the value that should hold the two."""
    if value is None:
        return [math.nan] * 2, ["The result is None: is there a `return`?"] * 2
    try:
        first, second = value
    except (TypeError, ValueError):
        return [math.nan] * 2, [f"The result should be two numbers, ({names[0]}, {names[1]})."] * 2
    numbers, troubles = zip(*(_number(part, name) for part, name in zip((first, second), names)))
    return list(numbers), list(troubles)


def _near(got: float, want: float) -> bool:
    return math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-12)


def _fitting(got: float, mistakes: dict[str, float]) -> str:
    """The sentence of the first mistake that gives the same number, else ""."""
    return next((sentence for sentence, value in mistakes.items() if _near(got, value)), "")


# Years of computing


def _years(answer: Callable) -> str:
    for work, rate in ((1000.0, 1e15), (1.0, 2.5e11), (40.0, 3e13)):
        want = work * 1e15 / rate / 365
        got, trouble = _number(answer(work, rate), "The result")
        if trouble:
            return trouble
        if not _near(got, want) and not math.isclose(got, want * 365 / 365.25, rel_tol=1e-6):
            mistakes = {
                "That is the number of days: divide by the days of a year.": want * 365,
                "That is the number of seconds: how many has a year?": want * 365 * 86400,
                "A petaflop/s-day is 10¹⁵ operations in every second of a day: count the seconds of the day, too.": want
                / 86400,
                "A petaflop/s is 10¹⁵ operations in a second; you calculated with 10¹².": want / 1000,
                "A petaflop/s is 10¹⁵ operations in a second; the factor is missing.": want / 1e15,
                "That is the inverse: a faster machine needs less time.": 1 / want,
            }
            told = f"{work:g} petaflop/s-days at {rate:.3g} operations a second take {want:.4g} years, not {got:.4g}."
            return _fitting(got, mistakes) or told
    return ""


# The loss


def _loss(data: tuple[np.ndarray, np.ndarray]) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        x, y = data
        for w, b in PLACES:
            mine = x.copy(), y.copy()
            got, trouble = _number(answer(w, b, *mine), "The loss")
            if trouble:
                return trouble
            if not (np.array_equal(mine[0], x) and np.array_equal(mine[1], y)):
                return "The function changes x or y; work on new arrays."
            errors = y - b - w * x
            squares = float(errors @ errors)
            if not _near(got, squares / len(x)):
                many = len(x) > 1
                mistakes = {
                    "That is the sum of the squares: divide by the number of examples m.": squares
                    if many
                    else math.inf,
                    "That is half of it: this course's loss has 1/m in front, not 1/(2m).": squares / len(x) / 2,
                    "That is the root of the mean square: leave the root away.": math.sqrt(squares / len(x)),
                    "That is the mean of the errors: square each before you take the mean.": abs(errors.mean())
                    * math.copysign(1, got),
                    "That is the mean of the absolute errors: square them.": float(np.abs(errors).mean()),
                    "That is the square of the mean error: square each error first.": float(errors.mean() ** 2),
                    "Check the sign in the error: prediction minus y, with w x + b as prediction.": float(
                        np.mean((w * x + b + y) ** 2)
                    ),
                    "Is b in your prediction?": float(np.mean((w * x - y) ** 2)),
                }
                told = f"For w = {w}, b = {b}, x = {x.tolist()}, y = {y.tolist()} the loss is {squares / len(x):.6g}"
                return _fitting(got, mistakes) or f"{told}, not {got:.6g}."
        return ""

    return trial


# The gradient


def _gradient(data: tuple[np.ndarray, np.ndarray], number: int) -> Callable[[Callable], str]:
    """A trial of the derivative by w (number 0) or by b (1)."""

    def trial(answer: Callable) -> str:
        x, y = data
        for w, b in PLACES:
            mine = x.copy(), y.copy()
            pair, troubles = _pair(answer(w, b, *mine), ("∂L/∂w", "∂L/∂b"))
            if troubles[number]:
                return troubles[number]
            if not (np.array_equal(mine[0], x) and np.array_equal(mine[1], y)):
                return "The function changes x or y; work on new arrays."
            residual = w * x + b - y
            by_w, by_b = 2 * float(residual @ x) / len(x), 2 * float(residual.sum()) / len(x)
            want, other = ((by_w, by_b), (by_b, by_w))[number]
            got = pair[number]
            if _near(got, want):
                continue
            name = "∂L/∂w" if number == 0 else "∂L/∂b"
            if number == 0 and _near(got, by_b) and not _near(pair[1], by_w):
                return "∂L/∂w: the inner derivative is missing, w stands before x: multiply each error by its x."
            if number == 1 and _near(got, by_w) and not _near(pair[0], by_b):
                return "∂L/∂b: b stands alone in the line: no factor x here."
            mistakes = {
                "The two are swapped: first ∂L/∂w, then ∂L/∂b.": other,
                f"The sign of {name} is wrong: it should point uphill. Take prediction minus y.": -want,
                f"The factor 2 is missing in {name}: the derivative of a square is two times the inside.": want / 2,
                f"{name} is a sum over the examples: divide by their number m.": want * len(x),
                f"In {name} the factor 2 and the 1/m are missing.": want * len(x) / 2,
                f"The sign of {name} is wrong, and the 1/m is missing.": -want * len(x),
                f"The sign of {name} is wrong, and the factor 2 is missing.": -want / 2,
                f"{name}: y is left out of the error.": 2 * float(np.mean((w * x + b) * (x, 1)[number])),
                f"{name}: b is left out of the error.": 2 * float(np.mean((w * x - y) * (x, 1)[number])),
                f"{name}: take the mean of error times x, not the mean error times the mean x.": 2
                * float(residual.mean() * x.mean()),
            }
            told = f"For w = {w}, b = {b}, x = {x.tolist()}, y = {y.tolist()} {name} is {want:.6g}, not {got:.6g}."
            return _fitting(got, mistakes) or told
        return ""

    return trial


# The step


def _step(slope: Callable[[float, float], tuple[float, float]]) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        for w, b, eta in ((3.0, -1.0, 0.1), (0.5, 2.0, 0.02)):
            asked = []

            def told(w: float, b: float, asked: list = asked) -> tuple[float, float]:
                asked.append((float(w), float(b)))
                return slope(w, b)

            pair, troubles = _pair(answer(w, b, told, eta), ("w", "b"))
            if any(troubles):
                return max(troubles)
            dw, db = slope(w, b)
            want = w - eta * dw, b - eta * db
            if _near(pair[0], want[0]) and _near(pair[1], want[1]):
                continue
            wrong = {
                "Nothing moved: return the new w and b.": (w, b),
                "That is a step uphill: the gradient points up, go against it.": (w + eta * dw, b + eta * db),
                "η is in it twice: one step is η times the gradient.": (w - eta**2 * dw, b - eta**2 * db),
                "Two steps were made, or η counted double: one step is η times the gradient.": (
                    w - 2 * eta * dw,
                    b - 2 * eta * db,
                ),
                "η is missing: the step is η times the gradient.": (w - dw, b - db),
                "That is only the step: return where it leads, w and b after it.": (-eta * dw, -eta * db),
                "That is only η times the gradient: subtract it from w and b.": (eta * dw, eta * db),
                "The two parts of the gradient are swapped.": (w - eta * db, b - eta * dw),
                "w was updated before the gradient of b was taken: take both at the old place, then move.": (
                    want[0],
                    b - eta * slope(want[0], b)[1],
                ),
                "b was updated before the gradient of w was taken: take both at the old place, then move.": (
                    w - eta * slope(w, want[1])[0],
                    want[1],
                ),
            }
            for sentence, (first, second) in wrong.items():
                if _near(pair[0], first) and _near(pair[1], second):
                    return sentence
            if asked and asked[0] != (w, b):
                return "The gradient was taken at another place than (w, b)."
            return (
                f"From ({w}, {b}) with the gradient ({dw:.4g}, {db:.4g}) and η = {eta} a step leads to "
                f"({want[0]:.4g}, {want[1]:.4g}), not to ({pair[0]:.4g}, {pair[1]:.4g})."
            )
        return ""

    return trial


# The stopping test

_ANSWERS = ("", "converged", "diverged")


def _said(answer: Callable, losses: list[float], **settings: float) -> tuple[str, str]:
    """(what the function answers, "" or what is wrong with the kind of its answer)."""
    given = list(losses)
    value = answer(given, **settings)
    if given != losses and not any(map(math.isnan, losses)):
        return "", "The function changes the list of losses; only read it."
    if value is None:
        return "", 'The result is None: return "" where the descent goes on.'
    if not isinstance(value, str) or value not in _ANSWERS:
        return "", f'The result is {value!r}; it should be "", "converged" or "diverged".'
    return value, ""


def _settled(answer: Callable) -> str:
    falling = [8.0, 4.0, 2.0]
    cases = (
        ([*falling, 1.0, 1.0, 1.0, 1.0], {"tolerance": 1e-6, "patience": 3}, "the last three steps changed nothing"),
        ([*falling, 1.0, 0.9999, 0.9998, 0.9997], {"tolerance": 1e-3, "patience": 3}, "three changes of 0.01 %"),
        (
            [1000.0, 500.0, 500.0002, 499.9999],
            {"tolerance": 1e-6, "patience": 2},
            "a change of 0.0002 at a loss of 500",
        ),
        ([1e-7, 1e-9, 1e-9, 1e-9], {"tolerance": 1e-6, "patience": 2}, "the last two steps changed nothing"),
        ([3.0, 3.0], {"tolerance": 1e-6, "patience": 1}, "the only step changed nothing"),
    )
    for losses, settings, why in cases:
        got, trouble = _said(answer, losses, **settings)
        if trouble:
            return trouble
        if got != "converged":
            hint = " Compare the change with tolerance × the loss before it." if losses[0] == 1000 else ""
            return (
                f"{losses} with tolerance {settings['tolerance']:g} and patience {settings['patience']} has converged "
                f"({why}), but the answer is {got!r}.{hint}"
            )
    return ""


def _going_on(answer: Callable) -> str:
    if _said(answer, [2.0, 1.0, 1.0, 1.0, 1.0])[0] == "":
        return "First let it say when a descent has converged."
    cases = (
        ([8.0, 4.0, 2.0, 1.0, 0.5], 1e-6, "it halves with each step: compare the size of the change, |…|"),
        ([5.0, 4.0, 4.5, 3.0, 3.6], 1e-6, "it goes up and down: a rise is no reason to stop"),
        ([1.0, 2.0, 4.0, 8.0, 16.0], 1e-6, "a rising loss has not settled: compare the size of the change, |…|"),
        ([1e-7, 5e-8, 2.5e-8, 1.2e-8, 6e-9], 1e-6, "it is small, but it still halves: compare changes, not the loss"),
        ([8.0, 4.0, 4.0, 2.0, 1.0], 1e-6, "only one step changed nothing: `patience` steps in a row must"),
        ([4.0, 4.0, 4.0, 4.0, 2.0], 1e-6, "the newest step changed a lot: only the last `patience` steps count"),
        ([8.0, 4.0, 2.0, 2.0, 2.0], 1e-6, "two quiet steps are fewer than three"),
        ([3.0, 3.0, 3.0], 1e-6, "two quiet steps are fewer than three"),
        ([5.0], 1e-6, "one loss is no change at all"),
    )
    for losses, tolerance, why in cases:
        got, trouble = _said(answer, losses, tolerance=tolerance, patience=3)
        if trouble:
            return trouble
        if got:
            return f'{losses} with patience 3 should go on ({why}), but the answer is "{got}".'
    return ""


def _diverging(answer: Callable) -> str:
    cases = (
        ([5.0, 50.0, math.nan], "the newest loss is not a number (nan); a comparison with nan is always False"),
        ([5.0, 50.0, math.inf], "the newest loss is infinite"),
        ([5.0, math.inf, math.inf, math.inf, math.inf], "the newest loss is infinite, however often"),
        ([2.0, 30.0, 400.0, 2500.0], "the newest loss is over 1,000 times the first"),
    )
    for losses, why in cases:
        with np.errstate(all="ignore"):
            got, trouble = _said(answer, losses, tolerance=1e-6, patience=3)
        if trouble:
            return trouble
        if got != "diverged":
            return f'{losses} has diverged ({why}), but the answer is "{got}".'
    if _said(answer, [2.0, 30.0, 400.0, 1500.0])[0] == "diverged":
        return "[2.0, 30.0, 400.0, 1500.0] is not over 1,000 times the first loss: it should go on."
    return ""


def _own(w: float, b: float) -> tuple[float, float]:
    return 4.0 * w, -3.0 * b


def _coupled(w: float, b: float) -> tuple[float, float]:
    return 6.0 * w + 2.0 * b - 1.0, 2.0 * w + 3.0 * b + 4.0


EXERCISES = Exercises(
    Exercise("years", (Part("Years of computing", 1.0, _years),)),
    Exercise(
        "loss",
        (Part("The loss of one example", 0.5, _loss(ONE)), Part("The mean over several examples", 0.5, _loss(SOME))),
    ),
    Exercise(
        "gradient",
        (
            Part("∂L/∂w of one example", 0.25, _gradient(ONE, 0)),
            Part("∂L/∂b of one example", 0.25, _gradient(ONE, 1)),
            Part("∂L/∂w of several examples", 0.25, _gradient(SOME, 0)),
            Part("∂L/∂b of several examples", 0.25, _gradient(SOME, 1)),
        ),
    ),
    Exercise(
        "update",
        (
            Part("A step where w and b do not meet", 0.5, _step(_own)),
            Part("A step where each changes the other's gradient", 0.5, _step(_coupled)),
        ),
    ),
    Exercise(
        "stop",
        (
            Part("Settled: converged", 0.4, _settled),
            Part("Not settled: goes on", 0.3, _going_on),
            Part("Out of hand: diverged", 0.3, _diverging),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
