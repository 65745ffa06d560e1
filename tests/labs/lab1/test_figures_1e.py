from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab1_gradient_descent.lessons import figures_1e


def test_a_power_law_is_found():
    sizes = np.array([100.0, 1_000.0, 10_000.0])
    assert figures_1e.fit(sizes, 3 * sizes**-0.25) == pytest.approx((0.25, 3))


def test_rates_have_a_line_for_each_network():
    runs = pd.DataFrame(
        {"batch norm": [True, True, False], "rate": [0.1, 0.1, 1.0], "validation accuracy": [0.4, 0.6, 0.2]}
    )
    (axis,) = figures_1e.rates(runs, caption="c").axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in axis.lines if "batch norm" in line.get_label()}
    assert lines == {"with batch norm": [0.5], "without batch norm": [0.2]}


def test_percentiles_are_a_band_around_the_median():
    (axis,) = figures_1e.percentiles({"with": [(-1, 0, 2), (-2, 1, 3)]}, [1, 5]).axes
    assert [line.get_ydata().tolist() for line in axis.lines[:3]] == [[-1, -2], [0, 1], [2, 3]]


@pytest.fixture
def runs():
    """Two seeds that follow a law up to 400 images, and are worse than it with 800."""
    sizes = np.array([100, 200, 400, 800])
    seeds = [
        pd.DataFrame({"seed": seed, "width": 1.0, "weights": 10, "images": sizes, "error": factor * sizes**-0.5})
        for seed, factor in ((1, 3.0), (2, 5.0))
    ]
    table = pd.concat(seeds, ignore_index=True)
    table.loc[table["images"] == 800, "error"] *= 1.5
    return table


def test_the_law_is_drawn_beyond_what_it_was_fitted_to(runs):
    left, _ = figures_1e.data_size(runs, fitted=400).axes
    sizes = np.unique(runs["images"])
    np.testing.assert_allclose(left.lines[0].get_ydata(), 4.0 * sizes**-0.5)
    (measured,) = left.containers
    np.testing.assert_allclose(measured.lines[0].get_ydata(orig=False), 4.0 * sizes**-0.5 * [1, 1, 1, 1.5])
    assert measured.get_label() == "width 1: exponent 0.50"


def test_how_far_above_the_law_is_counted_seed_by_seed(runs):
    off = figures_1e.above_the_law(runs, fitted=400)
    np.testing.assert_allclose(off.loc[1.0], [50, 0], atol=1e-9)


def test_starts_and_curvatures():
    runs = pd.DataFrame({"training loss": [0.3, 0.4], "validation accuracy": [0.8, 0.81]})
    bends = pd.DataFrame({"updates": [0, 10], "largest": [5.0, 20.0], "smallest": [-3.0, -0.5]})
    left, right = figures_1e.starts(runs, bends).axes
    assert left.lines[0].get_ydata().tolist() == [80, 81]
    assert {line.get_label() for line in right.lines} >= {"largest", "smallest"}


def test_a_search_of_all_trials_finds_the_best():
    assert set(figures_1e.found([0.1, 0.5, 0.9], 3)) == {0.9}
    assert np.mean(figures_1e.found([0.0, 1.0], 1)) == pytest.approx(0.5, abs=0.05)
    (axis,) = figures_1e.search([0.1, 0.5, 0.9]).axes
    assert axis.lines[0].get_ydata()[-1] == 90
