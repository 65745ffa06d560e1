"""LARS in mixed precision: what goes through 16 bits, and what norms in float16 do to a layer's rate."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from course_lib import models, optimizers
from course_lib.data.splits import Part
from course_lib.precision import quantise
from labs.lab5_precision_and_memory.lessons import mixed_lars

RANDOM = np.random.default_rng(0)
USUAL = (RANDOM.normal(size=10_000) * np.exp2(RANDOM.uniform(-30, 20, 10_000))).astype(np.float32)


@pytest.fixture(scope="module")
def part():
    images = np.random.default_rng(1).integers(0, 256, (128, 28, 28, 1)).astype(np.uint8)
    return Part(images, images[:, :10, 0, 0].argmax(1))


@pytest.mark.parametrize("dtype, form", [(tf.float16, (5, 10)), (tf.bfloat16, (8, 7))])
def test_a_tensor_and_its_slope_go_through_16_bits(dtype, form):
    both = mixed_lars.through(dtype)

    @tf.function
    def there_and_back(x, slope):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = both(x)
        return y, tape.gradient(y, x, output_gradients=slope)

    y, slope = there_and_back(tf.constant(USUAL), tf.constant(USUAL[::-1].copy()))
    assert np.array_equal(y, quantise(USUAL, *form)) and np.array_equal(slope, quantise(USUAL[::-1], *form))


def test_norms_in_float16_overflow_and_vanish():
    norms = [float(mixed_lars.norm_in_float16(tf.fill([4], value))) for value in (1.0, 100.0, 130.0, 300.0, 2.0**-13)]
    assert norms == [2.0, pytest.approx(200, rel=1e-3), np.inf, np.inf, 0.0]


@pytest.mark.parametrize("size, ratio", [(0.5, 0.01 * 2 / 1), (300.0, 0.0), (1e-5, 1.0)])
def test_a_layer_whose_norm_overflows_stands_still_and_one_whose_norm_vanishes_takes_the_whole_rate(size, ratio):
    weights = tf.Variable(np.ones(4, np.float32))
    optimizer = mixed_lars.NarrowNorms(tf.Variable(1.0), 0.5, momentum=0.0, trust_coefficient=0.01)
    optimizer.build([weights])
    optimizer.apply_gradients([(tf.fill([4], size), weights)])
    assert np.allclose(weights, 1 - 0.5 * ratio * size, rtol=1e-6)


def test_where_nothing_is_lost_it_is_lars():
    gradient, results = RANDOM.normal(size=50).astype(np.float32), []
    for make in (optimizers.LARS, lambda *args: mixed_lars.NarrowNorms(tf.Variable(4.0), *args)):
        weights = tf.Variable(np.linspace(-1, 1, 50, dtype=np.float32))
        optimizer = make(1.0)
        optimizer.build([weights])
        for _ in range(3):
            optimizer.apply_gradients([(tf.constant(gradient), weights)])
        results.append(weights.numpy())
    assert np.allclose(*results, rtol=1e-3) and not np.array_equal(*results)


def test_without_rounding_the_gradient_is_that_of_the_model(part):
    model = models.quick_cnn((28, 28, 1), 10)
    images, labels = part.images.astype(np.float32), part.labels
    with tf.GradientTape() as tape:
        expected = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True)))
    slopes = tape.gradient(expected, model.trainable_variables)
    with tf.GradientTape() as tape:
        scores = mixed_lars.scores(model, images, mixed_lars.through(None))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    for slope, wanted in zip(tape.gradient(loss, model.trainable_variables), slopes):
        assert np.allclose(slope, wanted, rtol=1e-3, atol=1e-5)


def ended(part, way, epochs=2):
    *_, state = mixed_lars.train(part, 1.0, 1, way, batch=32, epochs=epochs)
    return state


def test_the_scale_leaves_no_trace_and_an_overflow_leaves_steps_out(part, monkeypatch):
    plain = ended(part, mixed_lars.Way(None))
    scaled = ended(part, mixed_lars.Way(None, scaled=True))
    assert plain.updates == 8 and scaled.scale == 2.0**15 and scaled.left_out == 0
    for a, b in zip(plain.model.get_weights(), scaled.model.get_weights()):
        assert np.array_equal(a, b)
    monkeypatch.setattr(mixed_lars, "FIRST_SCALE", 2.0**20)
    high = ended(part, mixed_lars.WAYS["float16, scaled loss"])
    assert 0 < high.left_out < 8 and high.scale < 2.0**20
    assert all(np.isfinite(tensor).all() for tensor in high.model.get_weights())


def test_a_kernel_that_overflowed_guesses(part):
    model = models.quick_cnn((28, 28, 1), 10)
    model.set_weights([np.full_like(tensor, np.inf) for tensor in model.get_weights()])
    assert mixed_lars.evaluate(model, part) == (float("inf"), 0.1)


def kernels(model):
    return [variable.numpy() for variable in model.trainable_variables if "kernel" in variable.name]


@pytest.mark.parametrize("way, moves", [("float16, scaled loss", True), ("float16, scaled loss, norms too", False)])
def test_with_a_scaled_loss_and_norms_in_float16_no_kernel_moves(part, way, moves):
    keras.utils.set_random_seed(1)
    before = kernels(models.quick_cnn((28, 28, 1), 10))
    state = ended(part, mixed_lars.WAYS[way], epochs=1)
    assert state.left_out == 0  # all gradients are finite: nothing warns
    assert [not np.array_equal(a, b) for a, b in zip(before, kernels(state.model))] == [moves] * 4
