"""The figures of notebook 7c."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from labs.lab7_splitting_the_model.lessons import figures_7c, systolic


def test_energy_has_a_panel_for_each_order(titles, legend):
    rows = [
        {"order": order, "batch": batch, "arithmetic": 25, "registers": 2, "SRAM": 20, "DRAM": 2_000 / batch}
        for order in ("row by row", "blocked")
        for batch in (1, 2, 4)
    ]
    figure = figures_7c.energy(pd.DataFrame(rows))
    assert titles(figure) == ["row by row", "blocked"] and legend(figure) == list(figures_7c.SOURCES)
    assert list(figure.axes[1].lines[3].get_ydata()) == [2_000, 1_000, 500]


def test_the_hierarchy_shows_medians_and_the_caches(titles):
    table = pd.DataFrame({"bytes": [8_192] * 3 + [2**20] * 3, "nanoseconds": [1, 2, 9, 10, 11, 90], "gigabytes": 50.0})
    figure = figures_7c.hierarchy(table, {"L1": 32_768, "L2": 2**19})
    latency = figure.axes[0]
    assert list(latency.lines[0].get_ydata()) == [2, 11]
    assert [text.get_text() for text in latency.texts] == ["L1", "L2"]
    assert [line.get_xdata()[0] for line in latency.lines[1:]] == [32_768, 2**19]
    assert "nanoseconds" in titles(figure)[0] and "gigabytes" in titles(figure)[1]


@pytest.fixture
def raced():
    blocks = [(0, 64, 2.0), (1, 64, 10.0), (1, 64, 14.0), (8, 64, 50.0), (1, 32, 9.0), (8, 32, 40.0)]
    compiled = pd.DataFrame(blocks, columns=["rows", "depth", "gigaflops"]).assign(what="C++", number="float32")
    alone = pd.DataFrame({"rows": [-1], "depth": [64], "gigaflops": [60.0], "what": ["registers alone"]})
    lanes = [("float32", 4, 20.0), ("float32", 8, 40.0), ("float64", 2, 10.0), ("float64", 4, 21.0)]
    numpy = pd.DataFrame(lanes, columns=["number", "lanes", "gigaflops"]).assign(what="NumPy")
    return pd.concat([compiled, alone, numpy])


def test_products_have_their_blocks_and_lanes(raced, legend):
    left, right = figures_7c.products(raced).axes
    assert legend(left) == ["row times column", "multiply-adds in registers alone", "32 products at a time",
                            "64 products at a time"]  # fmt: skip
    assert any(set(line.get_ydata()) == {60.0} for line in left.lines)
    assert list(left.containers[1].lines[0].get_ydata()) == [12, 50]
    assert any(set(line.get_ydata()) == {2.0} for line in left.lines)
    assert legend(right) == ["float32", "float64"] and list(right.containers[1].lines[0].get_xdata()) == [2, 4]


def test_products_without_numpys_kernels_are_drawn(raced):
    left, right = figures_7c.products(raced[raced["what"] == "C++"]).axes
    assert len(left.containers) == 2 and not right.containers


def test_orders_stand_beside_the_bound():
    (axis,) = figures_7c.orders({"plain": 9_000, "yours": 3_000}, 2_000).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["plain", "yours"]
    assert [bar.get_width() for bar in axis.patches] == [9_000, 3_000]
    assert any("fewer than 2,000" in text.get_text() for text in axis.texts)


def test_words_are_shown_for_each_multiply_add(legend):
    table = pd.DataFrame({"batch": [1, 8], "iterations": [100, 800], "yours": [100, 400], "bound": [90, 200]})
    figure = figures_7c.short_loops(table, 64)
    assert legend(figure) == ["yours", "lower bound", "2 / √M"]
    assert list(figure.axes[0].lines[0].get_ydata()) == [1, 0.5]
    assert figure.axes[0].lines[2].get_ydata()[0] == 0.25


def test_the_wave_has_a_picture_for_each_cycle(titles):
    busy = systolic.layer(batch=3, tiles=1, side=4).busy
    figure = figures_7c.wave(busy)
    assert len(figure.axes) == len(busy) == 13
    assert titles(figure) == [str(cycle) for cycle in range(13)]
    assert np.array_equal(figure.axes[5].images[0].get_array(), busy[5])


def test_the_roof_bends_at_the_batch_that_is_enough(legend):
    figure = figures_7c.roof(180, 600, 2)
    assert legend(figure) == ["TPU2", "this chip"]
    axis = figure.axes[0]
    own = axis.lines[1]
    assert own.get_ydata()[-1] == pytest.approx(180) and own.get_ydata()[0] == pytest.approx(0.6)
    assert axis.texts[0].get_text().strip() == "batch 300" and axis.lines[2].get_xdata()[0] == pytest.approx(300)


@pytest.mark.parametrize("chip", [*itertools.product((15, 600), (100, 6_000), (1, 4))])
def test_the_roof_shows_its_bend_and_its_start_for_every_chip_that_can_be_chosen(chip):
    figure = figures_7c.roof(*chip)
    (axis,) = figure.axes
    label = axis.texts[0].get_window_extent()
    assert figure.bbox.x0 <= label.x0 and label.x1 <= figure.bbox.x1
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    own, bend = axis.lines[1].get_ydata(), axis.lines[2].get_xdata()[0]
    assert left <= bend <= right and low <= own.min() and own.max() <= high


def test_utilisation_has_a_line_for_each_way(legend):
    figure = figures_7c.utilisation(pd.DataFrame({"batch": [1, 2], "one tile": [0.1, 0.2], "more": [0.3, 0.5]}))
    assert legend(figure) == ["one tile", "more"]
    assert list(figure.axes[0].lines[1].get_ydata()) == [0.3, 0.5]
