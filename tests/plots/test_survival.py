"""Figures of notebook 2d."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import launch
from course_lib.elastic import Story
from course_lib.plots import survival


def lost_share(interval, write, restart, mtbf, ranks):
    return write / interval + (interval / 2 + restart) * ranks / mtbf


def story(killed, went_on):
    steps = [(r, 5 + i / 10, i + 1, 3) for i in range(35) for r in range(3)]
    if went_on is not None:
        steps += [(r, killed + went_on + i / 10, i + 31, 2) for i in range(30) for r in (0, 2)]
    commits = [(r, 5 + i / 10, i) for i in (10, 20, 30) for r in range(3)]
    return Story(
        pd.DataFrame(steps, columns=["rank", "time", "step", "size"]),
        pd.DataFrame(commits, columns=["rank", "time", "step"]),
        killed, 0.1, went_on, 5, launch.Result(0, 20),
    )  # fmt: skip


def words(figure):
    return " ".join(text.get_text() for axis in figure.axes for text in axis.texts)


def test_the_elastic_run_shows_kill_pause_and_loss():
    figure = survival.elastic(story(8.45, 1.05), caption="x")
    assert "rank 1 is killed" in words(figure)
    assert "5 steps lost" in words(figure)
    lines = figure.axes[0].get_lines()
    assert np.isnan(lines[0].get_xdata()).sum() == 1  # broken where the count goes back
    assert figure.png()


@pytest.mark.parametrize(("killed", "went_on"), [(None, None), (8.45, None)])
def test_an_elastic_run_without_a_kill_or_an_end_can_be_drawn(killed, went_on):
    figure = survival.elastic(story(killed, went_on))
    assert "steps lost" not in words(figure)
    assert figure.png()


def test_a_difference_of_zero_has_its_place():
    losses = list(np.linspace(2, 0.1, 80))
    runs = {
        "nothing": {"losses": losses[40:], "from_straight": 0.0, "between_ranks": 0.0},
        "broadcast": {"losses": losses[40:], "from_straight": 0.3, "between_ranks": 0.4},
    }
    figure = survival.resumed(losses, runs)
    right = figure.axes[1]
    assert [float(line.get_xdata()[0]) for line in right.get_lines()] == [survival.NOTHING, survival.NOTHING, 0.3, 0.4]
    assert [label.get_text() for label in right.get_yticklabels()] == ["nothing", "broadcast"]


@pytest.mark.parametrize(("ranks", "write", "restart"), [(1, 0.1, 0), (16_384, 30, 300), (100_000, 1000, 3600)])
def test_lost_time_can_be_drawn_at_the_ends_of_its_sliders(ranks, write, restart):
    assert survival.lost_time(lost_share, ranks, write, 5.8 * 365.25 * 86_400, restart).png(1.2)


def test_durations_are_told_in_their_unit():
    told = [survival._duration(seconds) for seconds in (0.5, 90, 500, 11_134, 400_000, 2e8)]
    assert told == ["0.5 s", "90 s", "8.33 min", "3.09 h", "4.63 days", "6.34 years"]
