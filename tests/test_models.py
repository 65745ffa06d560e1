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
@pytest.mark.parametrize("name", ["linear", "small_cnn"])
def test_images_in_probabilities_out(models, name: str, image_shape: tuple) -> None:
    model = getattr(models, name)(image_shape, 7)
    x, _ = shapes.draw(5, image_shape)
    probabilities = model(x.astype(np.float32)).numpy()
    assert model.name == name and probabilities.shape == (5, 7)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_sizes(models) -> None:
    assert models.linear((28, 28, 1), 10).count_params() == 28 * 28 * 10 + 10
    assert models.small_cnn((28, 28, 1), 10).count_params() == 48_106


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
