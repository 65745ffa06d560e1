"""Notebook 8c: diagnoses of the reports, and the cases that the checks try."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab8_honest_benchmarks.lessons import checks_8c, reports_8c
from labs.lab8_honest_benchmarks.lessons.checks_8c import check, points


def test_the_cases_tell_the_mistakes_apart():
    for parts in (checks_8c.uneven(), checks_8c.filled(), checks_8c.empty()):
        right, alone = checks_8c._accuracies(parts), checks_8c._alone(parts, 0)
        assert abs(np.nanmean(alone) - right[0]) > 0.01 and abs(right[0] - right[1]) > 0.005
    assert np.nanmean(checks_8c._alone(checks_8c.equal(), 0)) == pytest.approx(
        checks_8c._accuracies(checks_8c.equal())[0]
    )


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
