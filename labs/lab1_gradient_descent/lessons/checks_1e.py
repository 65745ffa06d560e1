"""Checks of notebook 1e: a power law, fitted on small sets of data and asked about a large one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course_lib.notebook.answers import compare, number, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

SIZES, ASKED = np.array([100.0, 200.0, 400.0, 800.0]), 6_400.0
NOISE = np.array([1.03, 0.96, 1.02, 0.985])


def _line(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """The least-squares line through (x, y) at one place."""
    slope, height = np.polyfit(x, y, 1)
    return float(slope * at + height)


def _fitted(errors: np.ndarray) -> float:
    """The power law at ASKED that is fitted to the errors themselves."""
    from scipy.optimize import curve_fit

    (factor, exponent), _ = curve_fit(lambda n, factor, exponent: factor * n**-exponent, SIZES, errors, (1.0, 0.3))
    return float(factor * ASKED**-exponent)


def _extrapolates(noise: np.ndarray) -> Callable[[Callable], None]:
    def judge(extrapolate: Callable) -> None:
        for factor, exponent in ((2.0, 0.35), (0.9, 0.1)):
            errors = factor * SIZES**-exponent * noise
            sizes = SIZES.copy()
            with unchanged(sizes, errors):
                got = number(extrapolate(sizes, errors, ASKED))
            logs, line = np.log(SIZES), np.log(errors)
            expected = float(np.exp(_line(logs, line, np.log(ASKED))))
            ends = np.log(errors[-1] / errors[0]) / np.log(SIZES[-1] / SIZES[0])
            mistakes = {
                "that is least squares on the errors themselves: fit on logarithmic axes.": _fitted(errors),
                "that is the error's logarithm: take the exponential.": float(np.log(expected)),
                "`np.log` is the natural logarithm: the way back is `np.exp`, not a power of ten.": (
                    10 ** float(np.log(expected))
                ),
                "the height of the line is a logarithm, too: take its exponential.": (
                    _line(logs, line, 0.0) * ASKED ** np.polyfit(logs, line, 1)[0]
                ),
                "sizes and errors are exchanged in the fit: first the sizes, then the errors.": (
                    float(np.exp(_line(line, logs, np.log(ASKED))))
                ),
                "that is a straight line through the errors; a power law is a line when both axes are logarithmic.": (
                    _line(SIZES, errors, ASKED)
                ),
                "that is a line over log n; take the logarithm of the errors, too.": _line(logs, errors, np.log(ASKED)),
                "that is an exponential in n; take the logarithm of the sizes, too.": (
                    float(np.exp(_line(SIZES, line, ASKED)))
                ),
                "the law is asked at log n, not at n: it has the logarithm of the size in it.": (
                    float(np.exp(_line(logs, line, ASKED)))
                ),
                "that is the last error: the law goes on beyond the sizes that were measured.": float(errors[-1]),
                "that goes through the first and the last point only; let all points count alike.": (
                    float(errors[-1] * (ASKED / SIZES[-1]) ** ends)
                ),
                "the error grows with the data: mind the sign of the exponent.": (
                    float(np.exp(2 * line.mean() - _line(logs, line, np.log(ASKED))))
                ),
            }
            told = f"sizes {SIZES.astype(int).tolist()}, errors {errors.round(3).tolist()}: the error at {ASKED:,.0f}"
            compare(got, expected, told, mistakes)

    return judge


def _any_size(extrapolate: Callable) -> None:
    errors = 2.0 * SIZES**-0.35
    try:
        found = [extrapolate(list(SIZES), list(errors), at) for at in (50.0, 1e6)]
    except TypeError:
        raise Wrong("sizes and errors may be lists: `np.log` takes them, arithmetic does not.") from None
    compare(
        [number(one) for one in found],
        [float(2.0 * at**-0.35) for at in (50.0, 1e6)],
        "at 50 and at 1,000,000 images the errors",
    )


EXERCISES = Exercises(
    Exercise(
        "extrapolate",
        Criterion("exact", "Where the law holds exactly", 0.5, _extrapolates(np.ones(4))),
        Criterion("noisy", "Where the points scatter", 0.3, _extrapolates(NOISE)),
        Criterion("any", "At any size, also from lists", 0.2, _any_size),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
