"""Slices of the loss: exact where the loss is known, and the model is left as it was found."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.models import landscape

slow = pytest.mark.slow  # TensorFlow takes seconds to import


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_direction_has_the_filter_norms_of_the_weights(rng) -> None:
    kernel, dense = rng.normal(3, 2, (3, 3, 4, 5)).astype(np.float32), rng.normal(size=(7, 2)).astype(np.float32)
    direction = landscape.random_direction([kernel, np.ones(5, np.float32), dense], rng)
    for d, w in zip((direction[0], direction[2]), (kernel, dense)):
        assert d.shape == w.shape and d.dtype == w.dtype and not np.allclose(d, w)
        for number in range(w.shape[-1]):
            assert np.linalg.norm(d[..., number]) == pytest.approx(np.linalg.norm(w[..., number]), rel=1e-5)


def test_biases_and_batch_norm_get_no_move(rng) -> None:
    assert not landscape.random_direction([np.ones((2, 2)), np.ones(2)], rng)[1].any()


def test_a_filter_of_zeros_stays_zero(rng) -> None:
    kernel = np.ones((3, 3, 1, 2))
    kernel[..., 1] = 0
    (direction,) = landscape.random_direction([kernel], rng)
    assert not direction[..., 1].any() and direction[..., 0].any()


def test_directions_differ_and_repeat_with_their_seed() -> None:
    weights = [np.ones((3, 3, 4, 5))]
    rng = np.random.default_rng(3)
    (first,), (second,) = (landscape.random_direction(weights, rng) for _ in range(2))
    assert abs(np.vdot(first, second)) < 0.4 * np.vdot(first, first)  # almost orthogonal: there is much room
    np.testing.assert_array_equal(first, landscape.random_direction(weights, np.random.default_rng(3))[0])


def test_a_grid_of_a_quadratic() -> None:
    """L(w + a d1 + b d2) = ½ (w + …)ᵀ H (w + …), whose slice is a quadratic in a and b."""
    h = np.array([[3.0, 1, 0], [1, 2, 0.5], [0, 0.5, 1]])
    w, d1, d2 = np.array([1.0, -1, 2]), np.array([1.0, 0, 1]), np.array([0.0, 2, -1])

    def loss(a: float, b: float) -> float:
        v = w + a * d1 + b * d2
        return v @ h @ v / 2

    xs, ys = np.linspace(-1, 1, 5), np.linspace(-2, 2, 3)
    a, b = np.meshgrid(xs, ys)
    expected = (
        w @ h @ w / 2 + a * (d1 @ h @ w) + b * (d2 @ h @ w)
        + a**2 * (d1 @ h @ d1) / 2 + b**2 * (d2 @ h @ d2) / 2 + a * b * (d1 @ h @ d2)
    )  # fmt: skip
    np.testing.assert_allclose(landscape.grid(loss, xs, ys), expected, rtol=1e-12)


def test_progress_is_told_after_each_point() -> None:
    told = []
    landscape.grid(lambda a, b: 0.0, [0, 1, 2], [0, 1], lambda done, total: told.append((done, total)))
    assert told == [(done, 6) for done in range(1, 7)]


# The largest eigenvalue


def symmetric(rng, eigenvalues) -> np.ndarray:
    turned, _ = np.linalg.qr(rng.normal(size=(len(eigenvalues),) * 2))
    return turned @ np.diag(eigenvalues) @ turned.T


@pytest.mark.parametrize("eigenvalues", [(7.0, 3, 1, 0), (5.0, -2, -3), (2.0, 1, -9), (-1.0, -2, -8), (4.0,)])
def test_the_largest_eigenvalue_of_a_known_quadratic(rng, eigenvalues) -> None:
    """Also where one of the others has a larger magnitude, and where all are negative."""
    h = symmetric(rng, eigenvalues)
    found = landscape.largest_eigenvalue(lambda v: h @ v, len(h), rng, tolerance=1e-9)
    assert found.value == pytest.approx(max(eigenvalues), rel=1e-4)
    np.testing.assert_allclose(h @ found.vector, found.value * found.vector, atol=1e-2)
    assert np.linalg.norm(found.vector) == pytest.approx(1)


def test_a_flat_loss_has_no_curvature(rng) -> None:
    assert landscape.largest_eigenvalue(np.zeros_like, 3, rng).value == 0


def test_the_products_are_counted_and_limited(rng) -> None:
    taken = []

    def product(v: np.ndarray) -> np.ndarray:
        taken.append(v)
        return np.array([1.0, 0.999, 0.998]) * v

    found = landscape.largest_eigenvalue(product, 3, rng, tolerance=0, limit=7)
    assert found.products == len(taken) == 7
    taken.clear()
    found = landscape.largest_eigenvalue(lambda v: -product(v), 3, rng, tolerance=0, limit=7)
    assert found.products == len(taken) == 7


# With Keras


@pytest.fixture(scope="module")
def two_classes():
    """softmax([w x, -w x]) with w = 1, whose cross-entropy is ln(1 + exp(-2 w x)) for class 0."""
    from tensorflow import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2, activation="softmax", use_bias=False)])
    model.set_weights([np.array([[1.0, -1.0]], np.float32)])
    return model


def convolutional(scale: float = 1.0):
    """A small network whose filters before the batch norm are `scale` times as large, and which computes the same."""
    from tensorflow import keras

    keras.utils.set_random_seed(4)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(4, 3, use_bias=False),
            layers.BatchNormalization(epsilon=1e-12),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    x = np.random.default_rng(0).normal(size=(30, 6, 6, 1)).astype(np.float32)
    convolution, norm = model.layers[:2]
    out = convolution(x).numpy()
    convolution.set_weights([scale * w for w in convolution.get_weights()])
    gamma, beta, _, _ = norm.get_weights()
    norm.set_weights([gamma, beta, scale * out.mean((0, 1, 2)), scale**2 * out.var((0, 1, 2))])
    return model, x, np.arange(30) % 3


def directions(model, seed: int = 0) -> list[landscape.Direction]:
    rng = np.random.default_rng(seed)
    return [landscape.random_direction([v.numpy() for v in model.trainable_variables], rng) for _ in range(2)]


@slow
def test_the_loss_along_a_direction_is_the_known_one(two_classes) -> None:
    x = np.array([[0.5], [1.0], [-2.0]], np.float32)
    direction = [np.array([[1.0, -1.0]], np.float32)]
    with landscape.along(two_classes, [direction], x, np.zeros(3, int)) as loss:
        for step in (0.0, 0.5, -3.0, 40.0):  # far out too, where the probabilities are 0 in float32
            assert loss(step) == pytest.approx(np.mean(np.logaddexp(0, -2 * (1 + step) * x)), rel=1e-5)


@slow
def test_without_directions_it_is_the_loss_that_keras_evaluates() -> None:
    model, x, y = convolutional()
    model.compile(loss="sparse_categorical_crossentropy")
    with landscape.along(model, [], x, y, batch=7) as loss:
        assert loss() == pytest.approx(model.evaluate(x, y, verbose=0), rel=1e-5)


@slow
@pytest.mark.parametrize("how", [None, ZeroDivisionError, KeyboardInterrupt])
def test_the_weights_are_restored_bit_for_bit(how) -> None:
    model, x, y = convolutional()
    before = model.get_weights()
    try:
        with landscape.along(model, directions(model), x, y) as loss:
            loss(0.3, -0.7)
            assert any((a != b).any() for a, b in zip(model.get_weights(), before))
            if how:
                raise how
    except (ZeroDivisionError, KeyboardInterrupt):
        pass
    for a, b in zip(model.get_weights(), before):
        np.testing.assert_array_equal(a, b)


@slow
def test_scaling_filters_before_a_batch_norm_leaves_the_slice_unchanged() -> None:
    slices = []
    for scale in (1.0, 2.0):
        model, x, y = convolutional(scale)
        with landscape.along(model, directions(model), x, y) as loss:
            slices.append(landscape.grid(loss, [-1, 0, 0.5], [-0.5, 0, 1]))
    np.testing.assert_allclose(slices[1], slices[0], rtol=1e-5)


@slow
def test_the_batch_does_not_matter() -> None:
    model, x, y = convolutional()
    values = []
    for batch in (4, 30, 500):
        with landscape.along(model, directions(model), x, y, batch=batch) as loss:
            values.append(loss(0.4, 0.2))
    np.testing.assert_allclose(values, values[0], rtol=1e-5)


@slow
def test_a_direction_that_does_not_fit_is_refused(two_classes) -> None:
    wrong = [[np.zeros((2, 1))]]
    with (
        pytest.raises(ValueError, match="one array for each trainable weight"),
        landscape.along(two_classes, wrong, np.ones((1, 1)), np.zeros(1, int)),
    ):
        pass


@slow
def test_as_many_steps_as_directions(two_classes) -> None:
    direction = [np.ones((1, 2), np.float32)]
    with (
        landscape.along(two_classes, [direction], np.ones((1, 1)), np.zeros(1, int)) as loss,
        pytest.raises(TypeError, match="one step for each direction: 1, not 2"),
    ):
        loss(0.1, 0.2)


def dense_hessian(model, x, y) -> np.ndarray:
    """The Hessian [d, d] from central differences of gradients, in float64."""
    import tensorflow as tf

    sizes = [int(np.prod(v.shape)) for v in model.trainable_variables]
    start = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])

    def gradient(w: np.ndarray) -> np.ndarray:
        for v, part in zip(model.trainable_variables, np.split(w, np.cumsum(sizes)[:-1])):
            v.assign(part.reshape(v.shape))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(y, model(x, training=False)))
        return np.concatenate([g.numpy().ravel() for g in tape.gradient(loss, model.trainable_variables)])

    step = 1e-5 * np.eye(len(start))
    columns = [(gradient(start + e) - gradient(start - e)) / 2e-5 for e in step]
    gradient(start)
    return np.array(columns)


@pytest.fixture(scope="module")
def tiny():
    """A network of 94 weights in float64, convolution, batch norm and pooling included, with its images."""
    from tensorflow import keras

    keras.utils.set_random_seed(5)
    layers, dtype = keras.layers, "float64"
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1), dtype=dtype),
            layers.Conv2D(3, 3, use_bias=False, dtype=dtype),
            layers.BatchNormalization(dtype=dtype),
            layers.Activation("tanh", dtype=dtype),
            layers.MaxPooling2D(dtype=dtype),
            layers.Flatten(dtype=dtype),
            layers.Dense(4, dtype=dtype),
            layers.Dense(3, activation="softmax", dtype=dtype),
        ]
    )
    rng = np.random.default_rng(0)
    return model, rng.normal(size=(20, 6, 6, 1)), rng.integers(0, 3, 20)


@slow
def test_products_and_eigenvalue_are_those_of_the_dense_hessian(tiny, rng) -> None:
    model, x, y = tiny
    h = dense_hessian(model, x, y)
    before = model.get_weights()
    product = landscape.hessian_product(model, x, y, batch=7)
    for v in rng.normal(size=(3, len(h))):
        # Images come in float32, as everywhere in the course.
        np.testing.assert_allclose(product(v), h @ v, rtol=1e-4, atol=1e-5)
    found = landscape.largest_eigenvalue(product, len(h), rng, tolerance=1e-7)
    assert found.value == pytest.approx(np.linalg.eigvalsh(h).max(), rel=1e-4)
    for a, b in zip(model.get_weights(), before):
        np.testing.assert_array_equal(a, b)


@slow
def test_the_product_follows_the_weights(two_classes) -> None:
    """Of ln(1 + exp(-2 w x)), with the weights (w, -w): the second derivative along (1, -1)/√2 is 2 x² p (1 − p)."""
    x = np.array([[0.5], [1.0]], np.float32)
    product = landscape.hessian_product(two_classes, x, np.zeros(2, int))
    v = np.array([1.0, -1.0]) / np.sqrt(2)
    start = two_classes.get_weights()
    try:
        for w in (1.0, 3.0):
            two_classes.set_weights([np.array([[w, -w]], np.float32)])
            p = 1 / (1 + np.exp(-2 * w * x))
            assert v @ product(v) == pytest.approx(np.mean(2 * x**2 * p * (1 - p)), rel=1e-4)
    finally:
        two_classes.set_weights(start)


@slow
def test_scaling_filters_before_a_batch_norm_changes_the_sharpness() -> None:
    """The function is the same, the eigenvalue is not (Dinh et al. 2017): larger filters look flatter."""
    found = []
    for scale in (1.0, 2.0, 4.0):
        model, x, y = convolutional(scale)
        product = landscape.hessian_product(model, x, y)
        kernel = model.trainable_variables[0].shape.num_elements()
        v = np.zeros(sum(v.shape.num_elements() for v in model.trainable_variables))
        v[:kernel] = np.random.default_rng(1).normal(size=kernel)
        found.append(v @ product(v))
    np.testing.assert_allclose(found, found[0] / np.array([1, 4, 16]), rtol=1e-3)


@slow
def test_settled_averages_are_those_of_the_images(rng) -> None:
    model, x, _ = convolutional()
    norm = model.layers[1]
    gamma, beta, mean, variance = norm.get_weights()
    norm.set_weights([gamma, beta, 0 * mean + 9, 0 * variance + 9])
    landscape.settle(model, x)
    np.testing.assert_allclose(norm.moving_mean, mean, atol=1e-5)
    np.testing.assert_allclose(norm.moving_variance, variance, rtol=1e-2)  # over n or over n − 1
    assert norm.momentum == 0.99
