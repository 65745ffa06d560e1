"""Checks of notebook 3e: the fair choice of a learning rate, a paired interval, a budget's best, interactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
import pandas as pd

from course_lib import statistics
from course_lib.notebook.answers import array, compare, number, returned, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab3_large_batch.lessons import tuning_budget

# --- choose

MISSING = float("nan")


def _runs(*rows: tuple[float, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["rate", "seed", "validation", "test"])


ONE_SEED = _runs((0.1, 0, 0.80, 0.79), (0.2, 0, 0.84, 0.80), (0.4, 0, 0.82, 0.85), (0.8, 0, 0.10, 0.10))
# Mean .833 at 0.2; a lucky seed at 0.1, equal runs at 0.4, the best median and the best last run at 0.8.
THREE_SEEDS = _runs(
    (0.4, 0, 0.81, 0.80), (0.2, 1, 0.80, 0.80), (0.1, 0, 0.88, 0.80), (0.1, 1, 0.75, 0.80), (0.8, 2, 0.70, 0.80),
    (0.2, 0, 0.87, 0.80), (0.4, 1, 0.81, 0.80), (0.8, 1, 0.84, 0.80), (0.1, 2, 0.74, 0.80), (0.2, 2, 0.83, 0.80),
    (0.4, 2, 0.81, 0.80), (0.8, 0, 0.85, 0.80),
)  # fmt: skip
MORE_SEEDS_AT_0_4 = _runs(
    (0.2, 0, 0.83, 0.8), (0.2, 1, 0.83, 0.8), (0.4, 0, 0.79, 0.8), (0.4, 1, 0.79, 0.8), (0.4, 2, 0.79, 0.8)
)
SOME_DIVERGED = _runs(
    (0.1, 0, 0.80, 0.8), (0.1, 1, 0.81, 0.8), (0.2, 0, 0.83, 0.8), (0.2, 1, 0.83, 0.8), (0.4, 0, 0.87, 0.8),
    (0.4, 1, MISSING, MISSING), (0.8, 0, MISSING, MISSING), (0.8, 1, MISSING, MISSING),
)  # fmt: skip
TIED = _runs((0.4, 0, 0.83, 0.8), (0.2, 0, 0.83, 0.8), (0.1, 0, 0.80, 0.8))


def _chooses_0_2(choose: Callable, runs: pd.DataFrame, mistakes: dict[str, float]) -> None:
    """`mistakes`: sentence → the rate that it leads to."""
    given, rates = runs.copy(), sorted(set(runs["rate"]))
    chosen = number(choose(given))
    if not given.equals(runs):
        raise Wrong("it changes the table that it is given: work on a copy.")
    if chosen not in rates:
        raise Wrong(f"it returns {chosen:g}, which is none of the rates {rates}: return the rate itself.")
    compare(chosen, 0.2, "the rate with the best mean validation accuracy", mistakes)


def _on_validation(choose: Callable) -> None:
    mistakes = {
        "0.4 is best on the *test* images: the choice must not look at them.": 0.4,
        "it chooses the worst rate.": 0.8,
    }
    _chooses_0_2(choose, ONE_SEED, mistakes)


def _mean_over_seeds(choose: Callable) -> None:
    mistakes = {
        "it takes the rate of the single best run, 0.88 by one seed: take the mean over a rate's seeds.": 0.1,
        "it takes the rate with the best *worst* seed: take the mean over a rate's seeds.": 0.4,
        "it takes the rate with the best median, or the best last run: take the mean over a rate's seeds.": 0.8,
    }
    _chooses_0_2(choose, THREE_SEEDS, mistakes)
    _chooses_0_2(choose, MORE_SEEDS_AT_0_4, {"0.4 has more seeds, and lower scores: take the mean, not the sum.": 0.4})
    _chooses_0_2(choose, TIED, {"0.2 and 0.4 are equally good: of equals the smallest is asked for.": 0.4})


def _counts_diverged(choose: Callable) -> None:
    mistakes = {
        "one of the two runs with 0.4 diverged. It counts as 0, and may not be left out of the mean.": 0.4,
        "it chooses 0.8, which diverged with every seed: a missing score counts as 0.": 0.8,
    }
    _chooses_0_2(choose, SOME_DIVERGED, mistakes)


# --- interval

OURS, THEIRS = (0.853, 0.861, 0.842, 0.850, 0.847), (0.846, 0.849, 0.841, 0.838, 0.844)


def _mean_and_half(interval: Callable, ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    ours, theirs = np.array(ours), np.array(theirs)
    with unchanged(ours, theirs):
        found = interval(ours, theirs, statistics.student(len(ours)))
    mean, half = several(found, "the mean difference", "half the width")
    return number(mean, "for the mean it"), number(half, "for the half width it")


def _difference(interval: Callable) -> None:
    got = _mean_and_half(interval, OURS, THEIRS)
    mean, half = statistics.paired(OURS, THEIRS)
    if np.allclose(got, (mean - half, mean + half)):
        raise Wrong("it returns both ends of the interval; asked for are the mean and half the width.")
    mistakes = {"the difference has the wrong sign: ours − theirs, positive where ours is better.": -mean}
    compare(got[0], mean, "in the example the mean of ours − theirs", mistakes)


def _width(interval: Callable) -> None:
    _, got = _mean_and_half(interval, OURS, THEIRS)
    _, half = statistics.paired(OURS, THEIRS)
    pairs = len(OURS)
    t = statistics.student(pairs)
    unpaired = np.hypot(np.std(OURS, ddof=1), np.std(THEIRS, ddof=1)) / np.sqrt(pairs)
    mistakes = {
        "the spreads of both are added up as if they had no seeds in common: take the differences first.": t * unpaired,
        "1.96 is for many pairs; with few of them use the `t` that is given.": half * 1.96 / t,
        "the factor t is missing: this is one standard error, within which only some two thirds fall.": half / t,
        "that is the spread of single differences; their mean's is smaller by the root of their number.": half
        * np.sqrt(pairs),
        "the spread is divided by n in place of √n.": half / np.sqrt(pairs),
        "√(n − 1) divides the spread, which has its n − 1 already: divide by √n.": half * np.sqrt(pairs / (pairs - 1)),
        "the variance is divided by n in place of n − 1 (`ddof=1`).": half * np.sqrt((pairs - 1) / pairs),
        "that is the whole width; half of it is asked for.": 2 * half,
    }
    compare(got, half, "in the example half the width", mistakes)


def _cancels(interval: Callable) -> None:
    _, half = _mean_and_half(interval, (0.70, 0.80, 0.90), (0.69, 0.79, 0.89))
    if not half < 1e-6:
        raise Wrong("ours is better by exactly 0.01 with each of three seeds: the interval has no width then.")


# --- expected_best

SCORES = (0.84, 0.70, 0.10, 0.86, 0.80)


def _best(expected_best: Callable, scores: Sequence[float], budget: int) -> float:
    given = np.array(scores)
    with unchanged(given):
        return number(expected_best(given, budget))


def _one_draw(expected_best: Callable) -> None:
    mistakes = {
        "with one draw the expected score is the mean of all, not the best of them.": max(SCORES),
        "the probabilities come out as 0: i / N, for i from 0 to N, are N + 1 numbers.": 0,
        "the power is one too high: for a budget of n it is n.": tuning_budget.expected_best(SCORES, 2),
    }
    if _best(expected_best, SCORES, 2) != _best(expected_best, SCORES, 2):
        raise Wrong("called twice with the same scores it gives two different numbers: calculate it, don't draw.")
    compare(_best(expected_best, SCORES, 1), np.mean(SCORES), f"the mean of one draw from {SCORES}", mistakes)


def _more_draws(expected_best: Callable) -> None:
    scores, ascending = np.array(SCORES), np.sort(SCORES)
    share = np.arange(len(scores) + 1) / len(scores)
    for budget in (3, 10):
        at_most = share**budget
        mistakes = {
            "this is the best of all. With few draws one may miss it.": max(scores),
            "the mean does not depend on the budget.": scores.mean(),
            "the scores must be in order, the lowest first: they are not sorted.": np.diff(at_most) @ scores,
            "the scores must be in order, the lowest first.": np.diff(at_most) @ ascending[::-1],
            "(i/N)ⁿ is the chance of *at most* this score; subtract the one before.": at_most[1:] @ ascending,
            "i counts from 1: the smallest score is the best with probability (1/N)ⁿ, not 0.": (
                np.diff(((np.arange(len(scores) + 1) - 1) / len(scores)) ** budget) @ ascending
            ),
            "this is right for one draw less.": tuning_budget.expected_best(SCORES, budget - 1),
            "this is right for one draw more.": tuning_budget.expected_best(SCORES, budget + 1),
        }
        if budget <= len(scores):
            sentence = "this is right if no setting is drawn twice; here each draw is from all."
            mistakes[sentence] = np.mean([max(drawn) for drawn in combinations(SCORES, budget)])
        expected = tuning_budget.expected_best(SCORES, budget)
        told = f"the mean of the best of {budget} draws from {SCORES}"
        compare(_best(expected_best, SCORES, budget), expected, told, mistakes)


def _equal_scores(expected_best: Callable) -> None:
    compare(_best(expected_best, (0.5, 0.5, 0.5), 4), 0.5, "if all scores are 0.5, the best of 4")


# --- interaction

SWITCHES = ("warm-up", "exempt", "LARS")


def _design(gains: dict[tuple[str, ...], float], seeds: int = 3) -> pd.DataFrame:
    """Runs in all eight positions. gains: switches that are on together → what that adds; shuffled rows."""
    rows = []
    for on in product((0, 1), repeat=len(SWITCHES)):
        position = dict(zip(SWITCHES, on))
        for seed in range(1, seeds + 1):
            score = 0.7 + 0.001 * seed + sum(gain for names, gain in gains.items() if all(position[n] for n in names))
            noise = 0.002 * ((7 * seed + 3 * sum(on) + 5 * on[0]) % 5 - 2)
            rows.append({**position, "seed": seed, "test": score + noise})
    return pd.DataFrame(rows).sample(frac=1, random_state=0).reset_index(drop=True)


def _corners(runs: pd.DataFrame, one: str, other: str) -> dict[tuple[int, int], np.ndarray]:
    """Mean over the third switch, [seeds], where `one` and `other` are 0 or 1."""
    means = runs.groupby([one, other, "seed"])["test"].mean()
    return {(i, j): means[i, j].to_numpy() for i in (0, 1) for j in (0, 1)}


def _one_position_of_the_third(runs: pd.DataFrame, one: str, other: str) -> dict[str, np.ndarray]:
    """By sentence what an answer gives that uses one position of the third switch only."""
    (third,) = set(SWITCHES) - {one, other}
    found = {}
    for position, word in ((0, "off"), (1, "on")):
        corner = _corners(runs[runs[third] == position], one, other)
        why = f"it uses only the runs with {third} {word}: average over both positions of the third switch."
        found[why] = corner[1, 1] - corner[0, 1] - corner[1, 0] + corner[0, 0]
    return found


def _interactions(interaction: Callable, runs: pd.DataFrame, one: str, other: str) -> None:
    given = runs.copy()
    got = returned(interaction(given, one, other))
    if not given.equals(runs):
        raise Wrong("it changes the table that it is given: work on a copy.")
    seeds = runs["seed"].nunique()
    got = array(got, (seeds,), f"with {seeds} seeds it")
    corner = _corners(runs, one, other)
    gain_on, gain_off = corner[1, 1] - corner[0, 1], corner[1, 0] - corner[0, 0]
    mistakes = {
        f"that is what {one} gains on average, whatever {other} is. How much more does it gain with {other}?": (
            (gain_on + gain_off) / 2
        ),
        f"that is what {one} gains with {other} on; take away what it gains with {other} off.": gain_on,
        f"that is what {one} gains with {other} off; asked is how much more it gains with {other} on.": gain_off,
        "the sign is turned round: the gain with the other switch on, minus the gain with it off.": gain_off - gain_on,
        "that is half of it: both gains are means over the third switch already.": (gain_on - gain_off) / 2,
        "the runs are added up over the third switch: take their mean.": 2 * (gain_on - gain_off),
        "that is what both together gain over neither.": corner[1, 1] - corner[0, 0],
        **_one_position_of_the_third(runs, one, other),
    }
    compare(got, gain_on - gain_off, f"for {one} and {other}, seed by seed,", mistakes, rtol=1e-6, atol=1e-9)


def _with_interaction(interaction: Callable) -> None:
    gains = {("warm-up",): 0.03, ("LARS",): 0.05, ("exempt",): 0.004, ("warm-up", "LARS"): -0.028}
    _interactions(interaction, _design(gains), "LARS", "warm-up")
    _interactions(interaction, _design(gains), "exempt", "LARS")


def _without(interaction: Callable) -> None:
    runs = _design({("warm-up",): 0.03, ("LARS",): 0.05})
    runs["test"] = runs["test"].round(3) + 0.0
    _interactions(interaction, runs, "warm-up", "exempt")


EXERCISES = Exercises(
    Exercise(
        "choose",
        Criterion("validation", "On validation data", 0.4, _on_validation),
        Criterion("seeds", "The mean over the seeds", 0.3, _mean_over_seeds),
        Criterion("diverged", "A diverged run counts", 0.3, _counts_diverged),
    ),
    Exercise(
        "interval",
        Criterion("mean", "The mean difference", 0.3, _difference),
        Criterion("width", "Half the width", 0.5, _width),
        Criterion("cancels", "What the seed does to both cancels", 0.2, _cancels),
    ),
    Exercise(
        "expected_best",
        Criterion("one", "A budget of one", 0.3, _one_draw),
        Criterion("more", "Larger budgets", 0.5, _more_draws),
        Criterion("equal", "Equal scores", 0.2, _equal_scores),
    ),
    Exercise(
        "interaction",
        Criterion("pairs", "How much more, seed by seed", 0.7, _with_interaction),
        Criterion("other-table", "Another table, another pair", 0.3, _without),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
