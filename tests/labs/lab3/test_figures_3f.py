"""Figures of notebook 3f: they draw what the tables hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab3_large_batch.lessons import figures_3f


def test_sharpness_has_a_line_for_each_kind_of_run():
    table = pd.DataFrame(
        [
            (batch, 5, rate, batch / rate, 10.0, 0.8 if batch == 64 else 0.5)
            for batch in (64, 1280) for rate in (0.1, 0.2) for _ in range(2)
        ],
        columns=["batch", "epochs", "rate", "sharpness", "length of w", "test accuracy"],
    )  # fmt: skip
    figure = figures_3f.sharpness(table, floor=0.75)
    left, middle, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [640, 320])
    np.testing.assert_allclose(middle.lines[0].get_ydata(), [64_000, 32_000])
    assert [len(line.get_ydata()) for line in right.lines] == [4, 0]  # below the floor: left out


@pytest.mark.parametrize("kinds", [("large", "small"), ("large",)])
def test_between_shows_the_median_of_the_starts(kinds):
    table = pd.DataFrame(
        [
            (start, kind, alpha, start * 1.0, start + 1.0, 0.5)
            for start in (1, 2, 6) for kind in kinds for alpha in (-0.5, 0.0, 1.0, 1.5)
        ],
        columns=["start", "to", "alpha", "training loss", "test loss", "test accuracy"],
    )  # fmt: skip
    figure = figures_3f.between(table)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 2)
    assert [text.get_text().split()[1] for text in figure.legends[0].get_texts()] == [
        {"large": "a", "small": "another"}[kind] for kind in kinds
    ]


T = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])


def test_a_logarithm_is_told_from_a_power():
    found = figures_3f.fits(T, 3 + 2 * np.log(T))
    assert found["slope"] == pytest.approx(2) and found["log"] == pytest.approx(1) and found["by power"] < 0.999
    found = figures_3f.fits(T, 0.7 * T**0.5)
    assert found["power"] == pytest.approx(0.5, abs=0.01)
    assert found["by power"] == pytest.approx(1) and found["log"] < 0.97


def test_distances_are_means_over_seeds():
    table = pd.DataFrame(
        [
            (network, rule, batch, 0.1, seed, t, seed * np.log(1 + t))
            for network, rule, batch in
            [("quick", "same", 32), ("quick", "same", 512), ("quick", "sqrt", 32), ("convex", "same", 512)]
            for seed in (1, 3) for t in T
        ],
        columns=["network", "rule", "batch", "rate", "seed", "updates", "distance"],
    )  # fmt: skip
    figure = figures_3f.distance(table)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 2 * np.log(1 + T))
    assert "B = 512: all images, no noise" in [text.get_text() for text in figure.legends[0].get_texts()]
    titles = ["‖w − w₀‖, the same η for all", "η ∝ √B", "no barriers: softmax regression"]
    assert [axis.get_title(loc="left") for axis in figure.axes] == titles
    figure = figures_3f.distance(table.query("network == 'quick'"))
    assert [axis.get_title(loc="left") for axis in figure.axes] == titles[:2]


def attacks_table():
    """A large batch that under ε = 4 is 2 points behind small-batch runs of its accuracy, and under ε = 1 level."""
    rows = []
    for seed in (1, 2, 3):
        for epochs, clean in ((2, 0.80), (8, 0.88)):
            rows.append((64, 0.1, epochs, seed, 1 / epochs, clean, clean - 0.05, clean - 0.2))
        rows.append((1280, 0.1, 80, seed, 0.25, 0.84, 0.79, 0.62))
    columns = ["batch", "rate", "epochs", "seed", "training loss", "test accuracy"]
    return pd.DataFrame(rows, columns=[*columns, "attacked, ε = 1", "attacked, ε = 4"])


def test_attacked_runs_are_compared_at_their_own_accuracy():
    found = figures_3f.against_small(attacks_table(), "test accuracy").set_index("epsilon")
    assert found["points"][1] == pytest.approx(0, abs=0.1) and found["points"][4] == pytest.approx(-2, abs=0.1)
    assert list(found["seeds"]) == [3, 3] and (found["half"] < 1e-6).all()


def test_the_figure_of_attacks_has_the_small_batch_as_its_line_and_the_large_one_beside_it():
    left, right = figures_3f.adversarial(attacks_table(), epsilon=4, caption="a caption").axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [60, 68])
    assert [text.get_text() for text in left.figure.legends[0].get_texts()] == [
        "B = 64, 2 to 8 epochs", "B = 1,280, η = 0.1, 80 epochs",
    ]  # fmt: skip
    assert "ε = 4" in left.get_title(loc="left") and "equal accuracy" in right.get_title(loc="left")


def test_attacked_images_stand_below_their_originals():
    images = np.zeros((2, 4, 4, 1))
    figure = figures_3f.attacked(images, images + 8, ["a shoe", "a bag"], ["a bag", "a shoe"])
    assert [axis.get_title() for axis in figure.axes] == ["a shoe", "a bag", "a bag", "a shoe"]
