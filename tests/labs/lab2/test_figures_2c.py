"""Figures of notebook 2c's measurements."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab2_horovod.lessons import figures_2c


@pytest.fixture
def blocks():
    rows = [(name, 0.01 * (1 + number), 1000.0 * number) for name in ("default", "fp16") for number in range(3)]
    return pd.DataFrame(rows, columns=["setting", "seconds", "bytes"])


def bars(axis):
    return [round(float(bar.get_width()), 6) for bar in axis.patches]


def test_a_setting_is_shown_by_the_median_of_its_blocks(blocks):
    figure = figures_2c.settings(blocks, {"fp16": 500.0})
    milliseconds, kilobytes = figure.axes
    assert bars(milliseconds) == [20.0, 20.0]
    assert bars(kilobytes) == [1.0, 1.0]
    assert [label.get_text() for label in milliseconds.get_yticklabels()] == ["default", "fp16"]
    assert kilobytes.lines[-1].get_xdata() == [0.5]
    assert kilobytes.lines[-1].get_ydata() == [1]


def test_values_of_a_knob_stand_in_the_order_given(blocks):
    table = blocks.assign(knob="cycle", value=["5"] * 3 + ["1"] * 3)
    (axis,) = figures_2c.sweep(table, {"cycle": "cycle time (ms)"}, 8.0).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["5", "1"]
    assert "1 kB" in [text.get_text() for text in axis.texts]


def runs():
    rows = []
    for kind in ("weak", "strong"):
        for exchange in (False, True):
            rows += [(kind, exchange, ranks, 100.0 * ranks, 1.0) for ranks in (1, 2, 4)]
    return pd.DataFrame(rows, columns=["scaling", "exchange", "ranks", "rate", "efficiency"])


def test_speed_has_a_line_for_each_kind_and_the_ideal():
    figure = figures_2c.speed(runs(), cores=2, best=150.0)
    names = figure.axes[0].get_legend_handles_labels()[1]
    assert names == ["ideal", "weak, copies", "weak", "strong, copies", "strong", "one process, all cores"]
    (ideal,) = [line for line in figure.axes[0].lines if line.get_label() == "ideal"]
    assert list(ideal.get_ydata()) == [100.0, 400.0]


def test_no_line_of_speed_hides_another():
    for axis in figures_2c.speed(runs(), cores=2).axes:
        lines = [line for line in axis.lines if line.get_linestyle() in ("-", "--") and len(line.get_xdata()) == 3]
        assert len(lines) == 4
        assert len({line.get_color() for line in lines}) == len({line.get_marker() for line in lines}) == 4
        assert len({tuple(line.get_xdata()) for line in lines}) == 4
    assert "side by side" in axis.get_xlabel()


def test_speed_does_with_what_is_there():
    table = runs()
    assert len(figures_2c.speed(table[table["exchange"]], cores=4).axes) == 2


def test_the_same_data_on_both_axes():
    curves = {"published": (np.array([1, 100]), np.array([1.0, 56.0]), 0.0079)}
    log, linear = figures_2c.laws(curves, both=True).axes
    assert (log.get_xscale(), linear.get_xscale()) == ("log", "linear")
    for axis in (log, linear):
        assert list(axis.lines[-1].get_ydata()) == [1.0, 56.0]
        ideal, law = axis.lines[0], axis.lines[1]
        assert np.all(law.get_ydata() <= ideal.get_ydata() + 1e-9)
    assert len(figures_2c.laws(curves, log=False).axes) == 1
