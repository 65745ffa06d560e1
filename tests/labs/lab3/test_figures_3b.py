from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook.plots import descent_paths
from labs.lab3_large_batch.lessons import figures_3b

RULES = ("the same rate", "linear", "linear, warm-up", "√", "√, warm-up", "LEGW")


def shown(figure):
    """The texts of a figure."""
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return " ".join(
        [text.get_text() for text in figure.texts] + [axis.get_title(loc="left") for axis in figure.axes] + legends
    )


@pytest.fixture
def scaling():
    """A table as rate_scaling writes it; the linear rule has diverged."""
    rows = [
        {"use": use, "rule": "tuned", "batch": batch, "eta": eta, "epochs": 8, "validation": 0.8 - eta, "test": test,
         "seed": seed}
        for batch in (16, 64)
        for use, test, etas in (("tuning", np.nan, (0.005, 0.01, 0.1)), ("result", 0.8, (0.005, 0.005)))
        for seed, eta in enumerate(etas, 1)
    ]  # fmt: skip
    for rule in RULES:
        test = np.nan if rule == "linear" else 0.7
        rows += [
            {"use": "result", "rule": rule, "batch": 64, "eta": 0.1, "epochs": 8, "test": test, "seed": seed}
            for seed in (1, 2)
        ]
    rows += [{"use": "result", "rule": "tuned", "batch": 64, "eta": 0.005, "epochs": 32, "test": 0.9}]
    return pd.DataFrame(rows)


def test_importing_loads_neither_tensorflow_nor_pyplot():
    module = "labs.lab3_large_batch.lessons.figures_3b"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_each_rule_is_drawn_as_points_from_the_best_rate_and_longer_runs_are_left_out(scaling):
    figure = figures_3b.rules(scaling, caption="a caption")
    text = shown(figure)
    assert "less that of the best rate, points" in text and "a caption" in text
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    found = {name.partition(", B")[0]: line.get_xdata() for name, line in lines.items() if ", B = " in name}
    np.testing.assert_allclose(found["LEGW"], [-10])
    np.testing.assert_allclose(found["linear"], [np.nan])
    assert set(rows) >= set(RULES) - {"tuned"} and rows[0].startswith("B = ")


def test_differences_are_taken_seed_by_seed():
    rows = [("tuned", 1, 0.8), ("tuned", 2, 0.9), ("√", 2, 0.91), ("√", 1, 0.79)]
    table = pd.DataFrame(rows, columns=["rule", "seed", "test"]).assign(batch=64)
    found = figures_3b.differences(table).set_index("seed")["points"]
    assert found[1] == pytest.approx(-1) and found[2] == pytest.approx(1)


def test_the_curvature_stands_beside_the_edge_of_its_rate():
    rows = [(rule, 0, 1, after, eta, 10.0) for rule, eta in (("√", 0.38), ("small", 0.01)) for after in (0, 4)]
    table = pd.DataFrame(rows, columns=["rule", "warm_up", "seed", "after", "eta", "sharpness"]).assign(batch=1024)
    other = table[table["rule"] == "small"].assign(batch=64, sharpness=20.0)
    axis, last = figures_3b.curvature(pd.concat([table, other]), momentum=0.9, caption="a caption").axes
    assert {line.get_label(): line.get_ydata()[-1] for line in last.lines} == {"B = 64": 20, "B = 1,024": 10}
    calm, measured, edge, _ = axis.lines
    np.testing.assert_allclose(measured.get_ydata(), 10)
    np.testing.assert_allclose(edge.get_ydata(), 10)  # 2 · 1.9 / 0.38
    assert "0.38" in axis.get_title(loc="left") and calm.get_label() == "a rate far below any edge"


def test_longer_shows_the_rates_that_were_tried_and_the_seeds():
    rows = [("tuning", 64, 8, eta, 0, 0.5, np.nan) for eta in (0.1, 0.2)]
    rows += [("result", 64, 8, 0.1, seed, 0.5, 0.6) for seed in (1, 2, 3)]
    table = pd.DataFrame(rows, columns=["use", "batch", "epochs", "eta", "seed", "validation", "test"])
    left, right = figures_3b.longer(table, caption="a caption").axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [50, 50])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [60, 60, 60])


