"""Notebook 8b: verdicts on the reports, and what the reports are made of."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.notebook.judging import Wrong
from labs.lab8_honest_benchmarks.lessons import checks_8b, reports_8b, tricks
from labs.lab8_honest_benchmarks.lessons.checks_8b import check, points


def truth(**changes):
    """A right answer, with these letters changed."""
    right = {letter: (one.trick, (one.low * one.high) ** 0.5) for letter, one in reports_8b.reports().items()}
    return {**right, **changes}


def verdicts_of(found):
    def verdicts(reports):
        return found

    return verdicts


def test_each_report_has_another_trick_and_its_claim_is_outside_of_what_is_honest():
    reports = reports_8b.reports()
    assert sorted(one.trick for one in reports.values()) == sorted(reports_8b.TRICKS)
    for letter, report in reports.items():
        assert report.claim.startswith(f"{letter}. ")
        claimed = report.claim.split(" times as")[0].split()[-1]
        assert (report.low <= float(claimed) <= report.high) == (report.trick == "none"), letter


WRONG_VERDICTS = {
    "the trick turned round": ({"C": ("threshold", 0.75)}, "factor"),
    "a trick where there is none": ({"B": ("best run", 1.27)}, "suspicion is no evidence"),
    "none where there is one": ({"A": ("none", 1.0)}, "which columns does each side's number add up"),
    "start for best run": ({"D": ("start", 0.9)}, "the same seconds are counted on both sides"),
    "the claim's own factor": ({"E": ("baseline", 39)}, "how was the setting of each side chosen"),
    "turned round": ({"E": ("baseline", 1 / 8)}, "turned round"),
    "per core": ({"F": ("normaliser", 3.28)}, "by what are the two sides divided"),
    "just the bound": ({"C": ("threshold", 3.76)}, "just beyond the bound"),
    "an unknown word": ({"A": ("cold start", 1.0)}, "is none of"),
    "no factor": ({"A": "start"}, "(trick, factor) is expected"),
}


@pytest.mark.parametrize("changes, words", WRONG_VERDICTS.values(), ids=WRONG_VERDICTS)
def test_a_wrong_verdict_gets_its_reason(changes, words):
    wrong = verdicts_of(truth(**changes))
    assert points(wrong, 6) < 6.0
    assert words in str(check(wrong))


def test_right_verdicts_and_a_missing_report():
    assert points(verdicts_of(truth()), 6) == 6.0
    assert points(verdicts_of(truth(D=("best run", 1.0))), 6) == 6.0  # both sides are the same training
    found = truth()
    del found["C"]
    assert "the keys A, B, C" in str(check(verdicts_of(found)))


def test_five_right_of_six_get_most_of_the_points():
    assert points(verdicts_of(truth(A=("none", 1.05))), 6) == pytest.approx(5.5)


def test_a_judge_that_says_yes_or_no():
    def broken_rule(record, division):
        return True

    assert "expected is the rule's name" in str(check(broken_rule))


def test_every_record_to_be_refused_breaks_a_rule_of_the_table():
    rules = {rule for rule, _, _ in checks_8b.REFUSED.values()}
    assert rules == {"data", "looks", "clock", "runs", "choice", "network", "baseline"}
    with pytest.raises(Wrong):
        checks_8b._refuses(lambda record, division: "")


def test_the_gradient_of_the_regression():
    random = np.random.default_rng(0)
    x, y, w = random.normal(size=(20, 5)), random.integers(0, 3, 20), random.normal(size=(5, 3))
    _, gradient = tricks.loss_and_gradient(w, x, y)
    for i, j in ((0, 0), (4, 2)):
        step = np.zeros_like(w)
        step[i, j] = 1e-6
        slope = (tricks.loss_and_gradient(w + step, x, y)[0] - tricks.loss_and_gradient(w - step, x, y)[0]) / 2e-6
        assert gradient[i, j] == pytest.approx(slope, rel=1e-5)


def test_the_best_of_many_is_less_good_on_other_images():
    random = np.random.default_rng(0)
    w = random.normal(size=(20, 4))
    x = random.normal(size=(2000, 20))
    y = (x @ w + random.normal(0, 4, (2000, 4))).argmax(axis=1)
    scores = tricks.best_of_many(x[:1000], y[:1000], ((x[1000:1200], y[1000:1200]), (x[1200:], y[1200:])), 60, 100)
    above = scores[scores[:, 0].argmax()] - scores.mean(axis=0)
    assert above[0] > above[1]
