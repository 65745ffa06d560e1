"""Notebook 8b: verdicts on the reports, and what the reports are made of."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.notebook.judging import Wrong
from labs.lab8_honest_benchmarks.lessons import checks_8b, reports_8b, tricks


def test_each_report_has_another_trick_and_its_claim_is_outside_of_what_is_honest():
    reports = reports_8b.reports()
    assert sorted(one.trick for one in reports.values()) == sorted(reports_8b.TRICKS)
    for letter, report in reports.items():
        assert report.claim.startswith(f"{letter}. ")
        claimed = report.claim.split(" times as")[0].split()[-1]
        assert (report.low <= float(claimed) <= report.high) == (report.trick == "none"), letter


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