def test_the_base_of_legw_shows_seeds_and_mean_for_each_warm_up():
    table = pd.DataFrame({"warm_up": [0, 0, 12, 12], "seed": [1, 2, 1, 2], "validation": [0.8, 0.9, 0.7, 0.7]})
    (axis,) = figures_3b.base_warm_up(table, caption="a caption").axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "12"]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [80, 90])


def test_the_bars_are_the_rates_that_are_nearly_as_good(scaling):
    bars = [line for line in figures_3b.rules(scaling).axes[1].lines if line.get_linewidth() == 7]
    for bar in bars:
        np.testing.assert_allclose(bar.get_ydata(), [0.005, 0.01])
    assert len(bars) == 2


def test_the_rules_lead_from_the_smallest_batch():
    figure = figures_3b.optimum({1: 0.001, 4: 0.004, 16: 0.01}, edge=0.1, caption="a model")
    assert "best learning rate" in shown(figure)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    np.testing.assert_allclose(lines["linear"].get_ydata(), [0.001, 0.004, 0.016])
    np.testing.assert_allclose(lines["√"].get_ydata(), [0.001, 0.002, 0.004])


def test_steps_have_a_panel_for_one_and_two_for_many():
    one = pd.DataFrame({"rule": ["√", "√"], "batch": [16, 64], "measured": [1e-3, 1e-3], "predicted": [1e-3, 1e-3]})
    many = pd.DataFrame({"rule": ["√", "√"], "k": [1, 4], "mean": [1, 0.5], "covariance": [1, 0.25]})
    figure = figures_3b.steps(one, many, caption="a caption")
    assert "cov(Δw)" in shown(figure)
    assert [list(axis.lines[0].get_ydata()) for axis in figure.axes] == [[1e-3, 1e-3], [1, 0.5], [1, 0.25]]


@pytest.mark.parametrize(("eta", "shown_steps"), [(0.01, 300), (0.5, 4)])
def test_a_walk_over_the_edge_is_drawn_as_far_as_it_stays_near(eta, shown_steps):
    bowl = descent_paths.ground(lambda w: w[0] ** 2 + w[1] ** 2, (-2, 2), (-2, 2), points=30)
    walked = np.array([[1.0, 1.0]]) * (1 - 20 * eta) ** np.arange(300)[:, None]
    etas = np.geomspace(1e-4, 1, 50)
    losses = {4: 1 + etas, 16: np.where(etas > 0.1, 1e30, 1)}
    figure = figures_3b.quadratic(bowl, walked, etas, losses, eta=eta, batch=16, edge=0.1, title="a title", caption="x")
    left, right = figure.axes
    assert left.get_title(loc="left") == "a title"
    assert len(left.lines[0].get_xdata()) == shown_steps
    assert right.get_ylim()[1] == pytest.approx(30, rel=0.01)  # a diverged loss does not set the scale


def test_a_schedule_of_few_updates_shows_each():
    figure = figures_3b.shapes(
        {"√": (np.arange(24) / 3, np.ones(24)), "LEGW": (np.arange(1000) / 125, np.ones(1000))}, title="a title"
    )
    few, many = figure.axes[0].lines
    assert few.get_marker() == "s" and many.get_marker() in ("", "None")


def test_a_run_that_diverged_ends():
    runs = {"linear": [2.3, 50.0, float("nan")], "√, warm-up": [2.3, 1.0, 0.5]}
    (axis,) = figures_3b.losses(runs, title="a title").axes
    assert axis.get_title(loc="left") == "a title"
    assert [line.get_label() for line in axis.lines] == list(runs)
    for line, losses in zip(axis.lines, runs.values()):
        np.testing.assert_array_equal(line.get_ydata(), losses)


@pytest.mark.parametrize("tested", [True, False])
def test_stages_show_epochs_updates_and_the_end(tested):
    row = {"updates": 30, "after 1": 0.5, "after 2": 0.7, "updates after 1": 20, "updates after 2": 30}
    rows = [{"method": method, **row} for method in ("decay", "growth") for _ in range(3)]
    table = pd.DataFrame(rows).assign(**({"test": 0.8} if tested else {}))
    figure = figures_3b.stages(table, caption="a caption")
    assert ("test accuracy" in shown(figure)) == tested
    np.testing.assert_allclose(figure.axes[1].lines[0].get_xdata(), [20, 30])
