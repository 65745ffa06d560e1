"""Figures of notebook 3d."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from labs.lab3_large_batch.lessons import figures_3d

LAYERS = ["conv 1", "conv 2", "dense"]


def test_ratios_join_the_medians_of_each_batch_size():
    drawn = {32: np.array([[1.0, 2, 3], [2, 4, 6], [9, 9, 9]]), 256: np.ones((3, 3))}
    figure = figures_3d.ratios({"first": drawn, "later": drawn}, LAYERS, spread=0.1, caption="x")
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    np.testing.assert_array_equal(lines["B = 32"].get_ydata(), [2, 4, 6])
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["first", "later"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == LAYERS


@pytest.mark.parametrize("update", [0, 5, 9])
def test_a_run_is_told_up_to_the_update(update):
    trust = np.arange(1.0, 31).reshape(10, 3)
    figure = figures_3d.over_time(LAYERS, trust, trust / 100, update, title="λ", caption="x")
    (legend,) = figure.legends
    assert legend.get_texts()[0].get_text() == f"conv 1: {trust[update, 0]:.3g}"
    so_far = figure.axes[0].get_lines()[1]
    assert so_far.get_ydata().tolist() == trust[: update + 1, 0].tolist()
    faint = figure.axes[0].get_lines()[0]
    assert faint.get_ydata().tolist() == trust[update:, 0].tolist()
    assert figure.axes[0].get_title(loc="left") == "λ"


@pytest.mark.parametrize(("value", "said"), [(0.0, "nan"), (1.0, "1")])
def test_a_run_that_changes_nothing_can_be_drawn(value, said):
    still = np.full((5, 3), value)
    figure = figures_3d.over_time(LAYERS, still, still, 4, title="")
    assert figure.png()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"{layer}: {said}" for layer in LAYERS]
    assert figure.axes[0].get_ylim() == (0.1, 10)


def test_the_cost_is_that_of_optimizers_with_a_rival():
    rows = [("SGD", None, None), ("LARS", "SGD", 0.9), ("Adam", None, None), ("LAMB", "Adam", 1.2)]
    table = pd.DataFrame(
        [(name, decay, rival, ratio) for decay in (0, 1e-4) for name, rival, ratio in rows],
        columns=["optimizer", "decay", "against", "ratio"],
    )
    figure = figures_3d.cost(table, caption="x")
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["LARS ÷ SGD", "LAMB ÷ Adam"]
    assert [text.get_text() for text in axis.texts] == ["0.90", "1.20"] * 2
    assert [bar.get_width() for bar in axis.patches] == [0.9, 1.2] * 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["no weight decay", "weight decay 0.0001"]


def test_importing_loads_neither_tensorflow_nor_pyplot():
    module = "labs.lab3_large_batch.lessons.figures_3d"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
