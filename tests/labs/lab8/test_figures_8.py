"""The figures of lab 8: what they say, and the numbers and times that they are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import psutil
import pytest

from labs.lab8_honest_benchmarks.lessons import figures_8a, figures_8b, figures_8c, noisy_curve, timings
from tests.labs import figures
from tests.labs.figures import case, suite

SERVING = pd.DataFrame(
    [("ours", 1, 2.0, 500), ("ours", 8, 7.0, 4000), ("theirs", 1, 3.0, 600), ("theirs", 8, 8.0, 5000)],
    columns=["side", "setting", "ms", "images_per_s"],
)
RATES = pd.DataFrame({"side": ["ours", "theirs"] * 2, "setting": [0.1, 0.1, 1, 1], "steps": [10, 300, 20, 80]})
CORES = pd.DataFrame({"side": ["ours", "theirs", "theirs"], "setting": [1, 1, 2], "images_per_s": [3000, 2500, 4000]})
TIMES = pd.DataFrame(
    {"ranks": ranks, "way": way, "trained": 10_240, "judged": 2_048, "training_s": 3 / ranks + 0.01 * epoch,
     "evaluation_s": 0.2 / (ranks if way == "all ranks" else 1)}
    for ranks in (1, 2, 4) for way in ("rank 0", "all ranks") for epoch in range(3)
)  # fmt: skip
FAMILY = pd.DataFrame(
    [{"use": "result", "size": size, "seed": seed, "epoch": epoch, "plain": 40.0 + seed + epoch,
      "averaged": 9.0 + seed + epoch, "plain_anew": 41.0 + seed, "averaged_anew": 42.0 + seed,
      "plain_test": 50.0 + place + seed if epoch == 2 else np.nan}
     for place, size in enumerate("SML") for seed in (1, 2, 3) for epoch in (1, 2)]
    + [{"use": "step", "size": size, "cpu_ms": cost * spread}
       for size, cost in {"S": 1, "M": 2, "L": 4, "B0": 300}.items() for spread in (0.9, 1.0, 5.0)]
)  # fmt: skip
MINUTES = {"aside": {"training": 100.0, "evaluation": 70.0}, "all": {"training": 100.0, "evaluation": 1.0}}
COUNTS = pd.DataFrame({"rank": [0, 1], "images": [60, 20], "right": [30, 5], "filled": [4, 44], "filled_right": [1, 9]})
STEP_SECONDS = np.linspace(0.001, 0.002, 101)

FIGURES = {
    "8a step times": case(figures_8a.step_times, {"alone": STEP_SECONDS, "beside": np.full(50, 0.004)}, caption="x",
        shows={1: [[1.5], [1.99], [4.0], [50], [99]]}),  # median and 99th percentile
    "8a powers": case(figures_8a.powers, 0.03, (0.1, 0.05), lambda spread, claim: 7,
        says=("10 % difference", "5 % difference", "3 %")),
    "8a serving": case(figures_8a.serving, {1: np.full(10, 0.001), 64: np.full(10, 0.004)},
        shows={0: [[1.0, 4.0], [1000, 16_000]]}),
    "8b axes": case(figures_8b.axes, RATES, shows={panel: [[10, 20], [300, 80]] for panel in (0, 1)},
        says=("ours", "theirs")),
    "8b per core": case(figures_8b.per_core, CORES, shows={0: [[3, 2.5, 4]], 1: [[3, 2.5, 2]]}),
    "8b winners": case(figures_8b.winners, np.array([[70.0, 75.0], [74.0, 71.0], [72.0, 72.0]]),
        shows={0: [[74], [71]]}),  # the best on the first half
    "8c shares": case(figures_8c.shares, TIMES,
        says=("predicted: rank 0, training shared by all", "the same in ImageNet's proportion")),
    "8c clocks": case(figures_8c.clocks, MINUTES, 64, says=("170", "101")),
    "8c counts": case(figures_8c.counts, COUNTS, shows={0: [[30, 15], [30, 5]]}),
    "8c averages": case(figures_8c.averages, FAMILY, shows={0: [[43, 44], [12, 13]], 1: [[43, 43], [44, 44]]}),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(1.0, "nobody answers"), (2.5, "ours answers alone"), (5.0, "theirs 1.20 times"), (7.0, "ours 6.67 times"),
     (8.0, "theirs 1.25 times")],
)  # fmt: skip
def test_the_bound_decides_who_wins(limit, words):
    assert words in figures.said(figures_8b.bound(SERVING, limit))


def test_the_slider_covers_all_bounds():
    low, high, start = figures_8b.bounds(SERVING.assign(kind="serving"))
    assert low == 2.0 and high == pytest.approx(9.2) and low < start < high


def test_looks_show_that_the_first_look_moves():
    def first(seconds, accuracy, target):
        return float(seconds[np.argmax(accuracy >= target)])

    figure = figures_8a.looks(first, 0.8, (0.5, 10.0))
    means = [line.get_xdata()[0] for line in figure.axes[1].get_lines() if line.get_marker() == "o"]
    assert min(means) < noisy_curve.reached(0.8) < max(means)
    assert "your time_to_target" in figures.said(figure)


def test_half_of_the_epoch_where_the_ranks_train_as_long_as_one_evaluates():
    assert [figures_8c.share(30.0, 2.0, ranks) for ranks in (15, 1)] == pytest.approx([50, 6.25])


def test_the_lines_go_through_the_dots_of_one_rank():
    lines = {line.get_label(): line for line in figures_8c.shares(TIMES).axes[0].get_lines()}
    serial = lines["predicted: rank 0, training shared by all"]
    measured = figures_8c.measured_shares(TIMES).loc[("rank 0", 1), "share, %"]
    assert serial.get_ydata()[0] == pytest.approx(measured, rel=0.01)
    assert serial.get_ydata()[-1] > 98 and serial.get_xdata()[-1] == pytest.approx(1024)
    dashed = lines["the same in ImageNet's proportion"]
    half, half_of_imagenet = (np.interp(50, line.get_ydata(), line.get_xdata()) for line in (serial, dashed))
    assert half_of_imagenet == pytest.approx(figures_8c.IMAGENET / 5 * half, rel=0.02)


def test_nobody_evaluates_aside_of_a_single_rank():
    def epoch_seconds(training, evaluation, ranks, way):
        assert ranks > 1 or way != "aside"
        return training / ranks + evaluation

    (axes,) = figures_8c.three_ways(epoch_seconds, 2.0, 0.1).axes
    assert sorted(len(line.get_xdata()) for line in axes.get_lines()) == [10, 11, 11]


@pytest.mark.slow
def test_each_size_stands_at_its_cost():
    panels = figures_8c.family(FAMILY).axes
    assert {text.get_text(): round(text.xy[0], 2) for text in panels[0].texts} == {"S": 0.39, "M": 1.07, "L": 2.04}
    assert {text.xy for text in panels[2].texts} == {(1, 52.0), (2, 53.0), (4, 54.0)}


def test_another_program_is_gone_when_the_block_ends():
    with timings.beside_another_program():
        ours = psutil.Process().children(recursive=True)
        busy = [process for process in ours if timings.BUSY in process.cmdline()]
        assert busy
    assert not [one for one in busy if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_a_training_learns_and_its_steps_are_timed():
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 256)
    x = (random.random((256, 28, 28, 1)) * 40 + 200 * y[:, None, None, None]).astype(np.uint8)
    training = timings.Training(x, y)
    before = training.accuracy(x, y)
    assert (training.steps(30) > 0).all()
    assert training.accuracy(x, y) > max(before, 0.9)


@pytest.mark.slow
def test_kernels_have_the_flops_of_the_network():
    known = timings.kernels(batch=1)
    assert known["large product, 1024³"][0] == 2 * 1024**3
    # quick_cnn: 14² · 16 · 9, 7² · 32 · 9 · 16 and 3² · 64 · 9 · 32 multiply-adds, three products of two FLOP
    layers = [flop for name, (flop, _) in known.items() if name.startswith("convolution")]
    assert layers == [6 * 14**2 * 16 * 9, 6 * 7**2 * 32 * 9 * 16, 6 * 3**2 * 64 * 9 * 32]
    assert all(seconds > 0 for _, operation in known.values() for seconds in timings.times(operation, 2))
