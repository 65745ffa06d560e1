"""The figures of notebook 5b."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab5_precision_and_memory.lessons import figures_5b


def words(axis):
    return [text.get_text() for text in axis.texts]


def test_errors_stand_beside_what_is_sent():
    table = pd.DataFrame(
        [{"way": way, "ranks": n, "error": n / 100, "numbers": n - 1} for way in ("ring", "yours") for n in (2, 4)]
    )
    left, right = figures_5b.errors(table, caption="here").axes
    assert [list(line.get_ydata()) for line in left.lines] == [[0.02, 0.04]] * 2
    assert [list(line.get_ydata()) for line in right.lines] == [[1, 3]] * 2


def test_the_window_says_what_becomes_0(titles):
    numbers = {"kernel": np.array([0.0, 0.05, 0.1, 1.0, -2.0]), "bias": np.array([4.0])}
    (axis,) = figures_5b.windows({"as they are": numbers}, (3, 0)).axes
    assert words(axis) == ["50%", "0%"]
    assert "as they are" in titles(axis.figure)[0]
    assert list(axis.lines[0].get_xdata())[1] == 1  # log2 of the largest, a negative one


def test_a_training_that_broke_off_ends_with_a_cross():
    (axis,) = figures_5b.losses({"healthy": [1.0] * 10, "broken": [2.0] * 3}).axes
    healthy, broken, cross = axis.lines
    assert len(healthy.get_ydata()) == 6
    assert list(cross.get_xdata()) == [3] and cross.get_marker() == "X"
    assert list(broken.get_ydata()) == [2.0]


@pytest.fixture
def recorded():
    """As `experiments/5b_gradient_bits.py` writes it."""
    rows = []
    for regime, plain in (("64", 0.86), ("1,280", 0.82)):
        for seed in (1, 2, 3):
            same = {"regime": regime, "seed": seed, "use": "result", "sent as 0": 0.5}
            rows.append({**same, "part": "float32", "test accuracy": plain + seed / 100})
            for scale, way, lost in (("none", "ring", 0.2), ("each", "ring", 0.02), ("each", "twice", 0.0)):
                for form in ((3, 0), (4, 3)):
                    setting = {"part": "map", "exponent": form[0], "mantissa": form[1], "scale": scale, "way": way}
                    accuracy = plain + seed / 100 - lost * (form == (3, 0)) + 0.001 * (seed - 2) * (form == (4, 3))
                    rows.append({**same, **setting, "test accuracy": accuracy})
    return pd.DataFrame(rows)


def test_differences_are_paired_by_seed(recorded):
    cost = figures_5b.against_float32(recorded).set_index(["regime", "exponent", "scale", "way"])
    assert cost.loc[("64", 3, "none", "ring"), "difference"] == pytest.approx(-20)
    assert cost.loc[("64", 3, "none", "ring"), "half"] == pytest.approx(0, abs=1e-9)
    assert cost.loc[("64", 4, "each", "ring"), "difference"] == pytest.approx(0)
    assert cost.loc[("64", 4, "each", "ring"), "half"] == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)


def test_the_map_has_a_panel_for_each_method_and_batch(recorded, titles):
    figure = figures_5b.bits_map(recorded, "here")
    assert len(figure.axes) == 6
    assert titles(figure)[0] == "B = 64: plain cast, ring"
    assert titles(figure)[5] == "B = 1,280: factors, rounded twice"
    sure, not_sure = figure.axes[0].texts
    assert (sure.get_text(), sure.get_weight()) == ("−20", "bold")
    assert not_sure.get_weight() == "normal"


def test_differences_have_their_intervals(titles):
    rows = pd.DataFrame({"name": ["a", "b"], "difference": [-1.0, 2.0], "half": [0.5, 0.25]})
    left, right = figures_5b.differences({"B = 64": rows, "B = 1,280": rows}).axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["a", "b"]
    assert titles(left.figure) == ["B = 64", "B = 1,280"]
    assert right.containers[0].lines[0].get_xdata().tolist() == [-1.0, 2.0]


def test_a_step_is_made_of_its_parts():
    row = {"seconds per step": 0.1, "fastest tenth": 0.09, "slowest tenth": 0.12, "computing": 0.01}
    table = pd.DataFrame(
        [{"link": link, "bits": bits, **row, "cable alone": cable} for link, cable in (("no limit", 0), ("slow", 0.07))
         for bits in (32, 4)]
    )  # fmt: skip
    free, slow = figures_5b.slow_link(table).axes
    assert [bar.get_height() for bar in free.patches] == pytest.approx([10, 10, 0, 0, 90, 90])
    assert [bar.get_height() for bar in slow.patches] == pytest.approx([10, 10, 70, 70, 20, 20])
    assert [text.get_text() for text in slow.get_xticklabels()] == ["float32", "4 bits"]
