"""Checks of notebook 1a: years of computing, the loss of a line, its gradient, a step downhill, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.notebook.answers import compare, number, plain, returned, same, shown, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

Examples = tuple[list[float], list[float]]  # x, y

# One example that is easy to follow by hand, and some with a mean, a spread and an error that all differ.
ONE_EXAMPLE: Examples = ([3.0], [4.5])
FIVE_EXAMPLES: Examples = ([0.5, 1.0, 2.5, 4.0, 7.0], [3.0, 1.0, -2.0, 6.0, 5.0])
LINES = ((2.0, 1.0), (-1.5, 0.25), (0.0, 0.0))  # w, b


def _case(w: float, b: float, examples: Examples, what: str) -> str:
    return f"For w = {w}, b = {b}, x = {examples[0]}, y = {examples[1]} {what}"


def _mean_taken(value: Any, what: str) -> Any:
    """The value, if it is not one of each example."""
    found = plain(value)
    if found is not None and found.ndim:
        raise Wrong(f"{what} has shape {found.shape}; it should be one number. Was the mean over the examples taken?")
    return value


def _pair(value: Any, names: str) -> tuple[Any, Any]:
    try:
        first, second = returned(value)
    except (TypeError, ValueError):
        raise Wrong(f"The result should be two numbers, {names}; it is {shown(value)}.") from None
    return first, second


def _years(years: Callable) -> None:
    for work, rate in ((1000.0, 1e15), (1.0, 2.5e11), (40.0, 3e13)):
        expected = work * 1e15 / rate / 365
        got = number(years(work, rate))
        if same(got, expected * 365 / 365.25):  # a year may have its quarter of a leap day
            continue
        seconds = work * 1e15 * 86400 / rate
        days = seconds / 24 * 60 * 60, seconds / 60 * 60 * 24
        unbracketed = *(day / 365 for day in days), *(day * 365 for day in days), seconds / 365 * 24 * 60 * 60
        if any(same(got, wrong) for wrong in unbracketed):
            raise Wrong("Brackets are missing: a / 60 * 60 is a again; write a / (60 * 60).")
        mistakes = {
            "That is the number of days: divide by the days of a year.": expected * 365,
            "That is the number of seconds: how many has a year?": expected * 365 * 86400,
            "The seconds are divided by 365; a year has 365 · 24 · 60 · 60 of them.": expected * 86400,
            "A day has 24 · 60 · 60 seconds: a factor 60 is missing in the work, or too many in the year.": expected
            / 60,
            "A day has 24 · 60 · 60 seconds: a factor 60 is missing in the year, or too many in the work.": expected
            * 60,
            "A day has 24 · 60 · 60 seconds: the hours are missing in the work.": expected / 24,
            "A day has 24 · 60 · 60 seconds: the hours are missing in the year.": expected * 24,
            "A petaflop/s-day is 10¹⁵ operations in every second of a day: count the seconds of the day, too.": (
                expected / 86400
            ),
            "A petaflop/s is 10¹⁵ operations in a second; you calculated with 10¹².": expected / 1000,
            "A petaflop/s is 10¹⁵ operations in a second; the factor is missing.": expected / 1e15,
            "That is the inverse: a faster machine needs less time.": 1 / expected,
        }
        compare(got, expected, f"The years of {work:g} petaflop/s-days at {rate:.3g} operations a second", mistakes)


def _loss(examples: Examples) -> Callable[[Callable], None]:
    def judge(loss: Callable) -> None:
        x, y = map(np.array, examples)
        for w, b in LINES:
            with unchanged(x, y):
                got = _mean_taken(returned(loss(w, b, x, y)), "The loss")
            error = w * x + b - y
            square = np.mean(error**2)
            mistakes = {
                "That is the sum of the squares: divide by the number of examples m.": np.sum(error**2),
                "That is half of it: this course's loss has 1/m in front, not 1/(2m).": square / 2,
                "That is the root of the mean square: leave out the root.": np.sqrt(square),
                "That is the mean of the errors: square each before you take the mean.": np.mean(error),
                "That is the mean of the errors, y minus prediction: square each before you take the mean.": (
                    -np.mean(error)
                ),
                "That is the mean of the absolute errors: square them.": np.mean(np.abs(error)),
                "That is the square of the mean error: square each error first.": np.mean(error) ** 2,
                "Check the sign in the error: prediction minus y, with w x + b as prediction.": (
                    np.mean((w * x + b + y) ** 2)
                ),
                "Is b in your prediction?": np.mean((w * x - y) ** 2),
            }
            compare(got, square, _case(w, b, examples, "the loss"), mistakes)

    return judge


INNER_DERIVATIVE = {
    "w": "∂L/∂w: the inner derivative is missing, w stands before x: multiply each error by its x.",
    "b": "∂L/∂b: b stands alone in the line: no factor x here.",
}


def _gradient(examples: Examples, by: str) -> Callable[[Callable], None]:
    """A judge of the derivative by w or by b."""
    place, name = "wb".index(by), f"∂L/∂{by}"

    def judge(gradient: Callable) -> None:
        x, y = map(np.array, examples)
        inner = x if by == "w" else np.ones_like(x)
        for w, b in LINES:
            with unchanged(x, y):
                pair = _pair(gradient(w, b, x, y), "(∂L/∂w, ∂L/∂b)")
            got = _mean_taken(pair[place], name)
            error = w * x + b - y
            derivatives = 2 * np.mean(error * x), 2 * np.mean(error)
            expected, other = derivatives[place], derivatives[1 - place]
            swapped = same(pair[1 - place], expected)
            mistakes = {
                "The two are swapped: first ∂L/∂w, then ∂L/∂b." if swapped else INNER_DERIVATIVE[by]: other,
                f"The sign of {name} is wrong: it should point uphill. Take prediction minus y.": -expected,
                f"The factor 2 is missing in {name}: the derivative of a square is two times the inside.": expected / 2,
                f"{name} is a sum over the examples: divide by their number m.": expected * len(x),
                f"In {name} the factor 2 and the 1/m are missing.": expected * len(x) / 2,
                f"The sign of {name} is wrong, and the 1/m is missing.": -expected * len(x),
                f"The sign of {name} is wrong, and the factor 2 is missing.": -expected / 2,
                f"{name}: y is left out of the error.": 2 * np.mean((error + y) * inner),
                f"{name}: b is left out of the error.": 2 * np.mean((error - b) * inner),
                **({f"{name}: the inner derivative is x, not w.": 2 * np.mean(error * w)} if by == "w" else {}),
                f"{name}: take the mean of error times x, not the mean error times the mean x.": (
                    2 * np.mean(error) * np.mean(x)
                ),
            }
            compare(got, expected, _case(w, b, examples, name), mistakes)

    return judge


def _separable_slope(w: float, b: float) -> tuple[float, float]:
    return 4.0 * w, -3.0 * b


def _coupled_slope(w: float, b: float) -> tuple[float, float]:
    return 6.0 * w + 2.0 * b - 1.0, 2.0 * w + 3.0 * b + 4.0


def _step(slope: Callable[[float, float], tuple[float, float]]) -> Callable[[Callable], None]:
    def judge(update: Callable) -> None:
        for w, b, eta in ((3.0, -1.0, 0.1), (0.5, 2.0, 0.02)):
            asked = []

            def recorded(w: float, b: float, asked: list = asked) -> tuple[float, float]:
                asked.append((w, b))
                return slope(w, b)

            got = _pair(update(w, b, recorded, eta), "(w, b)")
            dw, db = slope(w, b)
            new_w, new_b = w - eta * dw, b - eta * db
            mistakes = {
                "Nothing moved: return the new w and b.": (w, b),
                "That is a step uphill: the gradient points up, go against it.": (w + eta * dw, b + eta * db),
                "η is in it twice: one step is η times the gradient.": (w - eta**2 * dw, b - eta**2 * db),
                "Two steps were made, or η counted double: one step is η times the gradient.": (
                    w - 2 * eta * dw,
                    b - 2 * eta * db,
                ),
                "η is missing: the step is η times the gradient.": (w - dw, b - db),
                "That is only the step: return where it leads, w and b after it.": (-eta * dw, -eta * db),
                "w was updated before the gradient of b was taken: take both at the old place, then move.": (
                    new_w,
                    b - eta * slope(new_w, b)[1],
                ),
                "b was updated before the gradient of w was taken: take both at the old place, then move.": (
                    w - eta * slope(w, new_b)[0],
                    new_b,
                ),
            }
            if asked and asked[0] != (w, b):
                mistakes["The gradient was taken at another place than (w, b)."] = got
            told = f"From ({w}, {b}), with the gradient {shown((dw, db))} and η = {eta}, the new (w, b)"
            compare(got, (new_w, new_b), told, mistakes)

    return judge


def _said(stop: Callable, losses: Sequence[float], tolerance: float = 1e-6, patience: int = 3) -> str:
    given = list(losses)
    with np.errstate(all="ignore"):
        said = stop(given, tolerance=tolerance, patience=patience)
    if given != losses:
        raise Wrong("The function changes the list of losses; only read it.")
    if said is None:
        raise Wrong('The result is None: return "" where the descent goes on.')
    if not isinstance(said, str) or said not in ("", "converged", "diverged"):
        raise Wrong(f'The result is {said!r}; it should be "", "converged" or "diverged".')
    return said


def _settled(stop: Callable) -> None:
    for losses, tolerance, patience, why in (
        ([8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0], 1e-6, 3, "the last three steps changed nothing"),
        ([8.0, 4.0, 2.0, 1.0, 0.9999, 0.9998, 0.9997], 1e-3, 3, "three changes of 0.01 %"),
        ([1000.0, 500.0, 500.0002, 499.9999], 1e-6, 2,
         "a change of 0.0002 at a loss of 500: compare the change with tolerance × the loss before it"),
        ([1e-7, 1e-9, 1e-9, 1e-9], 1e-6, 2, "the last two steps changed nothing"),
        ([3.0, 3.0], 1e-6, 1, "the only step changed nothing"),
        ([20.0, 10.0, 6.0], 0.45, 1,
         "the change is 4, the limit 4.5: tolerance × the loss before the step, 10, not × the new loss, 6"),
        ([4.0, 1.0, 0.0, 0.0, 0.0, 0.0], 1e-6, 3,
         "at a loss of 0 the last three steps changed nothing: a change of 0 is at most tolerance × 0, but divided by "
         "0 it is nan, and a comparison with nan is always False"),
    ):  # fmt: skip
        if (said := _said(stop, losses, tolerance, patience)) != "converged":
            settings = f"tolerance {tolerance:g} and patience {patience}"
            raise Wrong(f"{losses} with {settings} has converged ({why}), but the answer is {said!r}.")


def _unsettled(stop: Callable) -> None:
    if not _said(stop, [2.0, 1.0, 1.0, 1.0, 1.0]):
        raise Wrong("First let it say when a descent has converged.")
    for losses, why in (
        ([8.0, 4.0, 2.0, 1.0, 0.5], "it halves with each step: compare the size of the change, |…|"),
        ([5.0, 4.0, 4.5, 3.0, 3.6], "it goes up and down: a rise is no reason to stop"),
        ([1.0, 2.0, 4.0, 8.0, 16.0], "a rising loss has not settled: compare the size of the change, |…|"),
        ([1e-7, 5e-8, 2.5e-8, 1.2e-8, 6e-9], "it is small, but it still halves: compare changes, not the loss"),
        ([8.0, 4.0, 4.0, 2.0, 1.0], "only one step changed nothing: `patience` steps in a row must"),
        ([4.0, 4.0, 4.0, 4.0, 2.0], "the newest step changed a lot: only the last `patience` steps count"),
        ([5.0, 3.0, 4.0, 2.0, 3.0], "three steps ago it was as high, but each step changed it: look at every step"),
        ([2e6, 4.0, 3.0, 2.0, 1.0], "compare each change with the loss before that step, not with the first loss"),
        ([8.0, 4.0, 2.0, 2.0, 2.0], "two quiet steps are fewer than three"),
        ([3.0, 3.0, 3.0], "two quiet steps are fewer than three"),
        ([5.0], "one loss is no change at all"),
    ):
        if said := _said(stop, losses):
            raise Wrong(f"{losses} with patience 3 should go on ({why}), but the answer is {said!r}.")


def _diverged(stop: Callable) -> None:
    for losses, why in (
        ([5.0, 50.0, math.nan], "the newest loss is not a number (nan); a comparison with nan is always False"),
        ([5.0, 50.0, math.inf], "the newest loss is infinite"),
        ([5.0, math.inf, math.inf, math.inf, math.inf], "the newest loss is infinite, however often"),
        ([2.0, 30.0, 400.0, 2500.0], "the newest loss is over 1,000 times the first"),
    ):
        if (said := _said(stop, losses)) != "diverged":
            raise Wrong(f"{losses} has diverged ({why}), but the answer is {said!r}.")
    if stop([2.0, 30.0, 2500.0, 400.0]) == "diverged":
        raise Wrong("[2.0, 30.0, 2500.0, 400.0] should go on: only the newest loss counts, not the largest so far.")
    if stop([2.0, 30.0, 400.0, 1500.0]) == "diverged":
        raise Wrong("[2.0, 30.0, 400.0, 1500.0] is not over 1,000 times the first loss: it should go on.")
    if stop([5.0, 0.001, 3.0]) == "diverged":
        raise Wrong("[5.0, 0.001, 3.0] ends below its first loss: it should go on.")


EXERCISES = Exercises(
    Exercise("years", Criterion("years", "Years of computing", 1.0, _years)),
    Exercise(
        "loss",
        Criterion("one-example", "The loss of one example", 0.5, _loss(ONE_EXAMPLE)),
        Criterion("several-examples", "The mean over several examples", 0.5, _loss(FIVE_EXAMPLES)),
    ),
    Exercise(
        "gradient",
        Criterion("by-w-one-example", "∂L/∂w of one example", 0.25, _gradient(ONE_EXAMPLE, "w")),
        Criterion("by-b-one-example", "∂L/∂b of one example", 0.25, _gradient(ONE_EXAMPLE, "b")),
        Criterion("by-w-several-examples", "∂L/∂w of several examples", 0.25, _gradient(FIVE_EXAMPLES, "w")),
        Criterion("by-b-several-examples", "∂L/∂b of several examples", 0.25, _gradient(FIVE_EXAMPLES, "b")),
    ),
    Exercise(
        "update",
        Criterion("separable", "A step where w and b do not meet", 0.5, _step(_separable_slope)),
        Criterion("coupled", "A step where each changes the other's gradient", 0.5, _step(_coupled_slope)),
    ),
    Exercise(
        "stop",
        Criterion("converged", "Settled: converged", 0.4, _settled),
        Criterion("goes-on", "Not settled: goes on", 0.3, _unsettled),
        Criterion("diverged", "Out of hand: diverged", 0.3, _diverged),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
