from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from labs.lab3_large_batch.lessons import figures_3e


def test_winners_say_how_often_b_is_ahead(titles):
    figure = figures_3e.winners({"lucky": np.array([1.0, 2.0, -1.0, 3.0]), "fresh": np.array([-1.0, 1.0])})
    assert titles(figure) == ["lucky: B wins 75%", "fresh: B wins 50%"]


def test_valleys_mark_the_best_rate_and_end_where_runs_diverge():
    scores = pd.Series({0.1: 0.80, 0.3: 0.85, 1.0: float("nan")})
    lines = {"SGD": scores, "LARS": scores - 0.5}
    axis, other = figures_3e.valleys({"batch 64": lines, "batch 1,280": lines}).axes
    assert [each.yaxis.get_major_formatter()(0.8) for each in (axis, other)] == ["80", "80"]  # both in %
    line, chosen = axis.lines[:2]
    np.testing.assert_array_equal(line.get_ydata(), scores)
    assert (list(chosen.get_xdata()), list(chosen.get_ydata())) == ([0.3], [0.85])
    assert axis.get_ylim()[0] == pytest.approx(0.6)  # far below, details are of no interest


def test_methods_show_each_seed_and_the_mean_on_one_scale(titles):
    rows = [
        {"use": "result", "rule": rule, "method": method, "batch": batch, "test": 0.8 + 0.01 * seed}
        for rule in ("", "√") for batch in (64, 1280) for method in figures_3e.METHODS for seed in range(3)
    ]  # fmt: skip
    figure = figures_3e.methods(pd.DataFrame(rows))
    assert titles(figure) == ["batch 64", "batch 1,280"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [0.80, 0.81, 0.82])
    assert len(figure.axes[0].lines) == len(figures_3e.METHODS)


def test_gains_are_differences_in_points_with_the_given_interval():
    ours, theirs = [0.85, 0.86, 0.88], [0.84, 0.84, 0.85]
    figure = figures_3e.gains({"batch 64": {"LARS": (ours, theirs)}}, statistics.paired, against="SGD")
    each, mean = figure.axes[0].lines[:2]
    np.testing.assert_allclose(each.get_xdata(), [1, 2, 3])
    assert float(mean.get_xdata()[0]) == pytest.approx(2)
    assert "SGD" in figure.axes[0].get_xlabel()


def test_budgets_begin_with_one():
    (axis,) = figures_3e.budgets({"SGD": [0.7, 0.8], "LARS": [0.75, 0.78]}).axes
    assert [list(line.get_xdata()) for line in axis.lines] == [[1, 2], [1, 2]]


def test_positions_show_all_eight_and_leave_the_further_tricks_out():
    switches, others = ("warm-up", "exempt", "LARS"), ("ghost", "longer")
    rows = [
        {
            "use": "result", "batch": 1280, "ghost": ghost, "longer": 0, "test": 0.7 + 0.01 * sum(on) + 0.001 * seed,
            **dict(zip(switches, on)),
        }
        for on in itertools.product((0, 1), repeat=3) for seed in range(3) for ghost in (0, 1)
    ]  # fmt: skip
    (axis,) = figures_3e.positions(pd.DataFrame(rows), switches, others, 1280).axes
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert len(labels) == 8 and labels[0] == "nothing" and labels[-1] == "warm-up\nexempt\nLARS"
    assert all(len(line.get_ydata()) == 3 for line in axis.lines)
    assert axis.lines[-1].get_ydata().mean() == pytest.approx(73.1)
