from __future__ import annotations

import io
import subprocess
import sys

import matplotlib
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from course_lib.notebook import plots
from course_lib.notebook.plots import training_curves


@pytest.fixture
def epochs():
    rows = [
        {"rank": rank, "epoch": epoch, "images": 1000 * epoch, "loss": 1 / epoch, "accuracy": 0.2 * epoch}
        for rank in (0, 1)
        for epoch in (1, 2, 3)
    ]
    return pd.DataFrame(rows)


def drawn(axis, rank):
    """The lines of a rank on an axis."""
    return [line for line in axis.lines if to_hex(line.get_color()).upper() == plots.colour(rank)]


def test_importing_the_style_loads_neither_tensorflow_nor_pyplot():
    code = "import sys, course_lib.notebook.plots; print({'tensorflow', 'matplotlib.pyplot'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_style_ends_with_its_block():
    before = matplotlib.rcParams["axes.grid"]
    with plots.style():
        assert matplotlib.rcParams["axes.grid"] is True
    assert matplotlib.rcParams["axes.grid"] == before


def test_a_rank_keeps_its_colour_and_neighbours_differ():
    assert plots.colour(1) == plots.colour(1 + 8)
    assert len({plots.colour(rank) for rank in range(8)}) == 8


def test_figures_are_opaque_and_as_wide_as_a_notebook():
    figure, _ = plots.subplots(height=350)
    picture = matplotlib.image.imread(io.BytesIO(figure.png()))
    assert picture.shape[:2] == (525, 1350)  # one and a half pixels for each of the page
    assert picture.shape[2] == 3 or picture[..., 3].min() == 1
    assert picture[0, 0, :3].min() > 0.95  # near white: dark ink reads on it in a dark theme too
    png, size = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert size == {"width": 900}


def test_curves_draw_each_metric_of_each_rank_against_epochs(epochs):
    loss, accuracy = plots.curves(epochs).axes
    for axis, metric in ((loss, "loss"), (accuracy, "accuracy")):
        assert axis.get_title(loc="left") == metric
        assert axis.get_xlabel() == "epoch"
        for rank in (0, 1):
            (line,) = drawn(axis, rank)
            own = epochs[epochs["rank"] == rank]
            np.testing.assert_allclose(line.get_xydata(), own[["epoch", metric]])


def test_curves_draw_validation_as_open_marks(epochs):
    epochs["val_loss"] = 0.5
    loss, accuracy = plots.curves(epochs).axes
    training, validation = drawn(loss, 0)
    assert training.get_marker() == "None"
    assert validation.get_marker() == plots.MARKERS[0]
    assert validation.get_markerfacecolor() == "none"
    assert set(validation.get_ydata()) == {0.5}
    assert len(drawn(accuracy, 0)) == 1
    labels = [text.get_text() for text in loss.figure.legends[0].get_texts()]
    assert labels == ["rank 0", "rank 1", "training", "validation"]


def test_ranks_that_agree_stay_visible(epochs):
    loss, _ = plots.curves(epochs).axes
    below, above = loss.lines
    assert below.get_linewidth() > above.get_linewidth()
    np.testing.assert_array_equal(below.get_ydata(), above.get_ydata())


def test_curves_of_batches_begin_anew_with_every_epoch(epochs):
    batches = pd.DataFrame(
        {"rank": 0, "epoch": [0.5, 1.0, 1.5, 2.0], "images": [5, 10, 15, 20], "loss": [4.0, 3, 2, 1]}
    )
    (loss,) = plots.curves(epochs[epochs["rank"] == 0], batches).axes  # no accuracy was measured
    (line,) = drawn(loss, 0)
    np.testing.assert_array_equal(line.get_ydata(), [4, 3, np.nan, 2, 1])


def test_long_runs_are_thinned_and_keep_their_last_point(epochs):
    number = 50_000
    batches = pd.DataFrame({"rank": 0, "epoch": np.linspace(0.1, 1, number), "images": 1, "loss": np.arange(number)})
    loss = plots.curves(epochs, batches).axes[0]
    values = drawn(loss, 0)[0].get_ydata()
    assert 500 < len(values) < 1300
    assert values[-1] == number - 1


def test_curves_of_nothing_are_an_empty_card():
    nothing = pd.DataFrame(columns=["rank", "epoch", "images", "loss"])
    (axis,) = plots.curves(nothing, nothing).axes
    assert axis.get_title(loc="left") == "loss"
    assert not axis.lines


def test_throughput_shows_each_measurement_and_keeps_its_axis():
    left, right = training_curves.throughput({8: [100, 140], 64: [400, 400]}, planned=[8, 64, 512]).axes
    *marks, line = left.lines
    assert [list(mark.get_ydata()) for mark in marks] == [[100, 140], [400, 400]]
    assert list(line.get_ydata()) == [120, 400]
    np.testing.assert_allclose(right.lines[-2].get_ydata(), [8 / 0.12, 64 / 0.4])
    np.testing.assert_allclose(right.lines[-1].get_ydata(), [20, 160, 1280])  # at 400 images a second
    assert [text.get_text() for text in left.get_xticklabels()] == ["8", "64", "512"]


def test_throughput_before_the_first_measurement_has_its_axes():
    for axis in training_curves.throughput({}, planned=[8, 64]).axes:
        assert [text.get_text() for text in axis.get_xticklabels()] == ["8", "64"]
        assert all(len(line.get_xdata()) == 0 for line in axis.lines)


def test_provenance_names_data_ranks_and_machine(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert plots.provenance("shapes", 2) == "shapes · 2 ranks · 4 CPU cores"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert plots.provenance(ranks=1) == "1 rank · 1 CPU core"


def test_caption_is_written_as_it_is():
    figure, _ = plots.subplots(caption="$x_1$")
    (text,) = figure.texts
    assert text.get_text() == "$x_1$" and not text.get_parse_math()
