"""Figures of notebook 8a, and the times that they show."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from labs.lab8_honest_benchmarks.lessons import figures_8a, noisy_curve, timings


def words(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_step_times_mark_median_and_99th_percentile():
    figure = figures_8a.step_times({"alone": np.linspace(0.001, 0.002, 101), "beside": np.full(50, 0.004)}, caption="x")
    marks = [
        (line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[1].get_lines() if len(line.get_xdata()) == 1
    ]
    assert marks[0] == (pytest.approx(1.5), 50) and marks[1] == (pytest.approx(1.99), 99) and marks[2] == (4.0, 50)


def test_powers_ring_what_is_asked_for():
    figure = figures_8a.powers(0.03, (0.1, 0.05), lambda spread, claim: 7)
    assert "10 % difference" in words(figure) and "5 % difference" in words(figure)
    assert "3 %" in figure.axes[0].get_title(loc="left")


def test_serving_has_rates_and_waits():
    figure = figures_8a.serving({1: np.full(10, 0.001), 64: np.full(10, 0.004)})
    median, _ = figure.axes[0].get_lines()
    assert list(median.get_xdata()) == [1.0, 4.0] and list(median.get_ydata()) == pytest.approx([1000, 16_000])


def test_looks_show_that_the_first_look_moves():
    def first(seconds, accuracy, target):
        return float(seconds[np.argmax(accuracy >= target)])

    figure = figures_8a.looks(first, 0.8, (0.5, 10.0))
    means = [line.get_xdata()[0] for line in figure.axes[1].get_lines() if line.get_marker() == "o"]
    assert means[0] < noisy_curve.reached(0.8) < means[1]
    assert means[:2] == means[2:]  # the same way is drawn twice
    assert "your time_to_target" in words(figure)


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
