from __future__ import annotations

import itertools

import pytest

from course_lib.cost import memory, networks
from course_lib.system.errors import CourseError
from labs.lab1_gradient_descent.lessons import peak_memory


@pytest.mark.parametrize(
    ("name", "weights", "billions"),
    [
        ("AlexNet", 60_965_224, 0.724),  # the paper's with groups; 727 million multiply-adds in Jia et al. 2018
        ("ResNet-50", 25_557_032, 3.86),  # 25.6 million, 3.8 billion in He et al. 2015
        ("WRN-28-10", 36_479_194, 5.24),  # 36.5 million in Zagoruyko and Komodakis 2016
        ("small CNN", 47_818, 0.0043),
        ("VGG-16", 138_357_544, 15.5),  # 138 million in Simonyan and Zisserman 2014
    ],
)
def test_weights_and_multiply_adds_are_the_published_ones(name, weights, billions):
    network = memory.vgg16() if name == "VGG-16" else memory.NETWORKS[name]
    assert network.weights == weights
    assert network.multiply_adds / 1e9 == pytest.approx(billions, rel=0.01)


def test_both_counts_of_a_network_agree():
    """All but ResNet-50's multiply-adds: there `networks` shrinks the image one convolution later."""
    for network in (memory.NETWORKS["AlexNet"], memory.NETWORKS["ResNet-50"], memory.vgg16()):
        tensors = networks.find(network.name)
        assert sum(tensor.elements for tensor in tensors) == network.weights
        if network.name != "ResNet-50":
            assert sum(tensor.flops for tensor in tensors) == 2 * network.multiply_adds


def test_what_resnet_hands_from_group_to_group():
    sizes = {layer.name: layer.output for layer in memory.NETWORKS["ResNet-50"].layers}
    assert sizes["conv 1"] == 56 * 56 * 64
    assert sizes["block 2.3"] == 56 * 56 * 256
    assert sizes["block 5.3"] == 7 * 7 * 2048


@pytest.mark.parametrize("network", memory.NETWORKS.values(), ids=str)
@pytest.mark.parametrize("devices", range(1, 9))
def test_a_split_deals_out_every_layer_once_and_in_order(network, devices):
    runs = memory.split(network, devices)
    assert len(runs) == devices
    assert tuple(itertools.chain(*runs)) == network.layers
    assert all(runs[: len(network.layers)])
    assert len(memory.cuts(network, devices)) == min(devices, len(network.layers)) - 1


def test_no_other_split_has_a_less_busy_device():
    network, devices = memory.NETWORKS["AlexNet"], 3
    layers = network.layers

    def busiest(runs):
        return max(sum(layer.multiply_adds for layer in run) for run in runs)

    every = [
        busiest((layers[:a], layers[a:b], layers[b:])) for a, b in itertools.combinations(range(1, len(layers)), 2)
    ]
    assert busiest(memory.split(network, devices)) == min(every)


@pytest.mark.parametrize(("limit", "batch"), [(0, 0), (9.9, 0), (10, 1), (35, 9), (1e6, 333_331)])
def test_the_largest_batch_fits_and_the_next_does_not(limit, batch):
    assert memory.largest_batch(lambda batch: 7 + 3 * batch, limit) == batch


def test_a_size_that_never_grows_has_no_largest_batch():
    with pytest.raises(ValueError, match="does not grow"):
        memory.largest_batch(lambda batch: 5, 10)


@pytest.mark.slow
def test_the_tables_agree_with_keras():
    from tensorflow import keras

    from course_lib import models

    rows = memory.walk(models.small_cnn((28, 28, 1), 10))
    small = memory.NETWORKS["small CNN"]
    assert sum(row["weights"] for row in rows) == small.weights
    assert sum(row["outputs"] for row in rows if row["kept"]) == small.activations

    resnet = keras.applications.ResNet50(weights=None)
    biases = sum(layer.bias.shape[0] for layer in resnet.layers if isinstance(layer, keras.layers.Conv2D))
    assert resnet.count_params() - biases - memory.NETWORKS["ResNet-50"].weights == sum(
        int(layer.moving_mean.shape[0]) * 2 for layer in resnet.layers if "_bn" in layer.name
    )
    kept = [
        layer.output_shape[1:]
        for layer in resnet.layers
        if isinstance(layer, (keras.layers.Conv2D, keras.layers.Activation, keras.layers.Dense))
        or layer.name in ("pool1_pool", "avg_pool")
    ]
    numbers = sum(h * w * c for h, w, c in (shape if len(shape) == 3 else (1, 1, *shape) for shape in kept))
    assert numbers + 224 * 224 * 3 == memory.NETWORKS["ResNet-50"].activations


@pytest.mark.slow
def test_memory_grows_with_the_batch_by_at_least_what_is_kept():
    small, large = peak_memory.training((64, 512))
    assert (small["batch"], large["batch"]) == (64, 512)
    grown = (large["peak"] - small["peak"]) / (512 - 64)
    kept = 4 * memory.NETWORKS["small CNN"].activations
    assert kept < grown < 2.5 * kept


def test_a_measured_process_that_fails_says_why():
    with pytest.raises(CourseError, match="failed: ValueError"):
        list(peak_memory.training(("many",)))


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_shares_are_those_of_zero(stage, gigabytes):
    """Figure 1 of arXiv:1910.02054: 7.5 billion weights, 64 ranks, Adam in mixed precision."""
    network = memory.Network("", "", 0, (memory.Layer("all", 7_500_000_000, 0, 0, 0),))
    parts = memory.training(network, 8, "Adam", mixed=True, ranks=64, stage=stage)
    assert parts["activations"] == 0
    assert sum(parts.values()) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_training_keeps_four_parts():
    network = memory.NETWORKS["small CNN"]
    parts = memory.training(network, 2, "momentum")
    assert parts["weights"] == parts["gradients"] == parts["state"] == 4 * network.weights
    assert parts["activations"] == 2 * 4 * network.activations
    assert memory.training(network, 2, "SGD")["state"] == 0


def test_recomputing_keeps_the_inputs_and_one_layer():
    layers = tuple(memory.Layer("", 0, kept, output, 0) for kept, output in ((10, 3), (20, 4), (15, 5)))
    network = memory.Network("", "", 7, layers)
    assert memory.recomputed(network) == 7 + 3 + 4 + 20
