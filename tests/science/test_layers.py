"""Ghost batch norm against Keras's batch norm on each ghost batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from course_lib.models.layers import GhostBatchNormalization

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(3, 2, (12, 4, 4, 5)).astype(np.float32)
ROWS = RANDOM.normal(3, 2, (12, 5)).astype(np.float32)


@pytest.mark.parametrize("x", [IMAGES, ROWS], ids=["images", "rows"])
@pytest.mark.parametrize(("size", "ghost", "ends"), [(12, 4, (0, 4, 8, 12)), (11, 4, (0, 4, 11)), (3, 4, (0, 3))])
def test_each_ghost_batch_is_normalised_as_batch_norm_would(x, size, ghost, ends):
    layer, whole = GhostBatchNormalization(ghost), keras.layers.BatchNormalization()
    got = layer(x[:size], training=True)
    parts = [whole(x[start:end], training=True) for start, end in zip(ends, ends[1:])]
    np.testing.assert_allclose(got, np.concatenate(parts), atol=2e-5)


def test_a_ghost_batch_as_large_as_the_batch_is_batch_norm():
    ours, keras_s = GhostBatchNormalization(12, momentum=0.8), keras.layers.BatchNormalization(momentum=0.8)
    for training in (True, False):
        np.testing.assert_allclose(ours(ROWS, training=training), keras_s(ROWS, training=training), atol=2e-5)
    np.testing.assert_allclose(ours.moving_mean, keras_s.moving_mean, rtol=1e-5)
    np.testing.assert_allclose(ours.moving_variance, keras_s.moving_variance, rtol=1e-5)


def test_moving_averages_follow_the_mean_of_the_ghost_batches():
    layer = GhostBatchNormalization(4, momentum=0.9)
    layer(ROWS, training=True)
    parts = ROWS.reshape(3, 4, 5)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * parts.mean(1).mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * parts.var(1).mean(0), rtol=1e-5)


def test_gradients_are_those_of_the_ghost_batches():
    layer, whole = GhostBatchNormalization(4), keras.layers.BatchNormalization()
    target = RANDOM.normal(size=ROWS.shape).astype(np.float32)
    x = tf.constant(ROWS)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        got = tf.reduce_sum(layer(x, training=True) * target)
        expected = tf.reduce_sum(tf.concat([whole(part, training=True) for part in tf.split(x, 3)], 0) * target)
    np.testing.assert_allclose(tape.gradient(got, x), tape.gradient(expected, x), atol=2e-5)
    np.testing.assert_allclose(tape.gradient(got, layer.gamma), tape.gradient(expected, whole.gamma), rtol=1e-4)


def test_a_frozen_layer_keeps_its_statistics():
    layer = GhostBatchNormalization(4)
    layer.build(ROWS.shape)
    layer.trainable = False
    layer(ROWS, training=True)
    assert not np.any(layer.moving_mean)


def test_it_is_saved_and_loaded_with_a_model(tmp_path):
    model = keras.Sequential([keras.Input((5,)), GhostBatchNormalization(4, momentum=0.8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(ROWS, ROWS[:, :1], batch_size=12, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.layers[0].get_config()["ghost"] == 4
    np.testing.assert_array_equal(again(ROWS), model(ROWS))


def test_one_example_has_no_variance():
    with pytest.raises(ValueError, match="at least 2 examples"):
        GhostBatchNormalization(1)
