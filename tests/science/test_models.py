"""The course's networks: their form, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.data import shapes

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to import


@pytest.fixture(scope="module")
def models():
    from course_lib import models

    return models


@pytest.mark.parametrize("image_shape", [(28, 28, 1), (32, 32, 3)])
@pytest.mark.parametrize("name", ["assessment_cnn", "linear", "quick_cnn", "small_cnn", "wide_resnet"])
def test_images_in_probabilities_out(models, name: str, image_shape: tuple) -> None:
    model = getattr(models, name)(image_shape, 7)
    x, _ = shapes.draw(5, image_shape)
    probabilities = model(x.astype(np.float32)).numpy()
    assert model.name == name and probabilities.shape == (5, 7)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_sizes(models) -> None:
    assert models.linear((28, 28, 1), 10).count_params() == 28 * 28 * 10 + 10
    assert models.quick_cnn((28, 28, 1), 10).count_params() == 24_282
    assert models.small_cnn((28, 28, 1), 10).count_params() == 48_106
    assert models.wide_resnet((28, 28, 1), 10).count_params() == 563_802
    assert models.assessment_cnn((32, 32, 3), 10).count_params() == 99_450


@pytest.mark.parametrize(
    ("name", "image_shape", "millions"),
    [
        ("quick_cnn", (28, 28, 1), 0.4),
        ("small_cnn", (28, 28, 1), 4.3),
        ("wide_resnet", (28, 28, 1), 4.8),
        ("assessment_cnn", (32, 32, 3), 4.0),
    ],
)
def test_multiply_adds_are_those_of_the_docstring(models, name: str, image_shape: tuple, millions: float) -> None:
    from tensorflow.keras import layers

    build = getattr(models, name)
    count = 0
    for layer in build(image_shape, 10).layers:
        if isinstance(layer, layers.Conv2D):
            count += layer.kernel.shape.num_elements() * layer.output_shape[1] * layer.output_shape[2]
        elif isinstance(layer, layers.Dense):
            count += layer.kernel.shape.num_elements()
    assert round(count / 1e6, 1) == millions
    assert f"{millions} million multiply-adds" in " ".join(build.__doc__.split())


def test_another_normalisation_takes_batch_norms_place(models) -> None:
    from tensorflow import keras

    model = models.quick_cnn((28, 28, 1), 10, normalise=lambda: keras.layers.LayerNormalization(axis=-1))
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds.count("LayerNormalization") == 3 and "BatchNormalization" not in kinds


def test_brightness_is_scaled_inside(models) -> None:
    """Bytes go in, and the weights meet -2 for black and almost 2 for white."""
    model = models.linear((4, 4, 1), 3)
    weights, bias = model.get_weights()
    for byte, value in ((0, -2), (128, 0), (255, 255 / 64 - 2)):
        expected = np.exp(value * weights.sum(0) + bias)
        probabilities = model.predict(np.full((1, 4, 4, 1), byte, np.uint8), verbose=0)[0]
        np.testing.assert_allclose(probabilities, expected / expected.sum(), rtol=1e-4)


def test_batch_norm_arrives_within_30_updates(models) -> None:
    """The moving averages are those of the data by then: test mode and training mode agree."""
    from tensorflow import keras

    keras.utils.set_random_seed(0)
    model = models.small_cnn((28, 28, 1), 10)
    x, y = shapes.draw(960, (28, 28, 1))
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=32, verbose=0)
    x = x[:256].astype(np.float32)
    difference = np.abs(model(x, training=False).numpy() - model(x, training=True).numpy())
    assert difference.mean() < 0.01  # with momentum 0.9 it is 0.04, with 0.99 it is 0.07


def test_a_small_cnn_learns(models) -> None:
    from tensorflow import keras

    keras.utils.set_random_seed(0)
    x, y = shapes.draw(512, (28, 28, 1))
    model = models.small_cnn((28, 28, 1), 10)
    model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", ["accuracy"])
    history = model.fit(x, y, batch_size=32, epochs=6, verbose=0).history
    assert history["accuracy"][-1] > 0.5 > history["accuracy"][0]


def kinds(model) -> list[str]:
    return [type(layer).__name__ for layer in model.layers]


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (16, 2)])
def test_skip_connections_are_the_only_difference(models, depth: int, width: int) -> None:
    """Same layers less the additions, same weights from the same seed, other outputs."""
    from tensorflow import keras

    networks = {}
    for skip in (True, False):
        keras.utils.set_random_seed(2)
        networks[skip] = models.wide_resnet((32, 32, 3), 10, depth=depth, width=width, skip=skip)
    blocks = (depth - 4) // 2
    assert kinds(networks[True]).count("Add") == blocks and "Add" not in kinds(networks[False])
    for network in networks.values():
        # The paper counts three projections, for which there are poolings and zeros here, and no dense layer.
        assert kinds(network).count("Conv2D") == depth - 3
        assert max(layer.filters for layer in network.layers if hasattr(layer, "filters")) == 64 * width
    with_skip, without = (networks[skip].get_weights() for skip in (True, False))
    assert len(with_skip) == len(without)
    for a, b in zip(with_skip, without):
        np.testing.assert_array_equal(a, b)
    x = shapes.draw(5, (32, 32, 3))[0].astype(np.float32)
    assert not np.allclose(networks[True](x), networks[False](x), atol=1e-3)


def test_a_block_that_computes_zero_hands_its_input_on(models) -> None:
    """With every convolution inside the blocks zero, only stem, poolings and zero channels are left."""
    from tensorflow import keras

    network = models.wide_resnet((32, 32, 3), 10, depth=10)
    convolutions = [layer for layer in network.layers if isinstance(layer, keras.layers.Conv2D)]
    for layer in convolutions[1:]:
        layer.set_weights([np.zeros_like(w) for w in layer.get_weights()])
    additions = [layer for layer in network.layers if isinstance(layer, keras.layers.Add)]
    stem = next(layer for layer in network.layers if isinstance(layer, keras.layers.MaxPooling2D))
    watch = keras.Model(network.input, [stem.output, *(layer.output for layer in additions)])
    start, *ends = (a.numpy() for a in watch(shapes.draw(3, (32, 32, 3))[0].astype(np.float32)))
    np.testing.assert_array_equal(ends[0], start)
    for before, after in zip(ends, ends[1:]):
        pooled = before.reshape(3, after.shape[1], 2, after.shape[2], 2, -1).mean((2, 4))
        np.testing.assert_allclose(after[..., : pooled.shape[-1]], pooled, rtol=1e-6)
        assert not after[..., pooled.shape[-1] :].any()


@pytest.mark.parametrize("depth", [4, 11, 20])
def test_a_depth_that_does_not_exist(models, depth: int) -> None:
    with pytest.raises(ValueError, match=rf"6 n \+ 4: 10, 16, 22, 28, …, not {depth}"):
        models.wide_resnet((28, 28, 1), 10, depth=depth)
