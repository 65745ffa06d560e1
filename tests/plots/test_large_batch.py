from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from course_lib import bend
from course_lib.plots import Card, large_batch

BATCHES = (16, 64, 256, 1024)


@pytest.fixture
def runs():
    """Two seeds each; the largest batch arrived once."""
    rows = [{"batch": b, "updates": bend.updates(b, 30, 400) + seed} for b in BATCHES for seed in (-1, 1)]
    rows[-1]["updates"] = None
    return pd.DataFrame(rows)


@pytest.fixture
def squares():
    """Exactly |G|² = 2 and tr(C) = 600, but for one row whose signal is lost."""
    row = {"batch": 64, "|g|² of 10": 2 + 60, "|g|² of 100": 2 + 6}
    return pd.DataFrame([{**row, "part": 0.0}, {**row, "part": 1.0}, {**row, "part": 1.0, "|g|² of 100": 1.0}])


def shown(figure):
    assert isinstance(figure, Card)
    assert figure.png().startswith(b"\x89PNG")
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axis in figure.axes:
        texts += [*axis.texts, axis.xaxis.label]
    return " ".join([text.get_text() for text in texts] + [axis.get_title(loc="left") for axis in figure.axes])


def test_importing_loads_neither_tensorflow_nor_pyplot():
    code = "import sys, course_lib.plots.large_batch; print({'tensorflow', 'matplotlib.pyplot'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_noise_scales_come_from_two_squared_norms(squares):
    found = large_batch.noise_scales(squares)["noise scale"]
    assert found[:2].tolist() == pytest.approx([300, 300])
    assert np.isnan(found[2])


def test_to_target_tells_runs_and_the_readers_own(runs):
    own = pd.DataFrame({"batch": [64, 256], "updates": [200, None]})
    texts = shown(large_batch.to_target(runs, own, target=0.84, caption="Fashion-MNIST"))
    assert "updates to 84 % validation accuracy" in texts
    assert "your run" in texts and "Fashion-MNIST" in texts
    assert "your run" not in shown(large_batch.to_target(runs, target=0.84))


def test_images_are_updates_times_the_batch(runs):
    figure = large_batch.to_target(runs, target=0.84)
    medians = figure.axes[1].lines[1].get_ydata()
    assert medians == pytest.approx([b * bend.updates(b, 30, 400) / 1000 for b in BATCHES], rel=0.03)


def test_bend_says_what_the_fit_found(runs, squares):
    texts = shown(large_batch.bend(runs, squares, target=0.84, fit=lambda b, s: (31.4, 159.2)))
    assert "floor 31" in texts and "bend 159" in texts


def test_bend_fits_by_itself(runs, squares):
    assert "bend 4" in shown(large_batch.bend(runs, squares, target=0.84))


def test_scales_take_the_readers_own(squares):
    own = pd.DataFrame({"part": [0, 1], "noise scale": [200.0, 400.0]})
    assert "yours" in shown(large_batch.scales(squares, own))
    assert "yours" not in shown(large_batch.scales(squares))
