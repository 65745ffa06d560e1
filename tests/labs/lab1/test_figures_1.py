"""The figures of lab 1: what they say, and the numbers that they are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.cost.memory import NETWORKS, cuts
from course_lib.notebook.plots import descent_paths
from labs.lab1_gradient_descent.lessons import (
    figures_1a,
    figures_1b,
    figures_1c,
    figures_1d,
    figures_1e,
    figures_1f,
    figures_surfaces,
)
from tests.labs import figures
from tests.labs.figures import case, numbers, suite

STEEPEST, FLATTEST, BEST = 8.0, 0.5, (1.0, -2.0)


def bowl(w, b):
    return 0.5 * (STEEPEST * (w - BEST[0]) ** 2 + FLATTEST * (b - BEST[1]) ** 2)


def path(eta, steps=40, ended=""):
    places = [(-1.0, 3.0)]
    for _ in range(steps):
        w, b = places[-1]
        places.append((w - eta * STEEPEST * (w - BEST[0]), b - eta * FLATTEST * (b - BEST[1])))
    ws, bs = np.array(places).T
    return figures_1a.Path(ws, bs, bowl(ws, bs), ended)


OVER = figures_1a.grid(bowl, (-2, 4), (-7, 4), BEST, points=21)
SIZES = np.array([1, 2, 4, 8])
GRADIENTS = {"title": "some", "population": 100, "sizes": SIZES, "measured": [5 / SIZES] * 3, "one": 5.0}
BALL = pd.DataFrame({"eta": [0.1, 0.2], "batch_size": [1, 4], "squared_distance": [0.1, 0.05]})
TO_TARGET = pd.DataFrame(
    {"batch_size": [1, 1, 8, 8], "steps": [80, 90, 10, 12], "examples": [80, 90, 80, 96], "seconds": [8, 9, 1, 2]}
)
ROOF = pd.DataFrame(
    {"layer": ["a", "a", "b", "b"], "batch_size": [1, 64, 1, 64], "images_per_second": [1e3, 1e4, 1e5, 1e6],
     "intensity": [0.5, 30, 0.5, 5], "flops": [2e10, 2e11, 5e9, 1e11]}
)  # fmt: skip
CURVES = {
    16: pd.DataFrame({"seconds": [1.0, 2.0], "val_accuracy": [0.7, 0.86]}),
    64: pd.DataFrame({"seconds": [1.0, 2.0, 3.0], "val_accuracy": [0.5, 0.6, 0.7]}),
}
ARRIVALS = pd.DataFrame(
    {"batch size": [16, 16, 16, 64, 64, 64], "reached": [True, True, True, False, False, True],
     "epochs": [1, 2, 4, 9, 9, 8], "steps": [400, 800, 1600, 900, 900, 800], "seconds": [1.0, 2, 4, 9, 9, 8]}
)  # fmt: skip
HISTORY = pd.DataFrame(
    {"updates": [10, 20, 30], "accuracy": [0.5, 0.8, 1.0], "val_accuracy": [0.5, 0.7, 0.7], "loss": [1.0, 0.5, 0.1],
     "val_loss": [1.0, 0.6, 0.9]}
)  # fmt: skip
SLICES = pd.DataFrame(
    {"depth": [16, 16, 40, 40], "skip": [True, True, False, False], "rate": [0.01, 0.1, 0.01, 0.1],
     "share below guessing": [0.1, 0.2, 0.3, 0.4], "highest loss": [10.0, 20.0, 30.0, 40.0]}
)  # fmt: skip
IMAGES = np.arange(5 * 4 * 4, dtype=np.uint8).reshape(5, 4, 4, 1)
PLACES = {"host": [1, 3, 4, 15], "wire": [2, 5], "device": list(range(6, 15))}
TRIALS = pd.DataFrame({"validation accuracy": [0.5, 0.9, 0.1]})
RATES = pd.DataFrame(
    {"batch norm": [True, True, False], "rate": [0.1, 0.1, 1.0], "validation accuracy": [0.4, 0.6, 0.2]}
)
IMAGE_COUNTS = np.array([100, 200, 400, 800])
# Two seeds that follow a law up to 400 images, and are worse than it with 800.
LAW = pd.concat(
    [
        pd.DataFrame({"seed": seed, "width": 1.0, "weights": 10, "images": IMAGE_COUNTS,
                      "error": factor * IMAGE_COUNTS**-0.5 * [1, 1, 1, 1.5]})
        for seed, factor in ((1, 3.0), (2, 5.0))
    ],
    ignore_index=True,
)  # fmt: skip
XS, YS = np.linspace(-1, 1, 9), np.linspace(-2, 2, 5)
SURFACE = 0.1 + XS**2 + 10 * YS[:, None] ** 2


def ring(weights, devices):
    return 8 * weights * (devices - 1) / devices


def chain(crossing, batch):
    return 8 * sum(crossing) * batch


def parts(weights, activations, batch, state):
    names = ("weights", "gradients", "state", "activations")
    return dict(zip(names, (4 * weights, 4 * weights, 4 * weights * state, 4 * activations * batch)))


def exchange(name, mode, devices, batch, model_bytes=chain):
    return figures_1d.exchange(
        NETWORKS[name], mode, devices, batch, data_bytes=ring, model_bytes=model_bytes, parts=parts
    )


def rate(eta, ended="converged"):
    return figures_1a.rate(OVER, path(eta, ended=ended), 0.0, eta=eta, steepest=STEEPEST, most=300, caption="c")


def steps():
    ends = {0.01: "", 0.1: "converged", 0.24: "converged", 0.4: "diverged"}
    paths = [path(eta, steps=10 * (number + 1), ended=ended) for number, (eta, ended) in enumerate(ends.items())]
    return figures_1a.steps(np.array(list(ends)), paths, FLATTEST, STEEPEST)


def twice(examples, size, epoch):
    return [np.array([0, 1]), np.array([1, 2])]


FIGURES = {
    "1a rate": case(rate, 0.2, shows={0: [path(0.2).w, path(0.2).b], 1: [path(0.2).losses]},
        says=("η = 0.2 = 1.60/λₘₐₓ", "converged after 40 steps", "crawl", "converge", "oscillate", "diverge", "c",
              "2/λₘₐₓ")),
    "1a fit": case(figures_1a.fit, np.array([0.0, 1, 2]), np.array([1.0, 0, 4]), 2.0, 0.5, loss=1.25, over=OVER,
        shows={0: [[[1.0, 0.5], [0.0, 2.5], [4.0, 4.5]], [0.5, 4.5]], 1: [[2.0], [0.5]]},
        says=("w = 2.00, b = 0.50: L = 1.25",)),
    "1a steps": case(steps, shows={0: [[20, 30], [40], [2 / STEEPEST] * 2, [2 / (STEEPEST + FLATTEST)] * 2]},
        says=("converged", "did not arrive", "diverged", "crawl", "oscillate")),
    "1a side by side": case(figures_1a.side_by_side, {"one": (OVER, path(0.05)), "two": (OVER, path(0.2))},
        lowest=-1.0, equal=True, shows={2: [path(0.05).losses + 1, path(0.2).losses + 1]}),
    "1a differences": case(figures_1a.differences, np.array([0.1, 1.0]), {"central": np.array([0.0, 1e-3])},
        shows={0: [[np.finfo(float).eps, 1e-3]]}),  # an exact one is still drawn
    "1a trends": case(figures_1a.trends, {"mine": 2e11, "yours": 5e15}, "c", says=("image classification, 0.31", "c")),
    "1b batches": case(figures_1b.batches, twice, examples=4, batch_size=2, epochs=1, shows={0: [[1]]},
        says=("4 examples, batches of 2", "batch 0", "batch 1")),  # drawn twice
    "1b variance": case(figures_1b.variance, [{**GRADIENTS, "fit": True}], shows={0: [5 / SIZES]},
        says=("some: N = 100 · slope −1.000",)),
    "1b variance without a fit": case(figures_1b.variance, [GRADIENTS], says=("some",), hides=("slope",)),
    "1b ball sizes": case(figures_1b.ball_sizes, BALL, line=2.0, shows={0: [[0.1, 0.2], [0.1], [0.05]]},
        says=("m = 1", "m = 4")),
    "1b epochs": case(figures_1b.epochs, {1: [2, 1], 1024: [2, 1.5]}, eta=0.01, shows={0: [[2, 1], [2, 1.5]]},
        says=("the same η = 0.01 for all", "m = 1", "m = 1,024")),
    "1f to target": case(figures_1f.to_target, TO_TARGET, title="To a loss of 1",
        shows={0: [[8], [11]], 1: [[1], [85]], 2: [[8], [1.5]]},
        says=("steps to target · best m = 8", "examples to target · best m = 1")),  # rings around the winners
    "1f roofline": case(figures_1f.roofline, ROOF, 230e9, 50e9, shows={0: [[1e3, 1e4]]},
        says=("peak 230 GFLOP/s", "memory 50 GB/s")),
    "1c examples": case(figures_1c.examples, IMAGES, np.array([0, 1, 0, 0, 0]), ("shoe", "hat"), caption="c",
        shows={0: [IMAGES[0, ..., 0]], 1: [IMAGES[1, ..., 0]]}, says=("shoe", "hat")),
    "1c epoch times": case(figures_1c.epoch_times, [3.0, 2.0], [1.0, 0.5], caption="c",
        shows={0: [[2.0, 1.5], [3.0, 2.0]]}),
    "1c race": case(figures_1c.race, CURVES, target=0.85, planned=[16, 64, 256], caption="c", shows={1: [[2.0]]},
        says=("B = 16", "B = 64", "256", "not in 3 s")),
    "1c race before the first run": case(figures_1c.race, {}, target=0.85, planned=[16, 64],
        says=("16", "64", "target 85 %")),
    # the last: perfect scaling
    "1c to target": case(figures_1c.to_target, ARRIVALS, target=0.85,
        shows={0: [[1, 2, 4, 8], [9, 9], [2]], 1: [[800, 200]]},
        says=("epochs to 85 %", "steps to 85 %", "seconds to 85 %", "ended before it arrived")),
    "1c fits": case(figures_1c.fits, {"one": HISTORY, "two": HISTORY},
        shows={0: [[0.5, 0.8, 1.0], [0.5, 0.7, 0.7]], 2: [[20], [0.6]]}),  # the lowest validation loss
    "1c slices": case(figures_1c.slices_by_rate, SLICES, caption="c", shows={1: [[10, 20], [30, 40]]},
        says=("depth 16, with skips", "depth 40, no skips")),
    "1d lanes": case(figures_1d.lanes, PLACES, says=("✓ every step stands where it happens", "2 →"), hides=("✗",)),
    "1d wrong lanes": case(figures_1d.lanes, {**PLACES, "wire": [2, 14], "device": [5, *range(6, 14)]}, {5, 14},
        says=("✗ in the wrong lane: 5, 14", "5 ✗", "14 ✗")),
    "1d few lanes": case(figures_1d.lanes, {"device": [6]}, says=("nowhere: 1, 2, 3, 4, 5, 7",)),
    "1d shares": case(figures_1d.shares, set(range(1, 13)), 12, says=("device 3",), hides=("✗",)),
    "1d wrong shares": case(figures_1d.shares, {6, 7}, 3, {5, 0}, devices=3,
        says=("5 ✗", "all-reduce: average of the gradients ✗"), hides=("device 3",)),
    "1d data parallelism": case(exchange, "ResNet-50", "data", 4, 256,
        shows={2: [[256], [4 * ring(NETWORKS["ResNet-50"].weights, 4)]]},
        says=("data parallelism: every device has all layers, and 1/4 of the 256 images", "device 3",
              "153 MB from each device, 613 MB in all", "Wires: equal at a batch of about 95",
              "Memory: 5.43 GB on the fullest device")),
    "1d model parallelism": case(exchange, "ResNet-50", "model", 4, 256,
        shows={2: [[chain(cuts(NETWORKS["ResNet-50"], 4), 256)]]},
        says=("the layers are dealt out", figures_1d.size(4 * 401_408 * 256),
              f"{figures_1d.size(chain(cuts(NETWORKS['ResNet-50'], 4), 256))} in all")),
    "1d devices without layers": case(exchange, "small CNN", "model", 8, 64, says=("4 have none", "device 7")),
    "1d bytes that forget the batch": case(exchange, "AlexNet", "model", 4, 64, lambda crossing, _: 8 * sum(crossing),
        says=("Wires: no batch makes them equal",)),
    "1d memory": case(figures_1d.memory, NETWORKS["ResNet-50"], 256, parts=parts, state=1, shows={1: [[256]]},
        says=("weights: 102 MB", "optimizer state: 102 MB", "activations: 20.5 GB", "16 GB (P100): 195")),
    "1d memory for no image": case(figures_1d.memory, NETWORKS["AlexNet"], 1,
        parts=lambda *_: {"weights": 0, "activations": 90e9 * _[2]}, says=("80 GB (A100): not one image",)),
    "1d memory that forgets the batch": case(figures_1d.memory, NETWORKS["AlexNet"], 64,
        parts=lambda *_: {"weights": 1e6}, says=("16 GB (P100): any",)),
    "1d measured": case(figures_1d.measured, [{"batch": 1, "peak": 5e8}, {"batch": 64, "peak": 6e8}], {"kept": 1e6},
        shows={0: [[0, 63], [0, 100]]}, says=("predicted: kept", "measured")),
    "1e rates": case(figures_1e.rates, RATES, caption="c", shows={0: [[0.5], [0.2]]},
        says=("with batch norm", "without batch norm")),
    "1e percentiles": case(figures_1e.percentiles, {"with": [(-1, 0, 2), (-2, 1, 3)]}, [1, 5],
        shows={0: [[-1, -2], [0, 1], [2, 3]]}),
    "1e data size": case(figures_1e.data_size, LAW, fitted=400,
        shows={0: [4.0 * IMAGE_COUNTS**-0.5, 4.0 * IMAGE_COUNTS**-0.5 * [1, 1, 1, 1.5]]},
        says=("width 1: exponent 0.50",)),  # the law, and the measurement
    "1e starts": case(figures_1e.starts,
        pd.DataFrame({"training loss": [0.3, 0.4], "validation accuracy": [0.8, 0.81]}),
        pd.DataFrame({"updates": [0, 10], "largest": [5.0, 20.0], "smallest": [-3.0, -0.5],
                      "largest, training": [6.0, 10.0], "smallest, training": [-4.0, -0.2]}),
        limit=76.0, shows={0: [[80, 81]], 1: [[6, 10], [5, 20], [-4, -0.2]]}, says=("largest", "smallest", "limit")),
    "surface": case(figures_surfaces.turned, XS, YS, SURFACE, turn=25, tilt=50, names=("w", "b"), title="a bowl",
        says=("loss L",)),
    "contours": case(figures_surfaces.contours, XS, YS, {"low": SURFACE, "high": 30 * SURFACE}, limit=100,
        mark=(2.3, "guessing"), says=("guessing", "step along d₁", "loss L", "0.1", "100")),
    "contours in rows": case(figures_surfaces.contours, XS, YS, {f"slice {n}": SURFACE for n in range(4)},
        says=("slice 0", "slice 3")),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


NUMBERS = {
    "1a doubling time": (figures_1a.doubling_time, 3.35),  # 61 months, 18.2 doublings
    "1a later doubling time": (figures_1a.later_doubling_time, 10.3),  # 81 months, 7.9 doublings
    "1b slope": (lambda: figures_1b.slope(SIZES, 3.0 / SIZES), -1),
    "1b another slope": (lambda: figures_1b.slope(SIZES, SIZES**0.5), 0.5),
    "1e power law": (lambda: figures_1e.fit(IMAGE_COUNTS, 3 * IMAGE_COUNTS**-0.25), (0.25, 3)),
    "1e chances": (lambda: figures_1e.chances(2, 4), [1 / 2, 1 / 3, 1 / 6, 0]),  # 3, 2 and 1 of 6 pairs
    "1e all trials find the best": (lambda: figures_1e.found([0.5, 0.9, 0.1], 3), 0.9),
    "1e one trial is any": (lambda: figures_1e.found([0.5, 0.9, 0.1], 1), 0.5),
    "1e gain": (lambda: figures_1e.gain([0.5, 0.5, 0.5], 1, 2), (0, 0, 0)),
    "1e search": (lambda: figures_1e.search(TRIALS).axes[0].lines[0].get_ydata(), [50, 76.67, 90]),
}

test_numbers_of_figures = numbers(NUMBERS, rtol=0.01)


@pytest.mark.parametrize(
    ("eta", "regime"), [(0.001, "crawl"), (0.05, "converge"), (0.2, "oscillate"), (0.2501, "diverge"), (9.0, "diverge")]
)
def test_regimes_by_the_largest_curvature(eta, regime):
    assert figures_1a.regime(eta, STEEPEST) == regime
    losses = path(eta, steps=40).losses
    assert eta == 0.2501 or (losses[-1] > losses[0]) == (regime == "diverge")


def test_of_a_descent_that_ran_to_infinity_the_finite_part_is_drawn():
    with np.errstate(all="ignore"):
        wild = path(30.0, steps=400, ended="diverged")
    assert not np.isfinite(wild.losses[-1])
    for figure in (
        figures_1a.rate(OVER, wild, 0.0, eta=30.0, steepest=STEEPEST, most=300),
        figures_1a.side_by_side({"wild": (OVER, wild)}, lowest=0.0),
    ):
        shown = [values for axis in figure.axes for values in figures.series(axis)]
        assert any(1 < len(values) < 10 for values in shown)
        assert all(np.nanmax(values) < 1e12 for values in shown)


def test_the_ball_has_its_predicted_radius():
    scene = descent_paths.ground(lambda w: w[0] ** 2 + w[1] ** 2, (-2, 2), (-1, 1), points=50)
    walked = np.random.default_rng(0).normal(size=(5000, 2))
    figure = figures_1b.ball(scene, walked, np.zeros(2), 0.25, title="here")
    assert "here" in figures.said(figure)
    assert figure.axes[0].patches[0].radius == 0.5


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6e3, "1.00 MB"), (12_345_678, "12.3 MB"), (1.5e9, "1.50 GB"), (153e6, "153 MB")],
)
def test_sizes_have_three_digits_and_a_unit(number, text):
    assert figures_1d.size(number) == text


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match='"data" or "model"'):
        exchange("AlexNet", "both", 2, 64)


@pytest.mark.parametrize("limit", [5, None])
def test_a_surface_ends_at_its_limit_or_at_the_highest_finite_loss(limit):
    losses = SURFACE.copy()
    losses[0, :2] = np.inf, np.nan
    (axis,) = figures_surfaces.turned(XS, YS, losses, limit=limit).axes
    assert axis.get_zlim()[1] == (limit or losses[np.isfinite(losses)].max())
    assert np.isfinite(axis.collections[0].get_array()).all()


def test_heights_may_be_powers_of_ten():
    (axis,) = figures_surfaces.turned(XS, YS, SURFACE, limit=10, lowest=0.01, log=True).axes
    assert axis.get_zlim() == (-2, 1) and axis.zaxis.get_major_formatter()(-1.0) == "0.1"


@pytest.mark.filterwarnings("error")
def test_a_loss_that_is_the_same_everywhere_is_drawn_without_a_warning():
    flat = np.ones_like(SURFACE)
    assert figures_surfaces.contours(XS, YS, {"flat": flat}, limit=0.5, mark=(2.3, "guessing")).png()
    assert figures_surfaces.turned(XS, YS, flat).png()
