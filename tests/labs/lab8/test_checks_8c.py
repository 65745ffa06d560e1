"""Notebook 8c: the solutions, mistakes that learners make in them, and what the checks try."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab8_honest_benchmarks.lessons import checks_8c, reports_8c
from labs.lab8_honest_benchmarks.lessons.checks_8c import check, points

NOTEBOOK = "8c_evaluate_on_all_ranks"


@pytest.mark.parametrize("name", ["epoch_seconds", "evaluated", "diagnoses", "within_budget", "same_memory"])
def test_the_solution_gets_full_points(answer, name):
    solution = answer(NOTEBOOK, name)
    assert points(solution, 5) == 5.0, str(check(solution))


REDUCED = "me.all_reduce(np.stack([right, count]).astype(float))"
WRONG_ACCURACIES = {
    "own share": ((REDUCED, "(right, count)"), "this rank's own share"),
    "mean of means": (
        (
            "return right.sum() / count.sum(), np.mean(right[there] / count[there])",
            """
            mine = np.mean((labels == predicted)[real]) if real.any() else 0.0
            both = me.all_reduce(np.array([mine, float(real.any())]))
            return both[0] / both[1], np.mean(right[there] / count[there])
            """,
        ),
        "mean of the ranks' means: a rank with few",
    ),
    "mean of means over all": (
        (
            "return right.sum() / count.sum(), np.mean(right[there] / count[there])",
            """
            mine = np.mean((labels == predicted)[real]) if real.any() else 0.0
            return me.all_reduce(np.array(mine)) / me.size, np.mean(right[there] / count[there])
            """,
        ),
        "without images counts as 0 % right",
    ),
    "sum of accuracies": (
        (
            "return right.sum() / count.sum(), np.mean(right[there] / count[there])",
            """
            mine = np.mean((labels == predicted)[real]) if real.any() else 0.0
            return me.all_reduce(np.array(mine)), np.mean(right[there] / count[there])
            """,
        ),
        "`all_reduce` adds up",
    ),
    "filling counts": (
        ("real & (labels == predicted)", "labels == predicted"),
        ("labels[real]", "labels"),
        "`real` says which don't",
    ),
    "filling divides": (("labels[real]", "labels"), "are still divided by"),
    "0 divided by 0": (
        ("right, count = " + REDUCED, "share = me.all_reduce(right / count) / me.size"),
        ("right.sum() / count.sum()", "share.mean()"),
        "something is divided by 0",
    ),
    "a rank without images stays out": (
        ("right, count = " + REDUCED, "if real.any():\n    right, count = " + REDUCED),
        "must call it, too",
    ),
    "absent classes count as 0": (
        ("np.mean(right[there] / count[there])", "np.sum(right[there] / count[there]) / 10"),
        "classes that nobody has count as 0",
    ),
    "the plain one twice": (
        ("np.mean(right[there] / count[there])", "right.sum() / count.sum()"),
        "in the balanced one each class counts alike",
    ),
    "only one": (
        ("return right.sum() / count.sum(), np.mean(right[there] / count[there])", "return right.sum() / count.sum()"),
        "2 values are expected",
    ),
    "the plain one second": (
        (
            "return right.sum() / count.sum(), np.mean(right[there] / count[there])",
            "return np.mean(right[there] / count[there]), right.sum() / count.sum()",
        ),
        "return the plain one first",
    ),
    "percent": (("right.sum() / count.sum()", "100 * right.sum() / count.sum()"), "not percent"),
    "by how often a class was named": (
        ("there = count > 0", "count = me.all_reduce(np.bincount(predicted[real], minlength=10))\nthere = count > 0"),
        "how often a class was named",
    ),
    "a class's share averaged over the ranks": (
        (
            "there = count > 0",
            """
            mine = np.bincount(labels[real], minlength=10)
            hits = np.bincount(labels[real & (labels == predicted)], minlength=10)
            shares = me.all_reduce(np.where(mine > 0, hits / np.maximum(mine, 1), 0))
            there = count > 0
            right = shares / np.maximum(me.all_reduce(1.0 * (mine > 0)), 1) * count
            """,
        ),
        "has a single image of the class",
    ),
    "in place": (("there = count > 0", "there = count > 0\nlabels[:1] = 0\nlabels[1:] = 1"), "changed in place"),
}


@pytest.mark.parametrize("mistake", WRONG_ACCURACIES.values(), ids=WRONG_ACCURACIES)
def test_a_wrong_way_over_ranks_is_named(answer, mistake):
    *edits, words = mistake
    wrong = answer(NOTEBOOK, "evaluated", *edits)
    assert points(wrong, 5) < 5.0
    assert words in str(check(wrong))


def test_the_cases_tell_the_mistakes_apart():
    for parts in (checks_8c.uneven(), checks_8c.filled(), checks_8c.empty()):
        right, alone = checks_8c._accuracies(parts), checks_8c._alone(parts, 0)
        assert abs(np.nanmean(alone) - right[0]) > 0.01 and abs(right[0] - right[1]) > 0.005
    assert np.nanmean(checks_8c._alone(checks_8c.equal(), 0)) == pytest.approx(
        checks_8c._accuracies(checks_8c.equal())[0]
    )


ASIDE = "max(training / (ranks - 1), evaluation)"
WRONG_EPOCHS = {
    "rank 0's evaluation shared out": (
        ("training / ranks + evaluation", "(training + evaluation) / ranks"),
        "only rank 0",
    ),
    "training not shared out": (("training / ranks + evaluation", "training + evaluation"), "among all ranks"),
    "rank 0 beside the training": (
        ("training / ranks + evaluation", "max(training / ranks, evaluation)"),
        "nothing runs beside it",
    ),
    "aside adds up": ((ASIDE, "training / (ranks - 1) + evaluation"), "not their sum"),
    "all ranks train": ((ASIDE, "max(training / ranks, evaluation)"), "N − 1 are left"),
    "the shorter decides": ((ASIDE, "min(training / (ranks - 1), evaluation)"), "until the next epoch is trained"),
    "N − 1 for all ways": (
        (
            "return (training + evaluation) / ranks",
            "return {'all ranks': (training + evaluation) / ranks}.get(way, training / (ranks - 1))",
        ),
        "'all ranks' with 1 rank divides by 0",
    ),
    "training alone shared, the wrong way round": (
        ("training / ranks + evaluation", "training + evaluation / ranks"),
        "other way round",
    ),
    "aside never waits": ((ASIDE, "training / (ranks - 1)"), "has to wait for it"),
    "all ranks, evaluation not shared out": (
        ("(training + evaluation) / ranks", "training / ranks + evaluation"),
        "evaluation is shared out as well",
    ),
    "all ranks at the same time": (("(training + evaluation) / ranks", "max(training, evaluation) / ranks"), "add up"),
}


@pytest.mark.parametrize("edit, words", WRONG_EPOCHS.values(), ids=WRONG_EPOCHS)
def test_a_wrong_epoch_is_named(answer, edit, words):
    wrong = answer(NOTEBOOK, "epoch_seconds", edit)
    assert points(wrong, 4) < 4.0
    assert words in str(check(wrong))


def truth(**changes):
    right = {letter: (one.mistake, one.accuracy) for letter, one in reports_8c.reports().items()}
    return {**right, **changes}


def diagnoses_of(found):
    def diagnoses(reports):
        return found

    return diagnoses


WRONG_DIAGNOSES = {
    "fault where there is none": ({"B": ("mean of means", 50.0)}, "a large spread between ranks is no fault"),
    "none where there is one": ({"A": ("none", 50.0)}, "how many images stand behind each"),
    "filling for divisor": ({"C": ("filling", 50.0)}, "which among those divided by?"),
    "one rank unseen": ({"F": ("none", 40.5)}, "accuracy of each rank by itself"),
    "same share unseen": ({"D": ("none", None)}, "compare the rows"),
    "same share, and a number": ({"D": ("same share", 45.0)}, "return None"),
    "the reported one": ({"F": ("one rank", 90.0)}, "is not what the ranks' counts give"),
    "no number": ({"E": ("filling", None)}, "every image of the test set is in it"),
    "an unknown word": ({"A": ("padding", 45.0)}, "is none of"),
    "no pair": ({"A": "none"}, "(mistake, accuracy) is expected"),
}


@pytest.mark.parametrize("changes, words", WRONG_DIAGNOSES.values(), ids=WRONG_DIAGNOSES)
def test_a_wrong_diagnosis_gets_its_reason(changes, words):
    wrong = diagnoses_of(truth(**changes))
    assert points(wrong, 6) < 6.0
    assert words in str(check(wrong))


def test_a_share_in_place_of_percent():
    right = truth()
    wrong = diagnoses_of({**right, "B": ("none", right["B"][1] / 100)})
    assert "in percent, please" in str(check(wrong))


def test_a_printed_report_does_not_tell_its_mistake():
    for report in reports_8c.reports().values():
        shown = repr(report) + report._repr_html_()
        assert "mistake" not in shown and "accuracy" not in shown


def test_right_diagnoses_and_a_missing_report():
    assert points(diagnoses_of(truth()), 6) == 6.0
    found = truth()
    del found["C"]
    assert "the keys A, B, C" in str(check(diagnoses_of(found)))


def test_each_report_has_another_mistake_and_no_two_report_nearly_the_same():
    reports = reports_8c.reports()
    assert sorted(one.mistake for one in reports.values()) == sorted(reports_8c.MISTAKES)
    said = sorted(one.reported for one in reports.values())
    assert min(np.diff(said)) > 0.05
    assert reports_8c.measured()["images"].sum() == 5000


WRONG_BUDGETS = {
    "all weights into width": (("weights ** 0.5", "weights"), "twice the width is four times the weights"),
    "width from the work": (("width = weights ** 0.5", "width = multiply_adds ** 0.5"), "resolution changes no weight"),
    "pixels for side": (("(multiply_adds / weights) ** 0.5", "multiply_adds / weights"), "four times the pixels"),
    "work of the width forgotten": (("(multiply_adds / weights) ** 0.5", "multiply_adds ** 0.5"), "used part of"),
    "the square of the weights": (
        ("(multiply_adds / weights) ** 0.5", "multiply_adds ** 0.5 / weights"),
        "not the square of that",
    ),
    "work grows with the width": (("multiply_adds / weights", "multiply_adds / width"), "the square of the width"),
    "turned round": (
        ("return width, (multiply_adds / weights) ** 0.5", "return (multiply_adds / weights) ** 0.5, width"),
        "return the width first",
    ),
}


@pytest.mark.parametrize("edit, words", WRONG_BUDGETS.values(), ids=WRONG_BUDGETS)
def test_a_wrong_budget_is_named(answer, edit, words):
    wrong = answer(NOTEBOOK, "within_budget", edit)
    assert points(wrong, 2) < 2.0
    assert words in str(check(wrong))


WRONG_DECAYS = {
    "unchanged": (("decay ** (batch / base)", "decay"), "are many more images"),
    "in proportion": (("decay ** (batch / base)", "1 - batch / base * (1 - decay)"), "as long as it is small"),
    "turned round": (("batch / base", "base / batch"), "forget more, not less"),
    "divided": (("decay ** (batch / base)", "decay / (batch / base)"), "nearly everything"),
    "turned round in proportion": (("decay ** (batch / base)", "1 - (1 - decay) * base / batch"), "a matter of powers"),
    "without brackets": (("decay ** (batch / base)", "decay**batch / base"), "in brackets"),
    "what is forgotten": (("decay ** (batch / base)", "(1 - decay) ** (batch / base)"), "ask what is kept"),
    "whole numbers": (("batch / base", "batch // base"), "need not be a whole number"),
    "the root": (("batch / base", "(batch / base) ** 0.5"), "The root of the ratio?"),
}


@pytest.mark.parametrize("edit, words", WRONG_DECAYS.values(), ids=WRONG_DECAYS)
def test_a_wrong_decay_is_named(answer, edit, words):
    wrong = answer(NOTEBOOK, "same_memory", edit)
    assert points(wrong, 2) < 2.0
    assert words.lower() in str(check(wrong)).lower()
