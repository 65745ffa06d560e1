"""Figures of minima: they draw what the tables hold, whatever is missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.plots import minima


def gap_table() -> pd.DataFrame:
    rows = [
        (f"B = {batch}, {epochs} epochs", batch, epochs, 6400 // batch * epochs, 1 / epochs, 0.8 + 0.01 * seed)
        for batch in (64, 1280)
        for epochs in (5, 25, 100)
        for seed in range(3)
    ]
    rows.append(("naive", 1280, 5, 25, 0.7, 0.75))
    return pd.DataFrame(
        rows, columns=["method", "batch", "epochs", "updates", "training loss", "test accuracy"]
    )  # fmt: skip


def test_the_gap_shows_both_batches_and_the_naive_run() -> None:
    figure = minima.gap(gap_table())
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["500 updates", "2,500 updates", "10,000 updates", "25 updates", "125 updates", "500 updates"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["B = 64", "B = 1,280", "B = 1,280 with the small batch's η"]


def test_a_gap_without_naive_and_with_a_diverged_run_is_drawn() -> None:
    table = gap_table().query("method != 'naive'")
    table.loc[0, "test accuracy"] = np.nan
    assert minima.gap(table).png()


def test_sharpness_has_a_line_for_each_kind_of_run() -> None:
    table = pd.DataFrame(
        [
            (batch, 5, rate, batch / rate, 10.0, 0.8 if batch == 64 else 0.5)
            for batch in (64, 1280) for rate in (0.1, 0.2) for _ in range(2)
        ],
        columns=["batch", "epochs", "rate", "sharpness", "length of w", "test accuracy"],
    )  # fmt: skip
    figure = minima.sharpness(table, floor=0.75)
    left, middle, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [640, 320])
    np.testing.assert_allclose(middle.lines[0].get_ydata(), [64_000, 32_000])
    assert [len(line.get_ydata()) for line in right.lines] == [4, 0]  # below the floor: left out
    assert figure.png()


@pytest.mark.parametrize("kinds", [("large", "small"), ("large",)])
def test_between_shows_the_median_of_the_starts(kinds) -> None:
    table = pd.DataFrame(
        [
            (start, kind, alpha, start * 1.0, start + 1.0, 0.5)
            for start in (1, 2, 6) for kind in kinds for alpha in (-0.5, 0.0, 1.0, 1.5)
        ],
        columns=["start", "to", "alpha", "training loss", "test loss", "test accuracy"],
    )  # fmt: skip
    figure = minima.between(table)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 2)
    assert figure.png()


T = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])


def test_a_logarithm_is_told_from_a_power() -> None:
    found = minima.fits(T, 3 + 2 * np.log(T))
    assert found["slope"] == pytest.approx(2) and found["log"] == pytest.approx(1) and found["by power"] < 0.999
    found = minima.fits(T, 0.7 * T**0.5)
    assert found["power"] == pytest.approx(0.5, abs=0.01)
    assert found["by power"] == pytest.approx(1) and found["log"] < 0.95


def test_distances_are_means_over_seeds() -> None:
    table = pd.DataFrame(
        [
            (network, rule, batch, 0.1, seed, t, seed * np.log(1 + t))
            for network, rule, batch in
            [("quick", "same", 32), ("quick", "same", 512), ("quick", "sqrt", 32), ("convex", "same", 512)]
            for seed in (1, 3) for t in T
        ],
        columns=["network", "rule", "batch", "rate", "seed", "updates", "distance"],
    )  # fmt: skip
    figure = minima.distance(table)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 2 * np.log(1 + T))
    assert "B = 512: all images, no noise" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert minima.distance(table.query("network == 'quick'")).png()
