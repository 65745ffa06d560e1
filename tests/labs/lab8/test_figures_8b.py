"""Figures of notebook 8b."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab8_honest_benchmarks.lessons import figures_8b

SERVING = pd.DataFrame(
    [("ours", 1, 2.0, 500), ("ours", 8, 7.0, 4000), ("theirs", 1, 3.0, 600), ("theirs", 8, 8.0, 5000)],
    columns=["side", "setting", "ms", "images_per_s"],
)


@pytest.mark.parametrize(
    "limit, words",
    [
        (1.0, "nobody answers"),
        (2.5, "ours answers alone"),
        (5.0, "theirs 1.20 times"),
        (7.0, "ours 6.67 times"),
        (8.0, "theirs 1.25 times"),
    ],
)
def test_the_bound_decides_who_wins(limit, words):
    assert words in figures_8b.bound(SERVING, limit).axes[0].get_title(loc="left")


def test_the_slider_covers_all_bounds():
    low, high, start = figures_8b.bounds(SERVING.assign(kind="serving"))
    assert low == 2.0 and high == pytest.approx(9.2) and low < start < high


def test_the_same_steps_on_both_axes():
    rates = pd.DataFrame({"side": ["ours", "theirs"] * 2, "setting": [0.1, 0.1, 1, 1], "steps": [10, 300, 20, 80]})
    left, right = figures_8b.axes(rates).axes
    assert (left.get_yscale(), right.get_yscale()) == ("log", "linear")
    for one, other in zip(left.get_lines(), right.get_lines()):
        assert list(one.get_ydata()) == list(other.get_ydata())


def test_per_core_halves_what_has_two():
    sides = ["ours", "theirs", "theirs"]
    cores = pd.DataFrame({"side": sides, "setting": [1, 1, 2], "images_per_s": [3000, 2500, 4000]})
    whole, each = figures_8b.per_core(cores).axes
    assert [bar.get_width() for bar in whole.patches] == [3, 2.5, 4]
    assert [bar.get_width() for bar in each.patches] == [3, 2.5, 2]


def test_the_winner_is_the_best_on_the_first_half():
    scores = np.array([[70.0, 75.0], [74.0, 71.0], [72.0, 72.0]])
    ring = figures_8b.winners(scores).axes[0].get_lines()[1]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (74, 71)
