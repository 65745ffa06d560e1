"""Checks of notebook 1e: a power law is tested on a measurement that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.notebook.answers import array, compare, plain, returned, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

SEEDS = 4
Fit = Callable[[np.ndarray, np.ndarray, float], float]  # sizes, errors, the size asked about → the error expected there


def _line(x: np.ndarray, y: np.ndarray, at: float) -> float:
    """The least-squares line through (x, y) at one place."""
    slope, height = np.polyfit(x, y, 1)
    return float(slope * at + height)


def _law(sizes: np.ndarray, errors: np.ndarray, at: float) -> float:
    return float(np.exp(_line(np.log(sizes), np.log(errors), np.log(at))))


def _joined(sizes: np.ndarray, errors: np.ndarray, at: float) -> float:
    """The law through the first and the last point."""
    return _law(sizes[[0, -1]], errors[[0, -1]], at)


def _last_two(sizes: np.ndarray, errors: np.ndarray, at: float) -> float:
    return _law(sizes[-2:], errors[-2:], at)


def _on_the_errors(sizes: np.ndarray, errors: np.ndarray, at: float) -> float:
    """The power law that is fitted to the errors themselves; two points give no other than on logarithmic axes."""
    from scipy.optimize import curve_fit

    if len(sizes) < 3:
        return _law(sizes, errors, at)
    (factor, exponent), _ = curve_fit(lambda n, factor, exponent: factor * n**-exponent, sizes, errors, (1.0, 0.3))
    return float(factor * at**-exponent)


WRONG_FITS: dict[str, Fit] = {
    "the law goes through the first and the last of its points only; let all its points count alike.": _joined,
    "the law goes through the last two of its points only; let all its points count alike.": _last_two,
    "that is least squares on the errors themselves: fit on logarithmic axes.": _on_the_errors,
    "that is a straight line through the errors; a power law is a line when both axes are logarithmic.": _line,
    "that is a line over log n; take the logarithm of the errors, too.": (
        lambda sizes, errors, at: _line(np.log(sizes), errors, np.log(at))
    ),
    "that is an exponential in n; take the logarithm of the sizes, too.": (
        lambda sizes, errors, at: float(np.exp(_line(sizes, np.log(errors), at)))
    ),
    "the law's answer is a logarithm: take its exponential.": (
        lambda sizes, errors, at: _line(np.log(sizes), np.log(errors), np.log(at))
    ),
    "the law is compared with its own last point: it should be asked about the largest size of all.": (
        lambda sizes, errors, at: float(errors[-1])
    ),
}

WRONG_COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "these are shares: multiply by 100 for per cent.": lambda errors, law: errors / law - 1,
    "100 % is what the law expects: subtract it.": lambda errors, law: 100 * errors / law,
    "the sign: above the law counts as positive.": lambda errors, law: 100 * (1 - errors / law),
    "that is relative to the measured error: the law's answer counts as 100 %.": lambda errors, law: (
        100 * (1 - law / errors)
    ),
    "that is how far the law lies above the measurement: exchange them.": lambda errors, law: 100 * (law / errors - 1),
    "that is a difference of logarithms, which is only nearly the difference in per cent.": lambda errors, law: (
        100 * np.log(errors / law)
    ),
    "that is the difference of the errors: how many per cent of the law's answer is it?": lambda errors, law: (
        100 * (errors - law)
    ),
}


def _case(sizes: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Sizes, and errors [seeds, sizes] that scatter about a law which bends upwards."""
    rng, sizes = np.random.default_rng(11), np.asarray(sizes, float)
    law = 1.5 * sizes**-0.3 + 0.03
    return sizes, law * (1 + 0.05 * rng.standard_normal((SEEDS, len(sizes))))


def _above(sizes: np.ndarray, errors: np.ndarray, known: np.ndarray, fit: Fit = _law) -> np.ndarray:
    """What `fit`, to the known sizes, expects at the largest size, for each seed."""
    return np.array([fit(sizes[known], own[known], sizes[-1]) for own in errors])


def _wrong_sizes(sizes: np.ndarray, factor: float) -> dict[str, np.ndarray]:
    """Sentence → the sizes that a wrong choice fits to."""
    last, largest, ends = np.arange(len(sizes)) == len(sizes) - 1, sizes[-1], f"{sizes[-1]:,.0f}"
    choices = {
        f"the law was fitted to all sizes, so it has seen the error at {ends}: a test needs a measurement that the law "
        "doesn't know.": sizes > 0,
        f"the test is too easy: only the largest size is left out. Asked `factor` = {factor:g} times beyond its "
        f"points, the law may know sizes up to {largest / factor:,.0f}.": ~last,
        f"the law may know the size {largest / factor:,.0f} itself: from there to {ends} it is {factor:g} times as "
        "far.": sizes < largest / factor,
        "the law was fitted to the sizes that it should not know.": sizes >= largest / factor,
        "the law was fitted to sizes up to `factor` times the smallest; count from the largest, which the test asks "
        "about.": sizes <= sizes[0] * factor,
    }
    right = sizes <= largest / factor
    return {said: known for said, known in choices.items() if known.sum() >= 2 and (known != right).any()}


def _tests(sizes: Sequence[float], factor: float) -> Callable[[Callable], None]:
    def judge(backtest: Callable) -> None:
        n, errors = _case(sizes)
        last, known = errors[:, -1], n <= n[-1] / factor
        with unchanged(n, errors):
            answer = returned(backtest(n, errors, factor))
        if (values := plain(answer)) is not None and values.shape == ():
            raise Wrong(f"that is one number; one for each of the {SEEDS} seeds is expected, each with its own law.")
        got = array(answer, (SEEDS,))
        expected = 100 * (last / _above(n, errors, known) - 1)
        mistakes = {said: 100 * (last / _above(n, errors, one) - 1) for said, one in _wrong_sizes(n, factor).items()}
        common = np.repeat(errors.mean(axis=0, keepdims=True), SEEDS, axis=0)
        pooled = np.repeat(np.exp(np.log(errors).mean(axis=0, keepdims=True)), SEEDS, axis=0)
        for shared in (common, pooled):
            one_law = 100 * (last / _above(n, shared, known) - 1)
            mistakes[_unlike("all seeds share one law: fit each seed's own runs.", mistakes)] = one_law
        for said, fit in WRONG_FITS.items():
            for place, one in enumerate([known, *_wrong_sizes(n, factor).values()]):
                also = " And it should know the sizes up to the largest / `factor` only." * bool(place)
                mistakes.setdefault(said + also, 100 * (last / _above(n, errors, one, fit) - 1))
        for said, how in WRONG_COMPARISONS.items():
            mistakes[said] = how(last, _above(n, errors, known))
        told = f"sizes {[int(one) for one in n]}, factor {factor:g}: the per cent above the law"
        compare(got.tolist(), expected.tolist(), told, {said: list(wrong) for said, wrong in mistakes.items()})

    return judge


def _unlike(sentence: str, taken: dict) -> str:
    """The sentence; with a space at its end where it is taken already."""
    return sentence + " " * (sentence in taken)


EXERCISES = Exercises(
    Exercise(
        "backtest",
        Criterion("next", "Twice as far as the points", 0.3, _tests([100, 200, 400, 800, 1_600], 2)),
        Criterion("far", "Four times as far", 0.4, _tests([100, 200, 400, 800, 1_600, 3_200], 4)),
        Criterion("uneven", "Sizes that are no doublings", 0.3, _tests([100, 150, 300, 450, 700, 2_000], 4)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
