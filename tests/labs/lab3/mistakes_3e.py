"""Mistakes in the exercises of notebook 3e, and other right answers."""

from itertools import combinations

import numpy as np

from course_lib import statistics
from labs.lab3_large_batch.lessons import tuning_budget

MEANS = 'scores.groupby(runs["rate"]).mean()'
DIFFERENCE = "np.asarray(ours) - np.asarray(theirs)"
RESULT = "difference.mean(), t * error"
MORE = "(with_other - without).to_numpy()"


def without_replacement(scores, budget):
    return np.mean([max(drawn) for drawn in combinations(scores, min(budget, len(scores)))])


MISTAKES = {
    "choose": {
        "chosen on the test images": ({'runs["validation"]': 'runs["test"]'}, "must not look at them"),
        "the luckiest seed": ({MEANS: MEANS.replace("mean", "max")}, "the mean over a rate's seeds"),
        "the most careful": ({MEANS: MEANS.replace("mean", "min")}, "best *worst* seed"),
        "diverged runs left out": ({'runs["validation"].fillna(0)': 'runs["validation"]'}, "not be left out"),
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
        "1.96 for all": ({"t * error": "1.96 * error"}, "1.96 is for many"),
        "one standard error": ({"t * error": "error"}, "the factor t"),
        "the whole width": ({"t * error": "2 * t * error"}, "half of it"),
        "both ends": ({RESULT: "difference.mean() - t * error, difference.mean() + t * error"}, "both ends"),
        "only the mean": ({RESULT: "difference.mean()"}, "2 values are expected"),
    },
    "expected_best": {
        "drawn without replacement": (without_replacement, "drawn twice"),
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
        "the mean over the seeds": ({MORE: "(with_other - without).mean()"}, "3 seeds"),
        "sorted in place": ({MORE: f"(runs.sort_values('seed', inplace=True), {MORE})[1]"}, "work on a copy"),
    },
}  # fmt: skip

RIGHT = {
    "interval": {"the library's": lambda ours, theirs, t: statistics.paired(ours, theirs)},
    "expected_best": {"the lesson's": tuning_budget.expected_best},
}
