"""The figures that several labs share: what they say."""

from __future__ import annotations

import io
import subprocess
import sys

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from course_lib.notebook import plots
from course_lib.notebook.plots import descent_paths, timeline, training_curves
from course_lib.notebook.plots.step_shares import step_shares
from course_lib.ranks.step_shares import INPUT, NETWORK, PARTS, WAITING, StepShares
from tests.labs import figures

EPOCHS = pd.DataFrame(
    [{"rank": rank, "epoch": epoch, "images": 1000 * epoch, "loss": (1 + rank) / epoch, "accuracy": 0.2 * epoch}
     for rank in (0, 1) for epoch in (1, 2, 3)]
)  # fmt: skip
BATCHES = pd.DataFrame({"rank": 0, "epoch": [0.5, 1.0, 1.5, 2.0], "images": [5, 10, 15, 20], "loss": [4.0, 3, 2, 1]})
NOTHING = pd.DataFrame(columns=["rank", "epoch", "images", "loss"])
BARS = pd.DataFrame(
    [("conv", "wait", 0.0, 0.010), ("dense", "wait", 0.002, 0.004), ("conv", "reduce", 0.010, 0.010)],
    columns=["row", "activity", "start", "seconds"],
)
MANY_BARS = pd.DataFrame(
    {"row": [f"tensor {i % 30} with a name that is much too long" for i in range(1000)],
     "activity": [f"activity {i % 5}" for i in range(1000)], "start": np.linspace(0, 1, 1000), "seconds": 0.01}
)  # fmt: skip
FAST_AND_SLOW = [
    StepShares(20.0, dict.fromkeys(PARTS, 0.0) | {NETWORK: 0.57, WAITING: 0.43}),
    StepShares(20.0, dict.fromkeys(PARTS, 0.0) | {NETWORK: 0.5, INPUT: 0.48, "metrics": 0.02}),
]
START, WALKED = [1.0, 0.5], np.linspace([1.0, 0.5], [0, 0], 11)


def bowl(w):
    return w[0] ** 2 + 10 * w[1] ** 2


GROUND = descent_paths.ground(bowl, (-2, 2), (-1, 1), points=50)

