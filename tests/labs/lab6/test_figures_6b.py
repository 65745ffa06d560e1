"""The figures of notebook 6b, and the tables that they summarise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from labs.lab6_beyond_synchronous.lessons import figures_6b


def said(figure):
    return {text.get_text() for axis in figure.axes for text in axis.texts}


@pytest.fixture
def runs():
    rows = [
        {"way": "local", "period": period, "ranks": 16, "momentum": 0.0, "pull": 0.0, "own classes": own, "rate": 0.2,
         "seed": seed, "use": "result",
         "updates": None if own and period == 16 else 100 + 10 * seed + period, "validation accuracy": 0.8,
         "distance": 0.1}
        for own in (False, True) for period in (1, 16) for seed in (1, 2, 3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.fixture
def wire():
    rows = [
        {"link": link, "period": period, "seconds": base / period, "fastest tenth": base / period * 0.9,
         "slowest tenth": base / period * 1.2, "computing": 1e-4}
        for link, base in (("quick", 0.001), ("slow", 0.01)) for period in (1, 16)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_summary_has_student_s_intervals_and_no_mean_where_a_run_failed(runs):
    found = figures_6b.summary(runs).set_index(figures_6b.BY)
    mean, half = statistics.mean([111, 121, 131])
    row = found.loc[("local", 1, 16, 0.0, 0.0, False)]
    assert row["mean"] == pytest.approx(mean) and row["half"] == pytest.approx(half)
    row = found.loc[("local", 16, 16, 0.0, 0.0, True)]
    assert np.isnan(row["mean"]) and row["reached"] == 0 and row["runs"] == 3


def test_seconds_to_the_target_are_updates_by_seconds(runs, wire):
    found = figures_6b.seconds_to_target(runs.assign(ranks=2), wire).set_index(["link", "period"])
    assert found.loc[("slow", 16), "mean"] == pytest.approx(136 * 0.01 / 16)
    assert found.loc[("slow", 16), "half"] == pytest.approx(statistics.mean([126, 136, 146])[1] * 0.01 / 16)


def test_updates_have_a_panel_for_each_way_to_deal_out_the_images(runs):
    figure = figures_6b.updates_to_target(runs)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["every rank has all classes", "classes of its own: every run"]
    assert len(figure.axes[1].collections[0].get_offsets()) == 6


def test_seconds_have_a_line_for_each_link(wire):
    assert said(figures_6b.seconds(wire)) == {"computing alone", "quick", "slow"}


def test_consensus_shows_what_was_foretold():
    figure = figures_6b.consensus({"one": [1, 0.5, 0.25], "two": [1, 0.1]}, {"one": 0.5})
    assert said(figure) == {"one", "two"} and len(figure.axes[0].lines) == 3
    assert list(figure.axes[0].lines[1].get_ydata()) == [1, 0.5, 0.25]
