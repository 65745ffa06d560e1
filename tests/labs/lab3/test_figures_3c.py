"""The figures of notebook 3c."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab3_large_batch.lessons import figures_3c


def test_moving_averages_show_the_curves_and_what_is_left_of_the_start():
    curve = pd.DataFrame({"updates": [2, 4], "accuracy": [0.1, 0.2]})
    left, right = figures_3c.moving_averages({0.9: curve, 0.5: curve}, {0.9: 0.8, 0.5: 0.7}).axes
    assert [line.get_ydata()[0] for line in left.lines[1::2]] == pytest.approx([80, 70])
    np.testing.assert_allclose(right.lines[0].get_ydata(), 0.9 ** np.arange(5))


def test_the_dashed_line_of_the_spread_falls_with_the_root():
    (axis,) = figures_3c.spread([4, 16, 64], [1.0, 0.5, 0.25]).axes
    np.testing.assert_allclose(axis.lines[1].get_ydata(), [1.0, 0.5, 0.25])


def test_shares_are_drawn_beside_their_law():
    table = pd.DataFrame({"b": [2, 8], "yours": [1.0, 1.0], "own": [0.5, 0.875]})
    (axis,) = figures_3c.shares(table).axes
    np.testing.assert_allclose(axis.lines[2].get_ydata()[[0, -1]], [0.5, 0.875])


@pytest.fixture
def recorded():
    """As `experiments/normalisation.py` writes it: accuracies that tell which run is which."""
    rows = []
    for regime, large in (("few updates", 1280), ("overfitting", 640)):
        for batch, ghost in ((64, 0), (large, 0), (large, 16)):
            for seed in (1, 2):
                score = 0.8 + 0.01 * seed + (0.05 if batch == 64 else 0)
                setting = {"regime": regime, "batch": batch, "ghost": ghost}
                rows.append({"part": "ghost", **setting, "seed": seed, "score": score})
        for decayed, gain in (("all", 0.0), ("kernels", 0.03)):
            for seed in (1, 2):
                setting = {"regime": regime, "batch": large, "decay": 0.01, "decayed": decayed}
                rows.append({"part": "decay", **setting, "seed": seed, "score": 0.7 + 0.1 * seed + gain})
    for kind in ("per rank", "synchronised"):
        for rank in (0, 1):
            rows += [
                {"part": "ranks", "batch": 8, "statistics": kind, "rank": rank, "seed": s, "score": 0.6} for s in (1, 2)
            ]
    return pd.DataFrame(rows).rename(columns={"score": "test accuracy"}).assign(use="result")


def labels(axis):
    return [text.get_text() for text in axis.get_xticklabels()]


def means(axis):
    return [round(float(container.lines[0].get_ydata()[0]), 4) for container in axis.containers]


def test_ghosts_have_a_panel_for_each_regime_with_the_small_batch_beside_them(recorded, titles):
    figure = figures_3c.ghosts(recorded, "here")
    assert titles(figure) == ["few updates: B = 1,280", "overfitting: B = 640"]
    assert means(figure.axes[0]) == [86.5, 81.5, 81.5]  # in %
    assert labels(figure.axes[0]) == ["B = 64", "B = 1,280", "ghosts\nof 16"]


def test_decay_is_compared_seed_by_seed(recorded):
    np.testing.assert_allclose(figures_3c.differences(recorded)["difference"], 3)  # points
    figure = figures_3c.decays(recorded)
    assert means(figure.axes[1]) == [85, 88]
    dashed = [line for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1 and line.get_linestyle() == "--"]
    assert [round(float(line.get_ydata()[0]), 3) for line in dashed] == [81.5]  # batch norm, large batch, no decay


def test_gains_are_points_with_their_intervals(recorded):
    table = figures_3c.gains(recorded)
    assert table.loc[("overfitting", "λ = 0.01"), "kernels only, less all"] == "+3.0 ± 0.0"
    assert table.loc[("few updates", "λ = 0.01"), "all, less none"].startswith("+3.5 ± ")


def test_each_rank_s_network_is_shown(recorded):
    (axis,) = figures_3c.across_ranks(recorded).axes
    assert labels(axis) == ["rank 0's network", "rank 1's network"]
    assert "4 on each" in axis.get_title(loc="left")


def test_one_run_has_no_interval():
    table = pd.DataFrame({"variant": ["a", "b"], "accuracy": [0.5, np.nan]})
    (axis,) = figures_3c.by_setting({"live": table}, x="variant", y="accuracy").axes
    assert means(axis) == [50]  # b diverged


@pytest.fixture
def measured():
    sizes = (16, 64)
    rows = [
        {"batch": m, "noise": noise, "variance": 1.0 if noise else 16 / m} for m in sizes for noise in (False, True)
    ]
    return pd.DataFrame(rows).assign(statistics="moving averages")


def test_variances_are_drawn_beside_what_the_small_batch_has(measured):
    (axis,) = figures_3c.variances(measured, 16).axes
    falling, level, plain, noisy = axis.lines
    np.testing.assert_allclose(falling.get_ydata(), plain.get_ydata())
    assert level.get_ydata()[0] == 1.0
    assert list(noisy.get_ydata()) == [1.0, 1.0]


def test_main_directions_stand_beside_the_sum(measured):
    left, right = figures_3c.kept(measured, 16, {"exact": np.array([2.0, 1.0]), "drawn": np.array([2.1, 0.9])}).axes
    assert [list(line.get_ydata()) for line in right.lines] == [[2.0, 1.0], [2.1, 0.9]]
    assert len(left.lines) == 4


def test_noisy_training_goes_from_the_small_batch_to_the_noisiest():
    rows = [
        {"regime": "few updates", "batch": batch, "base": base, "seed": seed, "part": "training", "use": "result"}
        for batch, base in ((1280, 64), (64, 64), (1280, 1280), (1280, 256))
        for seed in (1, 2)
    ]
    table = pd.DataFrame(rows).assign(**{"test accuracy": 0.8})
    (axis,) = figures_3c.noisy_training(table).axes
    assert labels(axis) == ["B = 64", "B = 1,280", "as noisy\nas 256", "as noisy\nas 64"]
