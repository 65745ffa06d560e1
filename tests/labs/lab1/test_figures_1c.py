from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import plots
from labs.lab1_gradient_descent.lessons import figures_1c


def test_examples_show_three_of_each_class_and_leave_room_where_there_are_fewer():
    images = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4, 1)
    figure = figures_1c.examples(images, np.array([0, 1, 0, 0, 0]), ("shoe", "hat"))
    shown = [axis.images[0].get_array() if axis.images else None for axis in figure.axes]
    first, hat = images[0].squeeze(), images[1].squeeze()
    np.testing.assert_array_equal(shown[0], first)
    np.testing.assert_array_equal(shown[1], hat)
    assert shown[3] is None and shown[5] is None  # one hat only
    assert [axis.get_title() for axis in figure.axes[:2]] == ["shoe", "hat"]


def test_epochs_are_bars_of_training_and_validation_that_add_up():
    (axis,) = figures_1c.epoch_times([3.0, 2.0], [1.0, 0.5]).axes
    ends = [bar.get_x() + bar.get_width() for bar in axis.patches]
    assert ends == [2.0, 1.5, 3.0, 2.0]


@pytest.fixture
def curves():
    return {
        16: pd.DataFrame({"seconds": [1.0, 2.0], "val_accuracy": [0.7, 0.86]}),
        64: pd.DataFrame({"seconds": [1.0, 2.0, 3.0], "val_accuracy": [0.5, 0.6, 0.7]}),
    }


def test_a_race_marks_who_arrived_and_who_did_not(curves):
    left, right = figures_1c.race(curves, target=0.85, planned=[16, 64, 256]).axes
    assert [line.get_label() for line in left.lines[1:]] == ["B = 16", "B = 64"]
    arrived, missed = right.lines
    assert (arrived.get_xdata()[0], arrived.get_ydata()[0]) == (16, 2.0)
    assert missed.get_markerfacecolor() == "none" != arrived.get_markerfacecolor()
    assert [text.get_text() for text in right.texts] == ["not in 3 s"]


def test_a_race_before_the_first_run_has_its_axes():
    left, right = figures_1c.race({}, target=0.85, planned=[16, 64]).axes
    assert [text.get_text() for text in right.get_xticklabels()] == ["16", "64"]
    assert [text.get_text() for text in left.texts] == ["target 85 %"]
    assert not right.lines


def test_to_target_draws_medians_of_the_batch_sizes_that_mostly_arrive(titles):
    runs = pd.DataFrame(
        {
            "batch size": [16, 16, 16, 64, 64, 64],
            "reached": [True, True, True, False, False, True],
            "epochs": [1, 2, 4, 9, 9, 8],
            "steps": [400, 800, 1600, 900, 900, 800],
            "seconds": [1.0, 2.0, 4.0, 9.0, 9.0, 8.0],
        }
    )
    figure = figures_1c.to_target(runs, target=0.85)
    assert titles(figure) == ["epochs to 85 %", "steps to 85 %", "seconds to 85 %"]
    solid, hollow, median = figure.axes[0].lines
    assert list(solid.get_ydata()) == [1, 2, 4, 8] and list(hollow.get_ydata()) == [9, 9]
    assert list(median.get_xdata()) == [16] and list(median.get_ydata()) == [2]
    np.testing.assert_allclose(figure.axes[1].lines[-1].get_ydata(), [800, 200])  # perfect scaling
    assert "ended before it arrived" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_fits_shades_the_gap_and_marks_the_lowest_validation_loss():
    history = pd.DataFrame(
        {
            "updates": [10, 20, 30],
            "accuracy": [0.5, 0.8, 1.0],
            "val_accuracy": [0.5, 0.7, 0.7],
            "loss": [1.0, 0.5, 0.1],
            "val_loss": [1.0, 0.6, 0.9],
        }
    )
    figure = figures_1c.fits({"one": history, "two": history})
    accuracy, loss = figure.axes[0], figure.axes[2]
    assert [list(line.get_ydata()) for line in accuracy.lines] == [[0.5, 0.8, 1.0], [0.5, 0.7, 0.7]]
    assert len(accuracy.collections) == 1
    lowest = loss.lines[-1]
    assert (lowest.get_xdata()[0], lowest.get_ydata()[0]) == (20, 0.6)
    assert accuracy.get_title(loc="left") == "one"


@pytest.mark.parametrize(
    "figure",
    [
        lambda: figures_1c.epoch_times([2.0], [1.0], caption="c"),
        lambda: figures_1c.throughput({8: [1.0]}, caption="c"),
        lambda: figures_1c.race({8: pd.DataFrame({"seconds": [1.0], "val_accuracy": [0.1]})}, target=0.5, caption="c"),
        lambda: figures_1c.examples(np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, int), ("a",), caption="c"),
    ],
)
def test_each_is_as_wide_as_a_notebook_and_says_where_it_comes_from(figure):
    made = figure()
    assert made.get_figwidth() * 100 == plots.WIDTH
    assert "c" in [text.get_text() for text in made.texts]


def test_slices_at_equal_rates_have_a_line_for_each_kind_of_network():
    networks = pd.DataFrame(
        {
            "depth": [16, 16, 40, 40],
            "skip": [True, True, False, False],
            "rate": [0.01, 0.1, 0.01, 0.1],
            "share below guessing": [0.1, 0.2, 0.3, 0.4],
            "highest loss": [10.0, 20.0, 30.0, 40.0],
        }
    )
    left, right = figures_1c.slices_by_rate(networks, caption="c").axes
    assert [line.get_label() for line in left.lines] == ["depth 16, with skips", "depth 40, no skips"]
    assert [line.get_ydata().tolist() for line in right.lines] == [[10, 20], [30, 40]]
