"""The figures of notebook 5a."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D

from course_lib import statistics
from labs.lab5_precision_and_memory.lessons import figures_5a


def test_powers_of_two_are_exact_and_what_is_beyond_counts_at_the_ends():
    numbers = np.float32([0, 1, -2, 3.9, 0.5, 2.0**-30, 2.0**-100, 2.0**40])
    shares = figures_5a.powers({"weights 1": numbers, "none": np.zeros(3, np.float32)})
    counted = dict(zip(range(figures_5a.LOWEST, figures_5a.HIGHEST + 1), 7 * shares["weights 1"]))
    expected = {0: 1, 1: 2, -1: 1, -30: 1, figures_5a.LOWEST: 1, figures_5a.HIGHEST: 1}
    assert {power: round(count) for power, count in counted.items() if count} == expected
    assert not shares["none"].any()


def test_histograms_have_a_line_for_each_layer_and_all_formats():
    seen = {f"{kind} {layer}": np.float32([1, 2, 2, 0]) for kind in figures_5a.KINDS for layer in (1, 2)}
    shares = figures_5a.powers(seen)
    assert shares["weights 1"].sum() == pytest.approx(1) and shares["weights 1"].max() == pytest.approx(2 / 3)
    lines = [artist for artist in figures_5a.histograms(shares, "here").get_children() if isinstance(artist, Line2D)]
    curves = [line for line in lines if len(line.get_xdata()) == len(shares["weights 1"])]
    assert len(curves) == len(seen)
    thick, thin = ([line for line in lines if line.get_linewidth() == width] for width in (5, 1.5))
    assert len(thick) == len(thin) == 4 * len(figures_5a.FORMATS)
    octave = np.diff(curves[0].get_xdata())[0]
    assert np.ptp(thick[0].get_xdata()) == pytest.approx(30 * octave, rel=0.01)  # float16's, from -14 to 16
    assert np.ptp(thin[0].get_xdata()) == pytest.approx(10 * octave)


def test_shares_that_are_lost_have_a_panel_for_each_kind():
    rows = [
        {"updates": updates, "kind": kind, "layer": layer, "lost": 0.1 * layer}
        for updates in (1, 2)
        for kind in ("slopes", "gradients")
        for layer in (1, 2)
    ]
    figure = figures_5a.along(pd.DataFrame(rows))
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["slopes", "gradients"]
    assert list(figure.axes[0].lines[1].get_ydata()) == pytest.approx([0.2, 0.2])


def test_descents_show_distances():
    figure = figures_5a.descents({"one": [1.5, 1.25]})
    assert list(figure.axes[0].lines[0].get_ydata()) == [0.5, 0.25]


def test_bounds_stand_beside_what_came():
    figure = figures_5a.bounds({"steady": np.array([1.0, 2.0, 3.0])}, max)
    trace, planned = figure.axes[0].lines
    assert list(trace.get_ydata()) == [1, 2, 3] and list(planned.get_ydata()) == [1, 2]


@pytest.fixture
def table():
    rows = [
        {
            "way": way,
            "seed": seed,
            "use": "result",
            "test accuracy": score + 0.01 * seed,
            "loss at 3": loss,
            "loss at 6": loss / 2,
        }
        for way, score, loss in (("float32", 0.8, 1), ("float16", 0.7, 1.2))
        for seed in (1, 2, 3)
    ]
    rows += [
        {"way": "float16", "power": power, "seed": seed, "use": "window", "test accuracy": 0.5 + 0.1 * seed}
        for power in (-4, 0)
        for seed in (1, 2, 3)
    ]
    return pd.DataFrame([*rows, {"way": "float32", "seed": 101, "use": "tuning"}])


def test_differences_are_seed_by_seed(table):
    found = figures_5a.against_float32(table).loc["float16"]
    assert found["difference"] == pytest.approx(-0.1) and found["difference half"] == pytest.approx(0, abs=1e-9)
    assert found["half"] == pytest.approx(statistics.mean([0.71, 0.72, 0.73])[1])


def test_recorded_figures_show_every_way(table):
    losses, right = figures_5a.mixed_lars(table, "here").axes
    assert [text.get_text() for text in right.get_yticklabels()] == ["float32", "float16"]
    assert np.allclose([bars[0].get_ydata() for bars in losses.containers], [[1, 0.5], [1.2, 0.6]])
    left, right = figures_5a.formats(table, "here").axes
    assert [text.get_text() for text in right.get_yticklabels()] == ["float32", "float16"]
    assert np.allclose([line.get_ydata() for line in left.lines], [[0, 0], [0.2, 0.1]])
    (axis,) = figures_5a.window(table, "here").axes
    assert list(axis.containers[0].lines[0].get_ydata()) == pytest.approx([0.7, 0.7])
