"""The loss around a point in weight space: slices along a few directions (Li et al., arXiv:1712.09913), and curvature.

A network's loss is a function of all its weights. A figure shows a slice of it: L(w + a d1 + b d2) for two directions
d1, d2 and a grid of steps a, b. The largest eigenvalue of the Hessian measures the sharpness.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow import keras

Direction = list[np.ndarray]


def random_direction(weights: Sequence[np.ndarray], rng: np.random.Generator) -> Direction:
    """A random filter-normalised direction: each filter has the norm of the same filter of the weights.

    A step of 1 thus changes every filter by its own norm. Without the normalisation, two networks that compute the
    same function, but differ in the scale of the filters before a batch norm, would seem to differ in sharpness.

    Args:
        weights: arrays in Keras's layout. The last axis of a kernel counts its filters (the columns of a dense
            layer). The direction is 0 for arrays with one axis: biases, batch norm's parameters.
        rng: draws the direction.

    Returns:
        Arrays of the shapes of `weights`.
    """
    direction = []
    for w in weights:
        d = rng.standard_normal(w.shape).astype(w.dtype) if w.ndim > 1 else np.zeros_like(w)
        if w.ndim > 1:
            d *= filter_norms(w) / filter_norms(d)
        direction.append(d)
    return direction


def filter_norms(w: np.ndarray) -> np.ndarray:
    """The Euclidean norm of each filter of a kernel: [..., filters] -> [filters]."""
    return np.sqrt(np.sum(np.square(w, dtype=float), axis=tuple(range(w.ndim - 1)))).astype(w.dtype)


def grid(
    loss: Callable[[float, float], float],
    xs: Sequence[float],
    ys: Sequence[float],
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Evaluate `loss(a, b)` for each a in `xs` [n] and b in `ys` [m]; return an array [m, n].

    Args:
        loss: for example the function that `along` yields for two directions.
        xs, ys: steps along the first and the second direction.
        progress: called after each point with the number of points done and their total.
    """
    losses = np.empty((len(ys), len(xs)))
    for done in range(losses.size):
        row, column = divmod(done, len(xs))
        losses[row, column] = loss(xs[column], ys[row])
        if progress:
            progress(done + 1, losses.size)
    return losses


@contextlib.contextmanager
def along(
    model: keras.Model, directions: Sequence[Direction], images: np.ndarray, labels: np.ndarray, batch: int = 500
) -> Iterator[Callable[..., float]]:
    """The loss of a Keras model as a function of steps along directions from its current weights.

        with landscape.along(model, [d1, d2], images, labels) as loss:
            loss(0.5, -1.0)

    The loss is the mean cross-entropy in inference mode: batch norm uses its moving averages, which stay as they are.
    At the end of the block, also after an error, the model has its original weights, bit for bit.

    Args:
        model: maps images to probabilities [n, classes].
        directions: each has one array for each trainable weight of the model, in the model's order.
        images, labels: the loss is averaged over them; labels are integers [n].
        batch: images evaluated at once. It limits the memory; the loss does not depend on it.

    Yields:
        loss(*steps): a function of one step for each direction.

    Raises:
        ValueError: if the shapes of a direction differ from those of the weights.
    """
    import tensorflow as tf

    variables = model.trainable_variables
    shapes = [tuple(v.shape) for v in variables]
    for direction in directions:
        if [d.shape for d in direction] != shapes:
            raise ValueError("A direction needs one array for each trainable weight of the model, in its shape.")
    start = [v.numpy() for v in variables]
    # Tensors, so that the graph moves the weights: a point of the grid copies no weights from Python.
    origin = [tf.constant(w) for w in start]
    moves = [
        [(k, tf.constant(d[i], v.dtype)) for k, d in enumerate(directions) if d[i].any()]
        for i, v in enumerate(variables)
    ]

    @tf.function
    def move(steps: tf.Tensor) -> None:
        for v, w, parts in zip(variables, origin, moves):
            if parts:
                v.assign(w + tf.add_n([tf.cast(steps[k], v.dtype) * d for k, d in parts]))

    @tf.function(reduce_retracing=True)
    def total(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.keras.losses.sparse_categorical_crossentropy(y, model(x, training=False)))

    batches = _batches(images, labels, batch)

    def loss(*steps: float) -> float:
        if len(steps) != len(directions):
            raise TypeError(f"The loss takes one step for each direction: {len(directions)}, not {len(steps)}.")
        move(tf.constant(steps, tf.float64))
        return sum(float(total(x, y)) for x, y in batches) / len(images)

    try:
        yield loss
    finally:
        for v, w in zip(variables, start):
            v.assign(w)


