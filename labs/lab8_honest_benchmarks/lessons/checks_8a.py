"""Checks of notebook 8a: an interval for a ratio of two times, runs that a claim needs, the time to a target."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import nct

from course_lib import statistics
from course_lib.notebook.answers import case, name_mistake, number, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab8_honest_benchmarks.lessons import noisy_curve

# ratio_interval

RUNS, SPREAD, EXPERIMENTS = 3, 0.1, 400
OURS, THEIRS = np.array([12.1, 11.6, 12.9]), np.array([10.3, 9.7, 10.1])


def _interval(answer: Callable, ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    ours, theirs = ours.copy(), theirs.copy()
    with unchanged(ours, theirs):
        found = several(answer(ours, theirs), "ratio", "low", "high", what="`ratio_interval`")
    ratio, low, high = (number(one, what) for one, what in zip(found, ("the ratio", "`low`", "`high`")))
    if low > high:
        raise Wrong(f"`low` is {low:.4g} and `high` {high:.4g}: the other way round.")
    return ratio, low, high


def logarithms(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """The interval by Student's t of the logarithms."""
    difference, half = statistics.unpaired(np.log(ours), np.log(theirs))
    return math.exp(difference), math.exp(difference - half), math.exp(difference + half)


def _ratio(answer: Callable) -> None:
    ratio, low, high = _interval(answer, OURS, THEIRS)
    middle = OURS.mean() / THEIRS.mean()
    mistakes = {
        "this is theirs / ours: above 1 should mean that ours takes longer.": 1 / middle,
        "this is the logarithm of the ratio: bring it back with `np.exp`.": math.log(middle),
        "this is the difference in seconds: a ratio has no unit.": OURS.mean() - THEIRS.mean(),
    }
    if not math.isclose(ratio, middle, rel_tol=0.02):
        name_mistake(ratio, middle, mistakes, rtol=0.02)
        raise Wrong(f"ours takes {middle:.2f} times as long as theirs; the ratio is {ratio:.4g}.")
    if not low <= ratio <= high:
        raise Wrong(f"the ratio {ratio:.3f} lies outside of its interval, {low:.3f} to {high:.3f}.")


def _invariant(answer: Callable) -> None:
    ratio, low, high = _interval(answer, OURS, THEIRS)
    in_ms = _interval(answer, 1000 * OURS, 1000 * THEIRS)
    if not np.allclose(in_ms, (ratio, low, high), rtol=1e-6):
        raise Wrong(
            f"in milliseconds the interval is {in_ms[1]:.3g} to {in_ms[2]:.3g}: a ratio must not depend on units."
        )
    _, other_low, other_high = _interval(answer, THEIRS, OURS)
    with np.errstate(all="ignore"):
        turned = 1 / np.array([other_high, other_low])
    if not np.allclose(turned, (low, high), rtol=1e-3):
        raise Wrong(
            f"ours / theirs lies in {low:.3f} to {high:.3f}, and theirs / ours in {other_low:.3f} to {other_high:.3f}, "
            f"which says {turned[0]:.3f} to {turned[1]:.3f}: who stands above the line must not matter. In "
            "which quantity does a ratio become a difference?"
        )


def _covers(answer: Callable) -> None:
    true = 1.2
    random = np.random.default_rng(1)
    ours = true * np.exp(random.normal(0, SPREAD, (EXPERIMENTS, RUNS)))
    theirs = np.exp(random.normal(0, SPREAD, (EXPERIMENTS, RUNS)))
    found = np.array([_interval(answer, a, b) for a, b in zip(ours, theirs)])
    held = np.mean((found[:, 1] <= true) & (true <= found[:, 2]))
    wide = np.mean(np.log(found[:, 2] / np.maximum(found[:, 1], 1e-9)))
    right = np.mean([np.log(high / low) for _, low, high in (logarithms(a, b) for a, b in zip(ours, theirs))])
    told = f"of {EXPERIMENTS} experiments with {RUNS} runs on each side the interval holds the true ratio in {held:.0%}"
    if held < 0.92:
        raise Wrong(f"{told}, not in 95 %: with few runs the spread is uncertain too; which factor takes care of that?")
    if held > 0.98 or wide > 1.3 * right:
        raise Wrong(
            f"{told}, and it is {wide / right:.1f} times as wide as it needs to be: take the spread of a mean, of both "
            "sides together, of runs that have nothing in common."
        )


# runs_needed

POWER, TOO_FEW = 0.8, 0.72
CLAIMS = ((0.1, 0.05), (0.03, 0.05), (0.1, 0.1), (0.02, 0.01))
MOST_RUNS = 10_000


def power(runs: int, spread: float, difference: float) -> float:
    """How often the 95 % interval of the difference of two means, `runs` each, leaves out 0.

    `spread` and `difference`: standard deviation of a run, and the true difference, in the same unit.
    """
    freedom, expected = 2 * runs - 2, difference / (spread * math.sqrt(2 / runs))
    return float(nct.sf(statistics.student(freedom + 1), freedom, expected))


def needed(spread: float, difference: float) -> int:
    """The fewest runs on each side that find the difference four times out of five."""
    runs = 2
    while power(runs, spread, difference) < POWER:
        runs += 1
    return runs


