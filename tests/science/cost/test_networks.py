from __future__ import annotations

import pytest

from course_lib.cost import networks


def totals(network):
    return len(network), sum(tensor.elements for tensor in network), sum(tensor.flops for tensor in network) / 2e9


@pytest.mark.parametrize(
    ("name", "tensors", "elements", "billions"),
    [  # numbers of Keras's and torchvision's networks; multiply-adds of their documentation
        ("AlexNet", 16, 60_965_224, 0.725),
        ("ResNet-50", 161, 25_557_032, 4.09),
        ("ResNet-101", 314, 44_549_160, 7.80),
        ("ResNet-152", 467, 60_192_808, 11.51),
        ("VGG-16", 32, 138_357_544, 15.47),
        ("VGG-A", 22, 132_863_336, 7.61),
        ("Inception V3", 190, 23_817_352, 5.71),
        ("EfficientNet-B0", 213, 5_288_548, 0.386),
    ],
)
def test_networks_have_the_published_sizes(name, tensors, elements, billions):
    counted = totals(networks.find(name))
    assert counted[:2] == (tensors, elements)
    assert counted[2] == pytest.approx(billions, rel=0.003)


@pytest.mark.parametrize(
    ("width", "depth", "side", "millions", "billions"),
    [  # arXiv:1905.11946, table 2, with the factors of the authors' program
        (1.0, 1.0, 224, 5.3, 0.39),
        (1.0, 1.1, 240, 7.8, 0.70),
        (1.1, 1.2, 260, 9.2, 1.0),
        (1.2, 1.4, 300, 12, 1.8),
        (1.4, 1.8, 380, 19, 4.2),
        (1.6, 2.2, 456, 30, 9.9),
        (1.8, 2.6, 528, 43, 19),
        (2.0, 3.1, 600, 66, 37),
    ],
)
def test_efficientnets_have_the_published_sizes(width, depth, side, millions, billions):
    _, elements, counted = totals(networks.EFFICIENTNET.scaled(width, depth).tensors(side))
    assert elements / 1e6 == pytest.approx(millions, rel=0.025)
    assert counted == pytest.approx(billions, rel=0.05)


def test_an_unknown_network_is_an_error_that_lists_the_known():
    with pytest.raises(ValueError, match="Inception V3, ResNet-50"):
        networks.find("LeNet")


def test_names_are_unique_and_only_kernels_work():
    for network in map(networks.find, networks.NETWORKS):
        assert len({tensor.name for tensor in network}) == len(network)
        assert all((tensor.flops > 0) == tensor.name.endswith("/kernel") for tensor in network)


@pytest.mark.slow
def test_inception_v3_is_that_of_keras():
    from tensorflow import keras

    sizes = [w.shape.num_elements() for w in keras.applications.InceptionV3(weights=None).trainable_weights]
    assert sorted(sizes) == sorted(tensor.elements for tensor in networks.inception_v3())


@pytest.mark.slow
def test_resnet_50_is_that_of_keras():
    from tensorflow import keras

    model = keras.applications.ResNet50(weights=None)
    sizes = [w.shape.num_elements() for w in model.trainable_weights if "_conv/bias" not in w.name]
    assert sorted(sizes) == sorted(tensor.elements for tensor in networks.resnet50())
