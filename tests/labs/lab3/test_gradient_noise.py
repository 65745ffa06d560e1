"""Gradient noise: the formulas against many draws."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab3_large_batch.lessons.gradient_noise import multiplicative, noise_scale, of_batches, of_examples


@pytest.fixture
def gradients():
    """Of 500 examples, in 3 dimensions."""
    random = np.random.default_rng(0)
    return random.normal([0.3, -0.1, 0.2], [1.0, 2.0, 0.5], (500, 3))


def drawn(gradients, batch, weights=None, draws=40_000):
    """Gradients of so many batches [draws, 3], the examples weighted by weights()."""
    random = np.random.default_rng(1)
    made = []
    for _ in range(draws // 1000):
        chosen = gradients[random.integers(len(gradients), size=(1000, batch))]
        z = 1 if weights is None else np.stack([weights() for _ in range(1000)])[:, :, None]
        made.append((chosen * z).mean(1))
    return np.concatenate(made)


def covariance(gradients, batch, sigma=0.0):
    """That of a batch's gradient [3, 3], the examples drawn with replacement and weighted by z ~ N(1, sigma²)."""
    mean = gradients.mean(0)
    spread = (gradients - mean).T @ (gradients - mean) / len(gradients)
    return ((1 + sigma**2) * spread + sigma**2 * np.outer(mean, mean)) / batch


def test_the_covariance_is_that_of_many_batches(gradients):
    measured = np.cov(drawn(gradients, 8).T)
    np.testing.assert_allclose(measured, covariance(gradients, 8), atol=0.01)


def test_multiplicative_noise_keeps_mean_and_covariance_of_the_small_batch(gradients):
    random = np.random.default_rng(2)
    noisy = drawn(gradients, 32, lambda: multiplicative(32, 8, random))
    np.testing.assert_allclose(noisy.mean(0), gradients.mean(0), atol=0.01)
    np.testing.assert_allclose(np.cov(noisy.T), covariance(gradients, 32, sigma=np.sqrt(3)), atol=0.01)
    # What is left between it and the small batch is the G Gᵀ of the docstring.
    left = covariance(gradients, 32, sigma=np.sqrt(3)) - covariance(gradients, 8)
    np.testing.assert_allclose(left, 3 / 32 * np.outer(gradients.mean(0), gradients.mean(0)), atol=1e-12)


def test_weights_have_mean_one_and_a_variance_that_grows_with_the_batch():
    z = multiplicative(100_000, 25_000, np.random.default_rng(0))
    assert z.shape == (100_000,)
    assert z.mean() == pytest.approx(1, abs=0.02)
    assert z.var() == pytest.approx(3, rel=0.02)
    assert (multiplicative(64, 64, np.random.default_rng(0)) == 1).all()


def test_noise_can_only_be_added():
    with pytest.raises(ValueError, match="noisier than one of 64"):
        multiplicative(32, 64, np.random.default_rng(0))


def test_noise_scale_from_two_batch_sizes(gradients):
    squares = [np.sum(drawn(gradients, batch, draws=100_000) ** 2, axis=1).mean() for batch in (4, 64)]
    mean = gradients.mean(0)
    true = np.trace(covariance(gradients, 1)) / (mean @ mean)
    assert noise_scale(squares, (4, 64)) == pytest.approx(true, rel=0.1)


def test_noise_scale_is_exact_for_exact_norms():
    signal, noise = 2.0, 300.0
    assert noise_scale([signal + noise / m for m in (8, 512)], (8, 512)) == pytest.approx(150)


def test_a_gradient_hidden_by_noise_is_an_error():
    with pytest.raises(ValueError, match="average"):
        noise_scale([1.0, 0.01], (10, 100))


def test_gradients_of_batches_are_weighted_means_of_those_of_examples():
    gradients = np.arange(12.0).reshape(4, 3)
    rows, weights = np.array([[0, 1], [3, 3]]), np.array([[1.0, 1.0], [2.0, -1.0]])
    expected = [(gradients[0] + gradients[1]) / 2, gradients[3] / 2]
    np.testing.assert_allclose(of_batches(gradients, rows, weights), expected)


def test_gradients_of_examples_have_the_gradient_of_all_as_their_mean():
    import tensorflow as tf
    from tensorflow import keras

    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (6, 4, 4, 1)).astype(np.uint8), np.array([0, 1, 2, 0, 1, 2])
    model = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(3, "softmax"),
        ]
    )
    each = of_examples(model, images, labels)
    assert each.shape == (6, sum(np.prod(v.shape) for v in model.trainable_variables))
    with tf.GradientTape() as tape:
        predicted = model(images.astype(np.float32))
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, predicted))
    whole = np.concatenate([slope.numpy().ravel() for slope in tape.gradient(loss, model.trainable_variables)])
    np.testing.assert_allclose(each.mean(0), whole, atol=1e-6)
