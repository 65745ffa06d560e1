"""The figures of notebook 7a."""

from __future__ import annotations

import pandas as pd
import pytest

from course_lib import statistics
from labs.lab7_splitting_the_model.lessons import figures_7a, wire_words
from labs.lab7_splitting_the_model.lessons.checks_7a import loads


@pytest.fixture
def table():
    rows = [
        {"setting": setting, "seed": seed, "use": "result", "dropped": 0.1 * place, "fullest": 0.25 + 0.1 * place,
         "test accuracy": 0.8 + 0.01 * seed * (1 + place)}
        for place, setting in enumerate(("one expert", "alpha 1", "alpha 0", "alpha 0.01"))
        for seed in (1, 2, 3)
    ]  # fmt: skip
    return pd.DataFrame([*rows, {"setting": "alpha 0", "seed": 101, "use": "tuning"}])


def test_the_summary_is_in_per_cent_with_student_s_intervals(table):
    found = figures_7a.summary(table)
    mean, half = statistics.mean([0.81, 0.82, 0.83])
    assert found.loc["one expert", ("test accuracy", "mean")] == pytest.approx(100 * mean)
    assert found.loc["one expert", ("test accuracy", "half")] == pytest.approx(100 * half)
    assert found.loc["alpha 0", ("dropped", "mean")] == pytest.approx(20)


def test_gains_are_paired(table):
    gains = figures_7a.gains(table)
    assert gains.loc["alpha 1", "mean"] == pytest.approx(2)
    assert gains.loc["alpha 1", "half"] == pytest.approx(100 * statistics.mean([0.01, 0.02, 0.03])[1])
    assert "one expert" not in gains.index


def test_the_settings_stand_in_the_order_of_their_factors(table):
    figure = figures_7a.balance(table, "here")
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["0", ".01", "1"]
    means = figure.axes[0].containers[0].lines[0].get_ydata()
    assert list(means) == pytest.approx([20, 30, 10])
    assert "one expert" in [text.get_text() for text in figure.axes[2].texts]


def test_plans_have_a_line_of_the_function_and_dots_of_the_count():
    counted = pd.DataFrame(
        [{"rank": rank, "plan": plan, "tokens": 256, "counted": 100.0 + rank} for plan in wire_words.PLANS
         for rank in (0, 1)]
    )  # fmt: skip
    (axis,) = figures_7a.plans(lambda *step: sum(loads(*step)), counted, "here").axes
    lines, dots = axis.lines[::2], axis.lines[1::2]
    assert [line.get_ydata()[0] for line in dots] == [100.5] * 3
    assert lines[0].get_ydata()[0] == lines[0].get_ydata()[-1] == sum(loads(1, wire_words.SIZES, 4, 1))
    assert [text.get_text() for text in axis.texts] == list(figures_7a.NAMES.values())