def _batches(images: np.ndarray, labels: np.ndarray, batch: int) -> list[tuple[tf.Tensor, tf.Tensor]]:
    import tensorflow as tf

    return [
        (tf.constant(images[i : i + batch], tf.float32), tf.constant(labels[i : i + batch], tf.int32))
        for i in range(0, len(images), batch)
    ]


# Curvature


class Eigen(NamedTuple):
    """An eigenvalue, its eigenvector [d] of norm 1, and the number of matrix-vector products that were needed."""

    value: float
    vector: np.ndarray
    products: int


def largest_eigenvalue(
    product: Callable[[np.ndarray], np.ndarray],
    size: int,
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-3,
    limit: int = 200,
) -> Eigen:
    """The largest eigenvalue of a symmetric matrix, by power iteration on matrix-vector products.

    v ← H v / ‖H v‖ converges to the eigenvector whose eigenvalue has the largest magnitude, and vᵀ H v estimates that
    eigenvalue λ. If λ is negative, the iteration is repeated with H + |λ| I: the order of the eigenvalues stays the
    same, and the largest eigenvalue also has the largest magnitude.

    Args:
        product: v [size] → H v [size].
        size: rows of H.
        rng: draws the first vector.
        tolerance: stop when two successive estimates differ by less than this fraction.
        limit: maximum number of products; the estimate at that point is returned.
    """
    value, vector, products = _iterate(product, rng.standard_normal(size), tolerance, limit)
    if value < 0 and products < limit:
        shift = -value
        value, vector, more = _iterate(
            lambda v: product(v) + shift * v, rng.standard_normal(size), tolerance, limit - products
        )  # fmt: skip
        value, products = value - shift, products + more
    return Eigen(value, vector, products)


def _iterate(
    product: Callable[[np.ndarray], np.ndarray], v: np.ndarray, tolerance: float, limit: int
) -> tuple[float, np.ndarray, int]:
    value, products = 0.0, 0
    v = v / np.linalg.norm(v)
    while products < max(limit, 1):
        hv = product(v)
        before, value, products = value, float(v @ hv), products + 1
        length = np.linalg.norm(hv)
        if length == 0 or abs(value - before) < tolerance * abs(value):
            break
        v = hv / length
    return value, v, products


def hessian_product(
    model: keras.Model, images: np.ndarray, labels: np.ndarray, batch: int = 500
) -> Callable[[np.ndarray], np.ndarray]:
    """A function v [d] → H v [d], with H the Hessian of the loss in `along` by all d trainable weights.

    The d × d matrix is never computed. For a fixed v, ∇(vᵀ ∇L) = H v: a gradient of a gradient, at the cost of a few
    gradients (Pearlmutter 1994). The function uses the model's weights at the time of the call, and does not change
    them.

    Args:
        model: maps images to probabilities [n, classes].
        images, labels: the loss is averaged over them; labels are integers [n].
        batch: images evaluated at once. It limits the memory; the product does not depend on it.
    """
    import tensorflow as tf

    variables = model.trainable_variables
    sizes = [int(np.prod(v.shape)) for v in variables]

    @tf.function(reduce_retracing=True)
    def total(x: tf.Tensor, y: tf.Tensor, parts: list[tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(tf.keras.losses.sparse_categorical_crossentropy(y, model(x, training=False)))
            slopes = inner.gradient(loss, variables)
            along = tf.add_n([tf.reduce_sum(g * part) for g, part in zip(slopes, parts)])
        return outer.gradient(along, variables, unconnected_gradients="zero")

    batches = _batches(images, labels, batch)

    def product(vector: np.ndarray) -> np.ndarray:
        cut = np.split(np.asarray(vector), np.cumsum(sizes)[:-1])
        parts = [tf.reshape(tf.constant(part, v.dtype), v.shape) for part, v in zip(cut, variables)]
        products = np.zeros(sum(sizes))
        for x, y in batches:
            products += np.concatenate([np.ravel(part) for part in total(x, y, parts)])
        return products / len(images)

    return product


def settle(model: keras.Model, images: np.ndarray) -> None:
    """Set batch norm's moving averages to the statistics of `images` [n, h, w, c] as one batch.

    For weights that are not the result of training, such as the mean of two networks, or if the moving averages lag
    behind the last updates. The weights stay the same.
    """
    layers = [layer for layer in model.layers if hasattr(layer, "moving_mean")]
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        model(images.astype(np.float32), training=True)
    finally:
        for layer, momentum in zip(layers, momenta):
            layer.momentum = momentum
