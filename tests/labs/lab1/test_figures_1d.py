from __future__ import annotations

import subprocess
import sys

import pytest

from course_lib.cost.memory import NETWORKS, cuts
from course_lib.notebook.plots import canvas
from labs.lab1_gradient_descent.lessons import figures_1d

PLACES = {"host": [1, 3, 4, 15], "wire": [2, 5], "device": list(range(6, 15))}
PARTS = ("weights", "gradients", "state", "activations")


@pytest.fixture
def words(monkeypatch):
    """All that is written on a canvas."""
    said = []
    text = canvas.Canvas.text
    monkeypatch.setattr(
        canvas.Canvas, "text", lambda self, x, y, words, **look: said.append(words) or text(self, x, y, words, **look)
    )
    return said


def ring(weights, devices):
    return 8 * weights * (devices - 1) / devices


def chain(crossing, batch):
    return 8 * sum(crossing) * batch


def parts(weights, activations, batch, state):
    return dict(zip(PARTS, (4 * weights, 4 * weights, 4 * weights * state, 4 * activations * batch)))


def exchange(name, mode, devices, batch):
    return figures_1d.exchange(
        NETWORKS[name], mode, devices, batch, data_bytes=ring, model_bytes=chain, parts=parts
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 B"), (999, "999 B"), (999.6e3, "1.00 MB"), (12_345_678, "12.3 MB"), (1.5e9, "1.50 GB"), (153e6, "153 MB")],
)
def test_sizes_have_three_digits_and_a_unit(number, said):
    assert figures_1d.size(number) == said


def test_lanes_mark_what_is_wrong_and_what_is_missing(words):
    figures_1d.lanes(PLACES)
    assert "✓ every step stands where it happens" in words
    words.clear()
    figures_1d.lanes({**PLACES, "wire": [2, 14], "device": [5, *range(6, 14)]}, {5, 14})
    assert "✗ in the wrong lane: 5, 14" in words
    assert {"5 ✗", "14 ✗", "13"} <= set(words)
    words.clear()
    figures_1d.lanes({"host": [], "wire": [], "device": [6]})
    assert any(word.startswith("nowhere: 1, 2, 3, 4, 5, 7") for word in words)


def test_shares_mark_what_is_wrong(words):
    figures_1d.shares(set(range(1, 13)), 12)
    assert not any("✗" in word for word in words)
    figures_1d.shares({6, 7}, 3, {5, 0}, devices=3)
    assert "5 ✗" in words
    assert "all-reduce: average of the gradients ✗" in words


@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize("name", NETWORKS)
def test_with_data_parallelism_every_device_holds_the_network_and_a_share_of_the_images(words, name, devices):
    exchange(name, "data", devices, 64)
    assert f"data parallelism: every device has all layers, and 1/{devices} of the 64 images" in words
    assert {f"device {device}" for device in range(devices)} <= set(words)
    network = NETWORKS[name]
    each = sum(parts(network.weights, network.activations, -(-64 // devices), 1).values())
    assert f"Memory: {figures_1d.size(each)} on the fullest device" in words
    assert words.count(figures_1d.size(ring(network.weights, devices))) == devices - 1


@pytest.mark.parametrize("devices", [2, 3, 8])
@pytest.mark.parametrize("name", NETWORKS)
def test_with_model_parallelism_every_cut_is_crossed_both_ways(words, name, devices):
    exchange(name, "model", devices, 64)
    assert any("the layers are dealt out" in word for word in words)
    for crossing in cuts(NETWORKS[name], devices):
        assert words.count(figures_1d.size(4 * crossing * 64)) >= 2


def test_the_exchange_tells_the_bytes_of_the_functions_it_was_given(words):
    exchange("ResNet-50", "data", 4, 256)
    assert any("153 MB from each device, 613 MB in all" in word for word in words)
    assert "Wires: equal at a batch of about 95" in words
    words.clear()
    exchange("ResNet-50", "model", 4, 256)
    total = figures_1d.size(chain(cuts(NETWORKS["ResNet-50"], 4), 256))
    assert any(f"{total} in all" in word for word in words)
    assert figures_1d.size(4 * 401_408 * 256) in words


def test_devices_without_layers_are_told(words):
    exchange("small CNN", "model", 8, 64)
    assert any("4 have none" in word for word in words)


def test_a_canvas_becomes_a_picture():
    assert exchange("AlexNet", "model", 3, 64).png().startswith(b"\x89PNG")


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match='"data" or "model"'):
        exchange("AlexNet", "both", 2, 64)


def test_memory_tells_the_parts_and_what_fits(words):
    figures_1d.memory(NETWORKS["ResNet-50"], 256, parts=parts, state=1)
    assert {"weights: 102 MB", "optimizer state: 102 MB", "activations: 20.5 GB", "16 GB (P100): 195"} <= set(words)
    words.clear()
    figures_1d.memory(NETWORKS["AlexNet"], 1, parts=lambda *_: {"weights": 0, "activations": 90e9 * _[2]})
    assert "80 GB (A100): not one image" in words


def test_functions_that_forget_the_batch_are_drawn_too(words):
    network = NETWORKS["AlexNet"]
    figures_1d.memory(network, 64, parts=lambda *_: {"weights": 1e6})
    assert "16 GB (P100): any" in words
    figures_1d.exchange(
        network, "model", 4, 64, data_bytes=ring, model_bytes=lambda crossing, _: 8 * sum(crossing), parts=parts
    )
    assert "Wires: no batch makes them equal" in words


def test_measured_draws_points_and_predictions():
    rows = [{"batch": 1, "peak": 5e8}, {"batch": 64, "peak": 6e8}]
    (axis,) = figures_1d.measured(rows, {"kept": 1e6}).axes
    assert list(axis.lines[0].get_ydata()) == [0, 63]
    assert list(axis.lines[1].get_ydata()) == [0, 100]


def test_drawing_needs_no_tensorflow():
    module = "labs.lab1_gradient_descent.lessons.figures_1d"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
