"""Mistakes in the exercises of notebook 3e, and other right answers."""

from itertools import combinations

import numpy as np
import pandas as pd

from course_lib import statistics
from labs.lab3_large_batch.lessons import tuning_budget

MEANS = 'scores.groupby(runs["rate"]).mean()'
DIFFERENCE = "np.asarray(ours) - np.asarray(theirs)"
RESULT = "difference.mean(), t * error"
MORE = "(with_other - without).to_numpy()"


def without_replacement(scores, budget):
    return np.mean([max(drawn) for drawn in combinations(scores, min(budget, len(scores)))])


def drawn(scores, budget):
    return np.random.default_rng().choice(scores, (20_000, budget)).max(axis=1).mean()


def by_loops(runs):
    scores = {}
    for row in runs.itertuples():
        scores.setdefault(row.rate, []).append(0.0 if row.validation != row.validation else row.validation)
    return max(sorted(scores), key=lambda rate: sum(scores[rate]) / len(scores[rate]))


def by_a_pivot_table(runs):
    known = runs.assign(validation=runs["validation"].fillna(0.0))
    return known.pivot_table(index="rate", values="validation", aggfunc="mean")["validation"].idxmax()


def by_columns(runs, one, other):
    table = runs.pivot_table(index="seed", columns=[one, other], values="test")
    return table[1, 1] - table[1, 0] - table[0, 1] + table[0, 0]


def standard_error(ours, theirs, t):
    difference = pd.Series(ours) - pd.Series(theirs)
    return difference.mean(), t * difference.sem()


def from_the_top(scores, budget):
    ordered = np.sort(scores)
    return ordered[-1] - np.diff(ordered) @ (np.arange(1, len(ordered)) / len(ordered)) ** budget


def by_signs(runs, one, other):
    signed = runs["test"] * (2 * runs[one] - 1) * (2 * runs[other] - 1)
    return list(signed.groupby(runs["seed"]).sum() / 2)