def _enough(answer: Callable) -> None:
    for spread, difference in CLAIMS:
        told = f"spread {spread:.0%}, claim {difference:.0%}"
        with case(told):
            found = number(answer(spread, difference), "`runs_needed`")
            if found != int(found) or found < 2:
                raise Wrong(f"{found:g} runs: a whole number of runs, two or more, on each side.")
            runs, wanted = int(found), needed(spread, difference)
            often = power(min(runs, MOST_RUNS), spread, difference)
            if often < TOO_FEW:
                half = 2 * (1.96 * spread / difference) ** 2  # nearly what one side's scatter asks for, with a margin
                why = "both sides scatter by the standard errors of their means, and luck can go against you."
                if abs(runs - half) <= 2 + 0.05 * half:
                    why = (
                        "does only one of the two sides scatter, or is the half width just as large as the difference?"
                    )
                raise Wrong(
                    f"with {runs} runs on each side the claim is found {often:.0%} of the times, not 80 %: {why}"
                )
            if runs > wanted + max(2, 0.15 * wanted):
                raise Wrong(f"{runs} runs find it {often:.0%} of the times; {wanted} are enough for 80 %.")


def _scales(answer: Callable) -> None:
    few, many = (number(answer(spread, 0.02), "`runs_needed`") for spread in (0.04, 0.08))
    if few < 1:
        raise Wrong(f"{few:g} runs: a whole number of runs, two or more, on each side.")
    if not 3.2 <= many / few <= 4.8:
        raise Wrong(
            f"for twice the spread it asks for {many / few:.1f} times as many runs: the spread of a mean falls with "
            "the root of their number."
        )


# time_to_target

TARGET, EVERY, CURVES = 0.8, (0.5, 2.0, 10.0), 150
MOST_OFF_S = 1.3


def _time(answer: Callable, seconds: np.ndarray, accuracy: np.ndarray, target: float) -> float:
    with unchanged(seconds, accuracy):
        return number(answer(seconds, accuracy, target), "`time_to_target`", finite=False)


def _finds(answer: Callable) -> None:
    seconds = np.arange(0.0, 100.0, 2.0)
    clean, true = noisy_curve.accuracy(seconds), noisy_curve.reached(TARGET)
    found = _time(answer, seconds, clean, TARGET)
    if found == np.argmax(clean >= TARGET):
        raise Wrong("this is the number of the look, not its seconds.")
    if not abs(found - true) <= 2:
        raise Wrong(f"a curve without noise reaches the target after {true:.1f} s; it says {found:g} s.")
    never = _time(answer, seconds, clean, 0.95)
    if never != math.inf:
        raise Wrong(f"a target that is never reached should give math.inf; it gives {never:g}.")


def _one_lucky_look(answer: Callable) -> None:
    seconds = np.arange(0.0, 100.0, 2.0)
    clean = noisy_curve.accuracy(seconds)
    lucky = clean.copy()
    lucky[4] = 0.81
    moved = _time(answer, seconds, lucky, TARGET) - _time(answer, seconds, clean, TARGET)
    if not abs(moved) <= 1.5:
        raise Wrong(
            f"one lucky look after {seconds[4]:.0f} s, when the accuracy is {clean[4]:.2f}, moves the answer by "
            f"{moved:+.1f} s."
        )


def _however_often(answer: Callable) -> None:
    true = noisy_curve.reached(TARGET)
    off = {}
    for every in EVERY:
        found = [_time(answer, *noisy_curve.looks(every, seed), TARGET) for seed in range(CURVES)]
        if not np.all(np.isfinite(found)):
            raise Wrong(
                f"looked at every {every:g} s, {np.mean(~np.isfinite(found)):.0%} of the runs never reach the target."
            )
        off[every] = float(np.mean(found)) - true
    told = ", ".join(f"{late:+.1f} s with a look every {every:g} s" for every, late in off.items())
    often, *_, seldom = off.values()
    if seldom - often > 2 * MOST_OFF_S:
        raise Wrong(
            f"on average it is off by {told}: who looks often, wins. More looks are more chances for a lucky one, and "
            "between two looks nobody knows: use all looks around the target, and go between them."
        )
    if max(map(abs, off.values())) > MOST_OFF_S:
        raise Wrong(f"on average it is off by {told}: it should be within {MOST_OFF_S} s, however often one looks.")


EXERCISES = Exercises(
    Exercise(
        "ratio_interval",
        Criterion("ratio", "A ratio within its interval", 0.2, _ratio),
        Criterion("invariant", "Neither unit nor order matters", 0.4, _invariant),
        Criterion("covers", "Holds the truth in 95 %", 0.4, _covers),
    ),
    Exercise(
        "runs_needed",
        Criterion("enough", "Found four times out of five", 0.7, _enough),
        Criterion("scales", "With twice the spread", 0.3, _scales),
    ),
    Exercise(
        "time_to_target",
        Criterion("finds", "Without noise", 0.2, _finds),
        Criterion("lucky", "One lucky look", 0.3, _one_lucky_look),
        Criterion("looks", "However often one looks", 0.5, _however_often),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
