"""The figures of notebook 6c."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from labs.lab6_beyond_synchronous.lessons import figures_6c


def said(figure):
    return {text.get_text() for axis in figure.axes for text in axis.texts}


@pytest.fixture
def table():
    ways = [(way, ratio) for way in figures_6c.LADDER for ratio in (0.1, 0.01, 0.001)]
    ways += [("dense", 1.0), ("signs", 1.0), ("signs, momentum before, nothing kept", 1.0)]
    ways += [("low rank, nothing kept", 1.0), ("low rank", 1.0), ("low rank", 4.0)]
    rows = [
        {"way": way, "amount": amount, "rate": 0.1, "seed": seed, "use": "result", "bytes": 100 + number,
         "test accuracy": 0.7 + 0.001 * number + 0.01 * seed}
        for number, (way, amount) in enumerate(ways)
        for seed in (1, 2, 3)
    ]  # fmt: skip
    return pd.DataFrame([*rows, {"way": "dense", "amount": 1.0, "rate": 0.2, "seed": 101, "use": "tuning"}])


def test_the_summary_has_student_s_intervals_of_the_result_seeds(table):
    found = figures_6c.summary(table).set_index(["way", "amount"]).loc[("nothing kept", 0.1)]
    middle, half = statistics.mean([0.71, 0.72, 0.73])
    assert found["mean"] == pytest.approx(middle) and found["half"] == pytest.approx(half)


def test_what_is_ahead_is_taken_seed_by_seed(table):
    difference, half = figures_6c.ahead(table, ("nothing kept", 0.01), ("nothing kept", 0.1))
    assert difference == pytest.approx(0.1) and half == pytest.approx(0, abs=1e-6)


def test_every_family_is_named_where_it_stands(table):
    figure = figures_6c.by_bytes(table, caption="here")
    assert said(figure) == {"dense", *(name for name, *_ in figures_6c.FAMILIES.values())}
    assert len(figure.axes[0].containers) == len(figures_6c.FAMILIES)


def test_the_ladder_has_a_panel_for_each_ratio_and_a_rung_for_each_change(table, titles):
    figure = figures_6c.ladder(table)
    assert titles(figure) == ["1 of 10 sent", "1 of 100 sent", "1 of 1,000 sent"]
    rungs = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rungs == list(figures_6c.LADDER.values())
    assert list(figure.axes[0].containers[0].lines[0].get_xdata()) == pytest.approx(
        [0.72 + 0.003 * number for number in range(6)]
    )


def test_losses_are_means_of_some_updates():
    figure = figures_6c.losses({"one": np.repeat([2.0, 1.0], 10), "two": np.ones(25)})
    one, two = figure.axes[0].lines
    assert list(one.get_ydata()) == [2, 1] and list(one.get_xdata()) == [5, 15] and len(two.get_xdata()) == 2


def test_the_union_has_a_line_for_each_ratio():
    table = pd.DataFrame([{"ranks": n, "ratio": r, "union": n * r} for r in (0.1, 0.01) for n in (1, 2, 4)])
    figure = figures_6c.union(table)
    assert said(figure) == {"each sends 1 of 10", "each sends 1 of 100"}
    assert list(figure.axes[0].lines[0].get_ydata()) == pytest.approx([0.1, 0.2, 0.4])


def test_costs_stand_beside_the_dense_one():
    figure = figures_6c.costs({"1 of 10": [1, 2, 4]}, [2, 4, 8], [3, 3, 3])
    assert said(figure) == {"dense, ring", "1 of 10"} and len(figure.axes[0].lines) == 2


def test_seconds_have_a_panel_for_each_link_and_parts_that_add_up(titles):
    row = {
        "seconds per step": 0.1,
        "fastest tenth": 0.09,
        "slowest tenth": 0.12,
        "computing": 0.02,
        "compressing": 0.03,
    }
    table = pd.DataFrame([{"link": link, "name": name, **row} for link in ("slow", "quick") for name in ("a", "b")])
    figure = figures_6c.seconds(table, caption="here")
    assert titles(figure) == ["slow", "quick"]
    bars = figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars if bar.get_y() < 0) == pytest.approx(100)
