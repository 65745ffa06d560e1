from __future__ import annotations

import pytest

from course_lib.cost import memory, networks


def totals(network):
    return len(network), sum(tensor.elements for tensor in network), sum(tensor.flops for tensor in network) / 2e9


def test_resnet_50_has_the_published_size():
    tensors, elements, multiply_adds = totals(networks.resnet50())
    assert (tensors, elements) == (161, 25_557_032)
    assert multiply_adds == pytest.approx(4.09, rel=0.005)  # 4 G in Jia et al. 2018


def test_alexnet_has_the_published_size():
    tensors, elements, multiply_adds = totals(networks.alexnet())
    assert tensors == 16
    assert elements / 1e6 == pytest.approx(62, rel=0.02)
    assert multiply_adds == pytest.approx(0.727, rel=0.01)


@pytest.mark.parametrize(("name", "network"), [("ResNet-50", networks.resnet50()), ("AlexNet", networks.alexnet())])
def test_the_weights_are_those_that_the_memory_model_counts(name, network):
    assert sum(tensor.elements for tensor in network) == memory.NETWORKS[name].weights


def test_names_are_unique_and_only_kernels_work():
    for network in (networks.resnet50(), networks.alexnet()):
        assert len({tensor.name for tensor in network}) == len(network)
        assert all((tensor.flops > 0) == tensor.name.endswith("/kernel") for tensor in network)


@pytest.mark.slow
def test_resnet_50_is_that_of_keras():
    from tensorflow import keras

    model = keras.applications.ResNet50(weights=None)
    sizes = [w.shape.num_elements() for w in model.trainable_weights if "_conv/bias" not in w.name]
    assert sorted(sizes) == sorted(tensor.elements for tensor in networks.resnet50())
