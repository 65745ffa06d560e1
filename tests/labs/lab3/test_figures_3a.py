"""Figures of notebook 3a: they draw what the tables hold, whatever is missing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from labs.lab3_large_batch.lessons import critical_batch, figures_3a

BATCHES = (16, 64, 256, 1024)


@pytest.fixture
def runs():
    """Two seeds each; the largest batch arrived once."""
    rows = [{"batch": b, "updates": critical_batch.updates(b, 30, 400) + seed} for b in BATCHES for seed in (-1, 1)]
    rows[-1]["updates"] = None
    return pd.DataFrame(rows)


@pytest.fixture
def squares():
    """Exactly |G|² = 2 and tr(C) = 600, but for one row whose signal is lost."""
    row = {"batch": 64, "|g|² of 10": 2 + 60, "|g|² of 100": 2 + 6}
    return pd.DataFrame([{**row, "part": 0.0}, {**row, "part": 1.0}, {**row, "part": 1.0, "|g|² of 100": 1.0}])


def shown(figure):
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axis in figure.axes:
        texts += [*axis.texts, axis.xaxis.label]
    return " ".join([text.get_text() for text in texts] + [axis.get_title(loc="left") for axis in figure.axes])


def test_importing_loads_neither_tensorflow_nor_pyplot():
    module = "labs.lab3_large_batch.lessons.figures_3a"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_noise_scales_come_from_two_squared_norms(squares):
    found = figures_3a.noise_scales(squares)["noise scale"]
    assert found[:2].tolist() == pytest.approx([300, 300])
    assert np.isnan(found[2])


def test_to_target_tells_runs_and_the_readers_own(runs):
    own = pd.DataFrame({"batch": [64, 256], "updates": [200, None]})
    texts = shown(figures_3a.to_target(runs, own, target=0.84, caption="Fashion-MNIST"))
    assert "updates to 84 % validation accuracy" in texts
    assert "your run" in texts and "Fashion-MNIST" in texts
    assert "your run" not in shown(figures_3a.to_target(runs, target=0.84))


def test_images_are_updates_times_the_batch(runs):
    figure = figures_3a.to_target(runs, target=0.84)
    medians = figure.axes[1].lines[1].get_ydata()
    assert medians == pytest.approx([b * critical_batch.updates(b, 30, 400) / 1000 for b in BATCHES], rel=0.03)


def test_bend_says_what_the_fit_found(runs, squares):
    texts = shown(figures_3a.bend(runs, squares, target=0.84, fit=lambda b, s: (31.4, 159.2)))
    assert "floor 31" in texts and "bend 159" in texts


def test_bend_fits_by_itself(runs, squares):
    assert "bend 4" in shown(figures_3a.bend(runs, squares, target=0.84))


def test_scales_take_the_readers_own(squares):
    own = pd.DataFrame({"part": [0, 1], "noise scale": [200.0, 400.0]})
    assert "yours" in shown(figures_3a.scales(squares, own))
    assert "yours" not in shown(figures_3a.scales(squares))


def gap_table():
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


def test_the_gap_shows_both_batches_and_the_naive_run():
    figure = figures_3a.gap(gap_table())
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["500 updates", "2,500 updates", "10,000 updates", "25 updates", "125 updates", "500 updates"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["B = 64", "B = 1,280", "B = 1,280 with the small batch's η"]


def test_a_gap_without_naive_and_with_a_diverged_run_is_drawn():
    table = gap_table().query("method != 'naive'")
    table.loc[0, "test accuracy"] = np.nan
    figure = figures_3a.gap(table)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["B = 64", "B = 1,280"]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [81.5, 81, 81])  # medians of what is there


def _runs(batch, epochs, **columns):
    rows = pd.DataFrame({**columns, "epochs": epochs}).assign(batch=batch, use="result", method="tuned")
    return rows.assign(**{"test accuracy": rows["test accuracy"] / 100})


def test_equal_loss_leaves_out_the_shortest_runs_of_the_large_batch():
    columns = {"seed": 1, "training loss": [0.4, 0.1], "test loss": [0.5, 0.3], "test accuracy": [80, 90]}
    figure = figures_3a.equal_loss(_runs(64, [2, 4], **columns), _runs(640, [4, 80], **columns), caption="a caption")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["B = 64, 2 to 4 epochs", "B = 640, 80 epochs"]
