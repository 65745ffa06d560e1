"""Figures of notebook 2d."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook.plots.canvas import Canvas
from course_lib.ranks import launch
from labs.lab2_horovod.lessons import figures_2d
from labs.lab2_horovod.lessons.elastic_run import ElasticRun


def lost_share(interval, write, restart, mtbf, ranks):
    return write / (interval + write) + (interval / 2 + restart) * ranks / mtbf


def elastic_run(killed, went_on):
    steps = [(r, 5 + i / 10, i + 1, 3) for i in range(35) for r in range(3)]
    if went_on is not None:
        steps += [(r, killed + went_on + i / 10, i + 31, 2) for i in range(30) for r in (0, 2)]
    commits = [(r, 5 + i / 10, i) for i in (10, 20, 30) for r in range(3)]
    return ElasticRun(
        pd.DataFrame(steps, columns=["rank", "time", "step", "size"]),
        pd.DataFrame(commits, columns=["rank", "time", "step"]),
        killed, 0.1, went_on, 5, launch.Result(0, 20),
    )  # fmt: skip


def words(figure):
    return " ".join(text.get_text() for axis in figure.axes for text in axis.texts)


def test_the_elastic_run_shows_kill_pause_and_loss():
    figure = figures_2d.elastic(elastic_run(8.45, 1.05), caption="x")
    assert "rank 1 is killed" in words(figure)
    assert "5 steps lost" in words(figure)
    (name,) = [text for text in figure.axes[0].texts if "killed" in text.get_text()]
    assert name.get_ha() == "right"  # where no line is
    lines = figure.axes[0].get_lines()
    assert [np.isnan(line.get_xdata()).sum() for line in lines[:3]] == [1, 0, 1]  # broken where the count goes back
    assert list(lines[3].get_ydata()) == [10, 20, 30]  # commits
    assert (lines[4].get_xdata()[0], lines[4].get_ydata()[0]) == (8.45, 35)  # the kill


@pytest.mark.parametrize(("killed", "told"), [(None, ""), (8.45, "a kill")])
def test_an_elastic_run_without_a_kill_or_an_end_can_be_drawn(killed, told):
    assert words(figures_2d.elastic(elastic_run(killed, None))) == told


def test_a_difference_of_zero_has_its_place():
    losses = list(np.linspace(2, 0.1, 80))
    runs = {
        "nothing": {"losses": losses[40:], "from_straight": 0.0, "between_ranks": 0.0},
        "broadcast": {"losses": losses[40:], "from_straight": 0.3, "between_ranks": 0.4},
    }
    figure = figures_2d.resumed(losses, runs)
    right = figure.axes[1]
    assert [float(line.get_xdata()[0]) for line in right.get_lines()] == [
        figures_2d.ZERO_POSITION,
        figures_2d.ZERO_POSITION,
        0.3,
        0.4,
    ]
    assert [label.get_text() for label in right.get_yticklabels()] == ["nothing", "broadcast"]


@pytest.mark.parametrize(
    ("ranks", "write", "restart", "told"),
    [
        (1, 0.1, 0, "1 ranks: a failure every 5.8 years, Young's interval 101 min, 0.0% of the time lost"),
        (16_384, 30, 300, "16,384 ranks: a failure every 3.1 h, Young's interval 13.6 min, 9.9% of the time lost"),
        (100_000, 1000, 3600, "100,000 ranks: a failure every 30.5 min, Young's interval 31.9 min, no time is left"),
    ],
)  # fmt: skip
def test_lost_time_says_what_youngs_interval_costs(monkeypatch, ranks, write, restart, told):
    texts = []
    monkeypatch.setattr(Canvas, "text", lambda canvas, x, y, words, **look: texts.append(words))
    figures_2d.lost_time(lost_share, ranks, write, 5.8 * 365.25 * 86_400, restart, caption="yours")
    assert any(text.startswith(told) for text in texts)
    assert "yours" in texts


def test_durations_are_told_in_their_unit():
    told = [figures_2d._duration(seconds) for seconds in (0.5, 90, 500, 11_134, 400_000, 2e8)]
    assert told == ["0.5 s", "90 s", "8.33 min", "3.09 h", "4.63 days", "6.34 years"]