MISTAKES = {
    "choose": {
        "chosen on the test images": ({'runs["validation"]': 'runs["test"]'}, "must not look at them"),
        "the luckiest seed": ({MEANS: MEANS.replace("mean", "max")}, "the mean over a rate's seeds"),
        "the most careful": ({MEANS: MEANS.replace("mean", "min")}, "best *worst* seed"),
        "the median": ({MEANS: MEANS.replace("mean", "median")}, "best median"),
        "the last run": ({MEANS: MEANS.replace("mean", "last")}, "best last run"),
        "the sum": ({MEANS: MEANS.replace("mean", "sum")}, "not the sum"),
        "diverged runs left out": ({'runs["validation"].fillna(0)': 'runs["validation"]'}, "not be left out"),
        "the mean for diverged runs":
            ({'runs["validation"].fillna(0)': 'runs["validation"].fillna(runs["validation"].mean())'},
             "It counts as 0"),
        "the accuracy in place of the rate": ({f"{MEANS}.idxmax()": f"{MEANS}.max()"}, "the rate itself"),
        "the row in place of the rate": ({MEANS: "scores"}, "none of the rates"),
        "the largest of equals":
            ({f"{MEANS}.idxmax()": f"{MEANS}.sort_index(ascending=False).idxmax()"}, "of equals the smallest"),
        "the worst": ({f"{MEANS}.idxmax()": f"{MEANS}.idxmin()"}, "the worst rate"),
        "all means": ({f"{MEANS}.idxmax()": MEANS}, "one number is expected"),
        "no return": ({f"return {MEANS}.idxmax()": f"{MEANS}.idxmax()"}, "is a `return` missing"),
        "the table changed":
            ({"scores =" + ' runs["validation"].fillna(0)':
               'scores = runs["validation"] = runs["validation"].fillna(0)'},
             "on a copy"),
    },
    "interval": {
        "seeds not paired": (
            {"difference.std(ddof=1)": "np.hypot(np.std(ours, ddof=1), np.std(theirs, ddof=1))"}, "no seeds in common",
        ),
        "theirs minus ours": ({DIFFERENCE: "np.asarray(theirs) - np.asarray(ours)"}, "wrong sign"),
        "n in place of n - 1": ({"difference.std(ddof=1)": "difference.std()"}, "in place of n − 1"),
        "the spread of one run": ({"np.sqrt(len(difference))": "1"}, "root of their number"),
        "n in place of its root": ({"np.sqrt(len(difference))": "len(difference)"}, "in place of √n"),
        "n - 1 twice": ({"np.sqrt(len(difference))": "np.sqrt(len(difference) - 1)"}, "which has its n − 1 already"),
        "1.96 for all": ({"t * error": "1.96 * error"}, "1.96 is for many"),
        "one standard error": ({"t * error": "error"}, "the factor t"),
        "the whole width": ({"t * error": "2 * t * error"}, "half of it"),
        "both ends": ({RESULT: "difference.mean() - t * error, difference.mean() + t * error"}, "both ends"),
        "only the mean": ({RESULT: "difference.mean()"}, "2 values are expected"),
    },
    "expected_best": {
        "drawn without replacement": (without_replacement, "drawn twice"),
        "drawn at random": (drawn, "don't draw"),
        "the mean of the n best":
            (lambda scores, budget: np.mean(np.sort(scores)[-budget:]), "the mean of all, not the best"),
        "the best of all":
            ({"np.sum(np.sort(scores) * np.diff(share**budget))": "max(scores)"}, "the mean of all, not the best"),
        "not sorted": ({"np.sort(scores)": "np.asarray(scores)"}, "not sorted"),
        "the highest first": ({"np.sort(scores)": "np.sort(scores)[::-1]"}, "in order"),
        "sorted in place": ({"np.sort(scores)": "(scores.sort(), scores)[1]"}, "changed in place"),
        "one draw too many": ({"share**budget": "share ** (budget + 1)"}, "one too high"),
        "one draw too few": ({"share**budget": "share ** max(1, budget - 1)"}, "one draw less"),
        "counted from 0":
            ({"np.arange(len(scores) + 1) / len(scores)": "(np.arange(len(scores) + 1) - 1) / len(scores)"},
             "i counts from 1"),
        "nothing subtracted": ({"np.diff(share**budget)": "share[1:] ** budget"}, "the one before"),
        "the budget forgotten": ({"share**budget": "share"}, "does not depend on the budget"),
        "whole shares":
            ({"np.arange(len(scores) + 1) / len(scores)": "np.arange(len(scores) + 1) // (len(scores) + 1)"},
             "come out as 0"),
        "one share too few": ({"len(scores) + 1": "len(scores)"}, "raised ValueError"),
    },
    "interaction": {
        "the mean": ({MORE: "((with_other + without) / 2).to_numpy()"}, "gains on average"),
        "with the other": ({MORE: "with_other"}, "take away what it gains"),
        "without the other": ({MORE: "without"}, "how much more it gains"),
        "turned round": ({MORE: "without - with_other"}, "turned round"),
        "half": ({MORE: "(with_other - without) / 2"}, "that is half of it"),
        "twice": ({MORE: "2 * (with_other - without)"}, "take their mean"),
        "both together": ({MORE: "corner[1, 1] - corner[0, 0]"}, "both together"),
        "the third switch off": ({"runs.groupby([one, other, 'seed'])['test'].mean()":
             "runs[runs[({'warm-up', 'exempt', 'LARS'} - {one, other}).pop()] == 0]"
             ".groupby([one, other, 'seed'])['test'].mean()"}, "both positions of the third"),
        "the mean over the seeds": ({MORE: "(with_other - without).mean()"}, "3 seeds"),
        "sorted in place": ({MORE: f"(runs.sort_values('seed', inplace=True), {MORE})[1]"}, "work on a copy"),
    },
}  # fmt: skip

RIGHT = {
    "choose": {"loops": by_loops, "a pivot table": by_a_pivot_table},
    "interval": {
        "the library's": lambda ours, theirs, t: statistics.paired(ours, theirs),
        "pandas' standard error": standard_error,
    },
    "expected_best": {"the lesson's": tuning_budget.expected_best, "from the best score down": from_the_top},
    "interaction": {"a sum with signs": by_signs, "a table of four columns": by_columns},
}
