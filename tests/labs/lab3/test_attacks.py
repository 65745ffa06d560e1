"""Gradients by pixels: right, and there even where a network is sure."""

from __future__ import annotations

import numpy as np
from tensorflow import keras

from course_lib.data.splits import Part
from labs.lab3_large_batch.lessons import attacks


def network(sureness):
    keras.utils.set_random_seed(0)
    images = keras.Input((4, 4, 1))
    x = keras.layers.Dense(5, "tanh")(keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(images)))
    model = keras.Model(images, keras.layers.Dense(3, "softmax")(x))
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([sureness * kernel, bias])
    return model


def some():
    random = np.random.default_rng(0)
    return Part(random.integers(50, 200, (3, 4, 4, 1), np.uint8), np.array([0, 1, 2]))


def loss(model, images, labels):
    probabilities = model.predict_on_batch(images)
    return -np.log(probabilities[np.arange(len(labels)), labels])


def test_the_gradient_is_how_the_loss_changes_with_a_pixel():
    model, part = network(1.0), some()
    found = attacks.input_gradients(model, part)
    assert found.shape == part.images.shape
    moved = part.images.astype(np.float32)
    step = np.zeros_like(moved)
    step[:, 2, 1] = 8
    change = (loss(model, moved + step, part.labels) - loss(model, moved - step, part.labels)) / 16
    np.testing.assert_allclose(found[:, 2, 1, 0], change, rtol=0.02, atol=1e-6)


def test_a_network_that_is_sure_has_a_gradient_too():
    model, part = network(100.0), some()
    part = part._replace(labels=model.predict_on_batch(part.images).argmax(1))
    assert (loss(model, part.images, part.labels) == 0).any()  # in float32
    assert (np.abs(attacks.input_gradients(model, part)).max(axis=(1, 2, 3)) > 0).all()
