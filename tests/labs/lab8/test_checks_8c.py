"""Notebook 8c: diagnoses of the reports, and the cases that the checks try."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab8_honest_benchmarks.lessons import checks_8c, reports_8c


def test_the_cases_tell_the_mistakes_apart():
    for parts in (checks_8c.uneven(), checks_8c.filled(), checks_8c.empty()):
        right, alone = checks_8c._accuracies(parts), checks_8c._alone(parts, 0)
        assert abs(np.nanmean(alone) - right[0]) > 0.01 and abs(right[0] - right[1]) > 0.005
    assert np.nanmean(checks_8c._alone(checks_8c.equal(), 0)) == pytest.approx(
        checks_8c._accuracies(checks_8c.equal())[0]
    )


def test_a_printed_report_does_not_tell_its_mistake():
    for report in reports_8c.reports().values():
        shown = repr(report) + report._repr_html_()
        assert "mistake" not in shown and "accuracy" not in shown


def test_each_report_has_another_mistake_and_no_two_report_nearly_the_same():
    reports = reports_8c.reports()
    assert sorted(one.mistake for one in reports.values()) == sorted(reports_8c.MISTAKES)
    said = sorted(one.reported for one in reports.values())
    assert min(np.diff(said)) > 0.05
    assert reports_8c.measured()["images"].sum() == 5000