FIGURES = {
    "curves": (
        lambda: plots.curves(EPOCHS, EPOCHS, caption="here"),
        ("loss", "accuracy", "epoch", "rank 0", "rank 1", "training", "here"),
        {0: [[1, 2, 3], [1, 1 / 2, 1 / 3], [2, 1, 2 / 3]], 1: [[0.2, 0.4, 0.6]]},
        ("validation",),
    ),
    "validation": (lambda: plots.curves(EPOCHS.assign(val_loss=0.5), EPOCHS), ("validation",), {0: [[0.5, 0.5, 0.5]]}),
    "batches begin anew with every epoch": (
        lambda: plots.curves(EPOCHS[EPOCHS["rank"] == 0], BATCHES),
        ("loss",),
        {0: [[4, 3, np.nan, 2, 1]]},
        ("accuracy",),
    ),
    "where a step goes": (
        lambda: step_shares(FAST_AND_SLOW, caption="here"),
        ("rank 0", "rank 1", "57%", "43%", "48%", "input", "one training step (ms)", "here"),
        {},
        ("2%",),
    ),
    "curves of nothing": (lambda: plots.curves(NOTHING, NOTHING), ("loss",), {}),
    "throughput": (
        lambda: training_curves.throughput({8: [100, 140], 64: [400, 400]}, planned=[8, 64, 512]),
        ("8\n64\n512", "images a second", "milliseconds for a step"),
        {0: [[100, 140], [400, 400], [120, 400]], 1: [[8 / 0.12, 64 / 0.4], [20, 160, 1280]]},
    ),
    "throughput before the first measurement": (
        lambda: training_curves.throughput({}, planned=[8, 64]), ("8\n64",), {},
    ),
    "rows": (
        lambda: timeline.rows(BARS, 0, 0.020, title="t", caption="c"),
        ("conv\ndense", "wait", "reduce", "time (ms)", "t", "c"),
        {0: [[0, 10], [10, 20], [2]]},  # where bars begin and end
    ),
    "rows in a window": (lambda: timeline.rows(BARS, 0.012, 0.002), ("conv",), {0: [[10], [20]]}),
    "the first of many rows": (
        lambda: timeline.rows(MANY_BARS, caption="c"), ("c · 6 more rows", "… that is much too long", "activity 4"), {},
    ),
    "no rows": (lambda: timeline.rows(BARS[:0], title="t"), ("t", "time (ms)"), {}),
    "bars of unknown length": (lambda: timeline.rows(BARS.assign(seconds=np.nan)), ("conv",), {}),
    "path": (
        lambda: descent_paths.path(GROUND, {"rule": np.array([START, [0.5, 0.2], [9.0, 9.0]])}, bowl),
        ("the path", "loss above the minimum", "rule"),
        {0: [[1.0, 0.5, 9.0]], 1: [[3.5, 0.65, 891]]},
    ),
    "race": (
        lambda: descent_paths.race(GROUND, {"fast": WALKED[::2], "slow": WALKED}, bowl, step=7, lowest=-1, caption="x"),
        ("fast", "slow", "x"),
        {1: [bowl(WALKED[::2].T) + 1, bowl(WALKED[:8].T) + 1]},  # up to the step, above the lowest
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_is_given(name):
    figures.check(*FIGURES[name])


def test_importing_the_figures_loads_neither_tensorflow_nor_pyplot():
    modules = "course_lib.notebook.plots.descent_paths, course_lib.notebook.plots.timeline"
    code = f"import sys, {modules}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_a_rank_keeps_its_colour_and_neighbours_differ():
    assert plots.colour(1) == plots.colour(1 + 8)
    assert len({plots.colour(rank) for rank in range(8)}) == 8
    loss, _ = plots.curves(EPOCHS, EPOCHS).axes
    assert {to_hex(line.get_color()).upper() for line in loss.lines} == {plots.colour(0), plots.colour(1)}


def test_figures_are_opaque_and_as_wide_as_a_notebook():
    figure, _ = plots.subplots(height=350)
    picture = matplotlib.image.imread(io.BytesIO(figure.png()))
    assert picture.shape[:2] == (525, 1350)  # one and a half pixels for each of the page
    assert picture.shape[2] == 3 or picture[..., 3].min() == 1
    assert picture[0, 0, :3].min() > 0.95  # near white: dark ink reads on it in a dark theme too
    assert figure._repr_png_()[1] == {"width": 900}


@pytest.mark.parametrize("times", [5, 24, 40])
def test_a_caption_ends_within_its_figure(times):
    figure, _ = plots.subplots(caption="recorded, " * times)
    (caption,) = figure.texts
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert caption.get_window_extent(renderer).x1 < figure.bbox.x1
    assert (caption.get_fontsize() == 8.5) == (times < 15)
    assert not caption.get_parse_math()  # "$x_1$" is written as it is


def test_long_runs_are_thinned_and_keep_their_last_point():
    losses = np.arange(50_000)
    batches = pd.DataFrame({"rank": 0, "epoch": np.linspace(0.1, 1, len(losses)), "images": 1, "loss": losses})
    (line,) = [line for line in plots.curves(EPOCHS, batches).axes[0].lines if len(line.get_xdata())]
    assert 500 < len(line.get_ydata()) < 1300 and line.get_ydata()[-1] == losses[-1]


def test_low_ground_is_dark_and_a_path_does_not_move_its_limits():
    brightness = GROUND.bands[..., :3].sum(axis=-1)
    assert brightness[25, 25] == brightness.min() and brightness[0, 0] == brightness.max()
    left, _ = descent_paths.path(GROUND, {"rule": np.array([START, [9.0, 9.0]])}, bowl).axes
    assert (left.get_xlim(), left.get_ylim()) == ((-2, 2), (-1, 1))


def test_a_rule_that_diverges_leaves_the_scale_to_the_start():
    figure = descent_paths.race(GROUND, {"bad": np.array([START, [1e200, 1.0], [np.inf, np.nan]])}, bowl, step=2)
    assert figure.png()
    assert figure.axes[1].get_ylim() == pytest.approx((3.5e-6, 17.5))


def test_provenance_names_data_ranks_and_machine(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert plots.provenance("shapes", 2) == "shapes · 2 ranks · 4 CPU cores"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert plots.provenance(ranks=1) == "1 rank · 1 CPU core"
