"""The loss around a point in weight space: slices along a few directions (Li et al., arXiv:1712.09913), and curvature.

A network's loss is a function of all its weights. What can be drawn is a slice: L(w + a d1 + b d2) for two
directions d1, d2 and a grid of steps a, b. How sharply it bends is the largest eigenvalue of its Hessian.
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
    """A random direction, filter-normalised: each of its filters is as long as the same filter of the weights.

    So a step of 1 changes every filter by its own length, whatever its scale. Without this, two networks that
    compute the same, one with larger filters in front of its batch norms, would look differently sharp.

    Args:
        weights: arrays as Keras keeps them. The last axis of a kernel counts its filters (the columns of a
            dense layer). Biases and batch norm's parameters, which have one axis, get no move.
        rng: draws the direction.
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
    """`loss(a, b)` for each a of `xs` [n] and b of `ys` [m]: an array [m, n].

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
    """The loss of a Keras model as a function of steps along directions from where it stands now.

        with landscape.along(model, [d1, d2], images, labels) as loss:
            loss(0.5, -1.0)

    The loss is the mean cross-entropy in inference mode: batch norm uses its moving averages, which don't move
    with the weights. When the block ends, however it ends, the model has its own weights again, bit for bit.

    Args:
        model: takes images and gives probabilities [n, classes].
        directions: each one array for each of the model's trainable weights, in their order.
        images, labels: what the loss is averaged over; labels are integers [n].
        batch: images evaluated at once. It bounds the memory; the loss does not depend on it.

    Raises:
        ValueError: for a direction whose arrays don't fit the weights.
    """
    import tensorflow as tf

    variables = model.trainable_variables
    shapes = [tuple(v.shape) for v in variables]
    for direction in directions:
        if [d.shape for d in direction] != shapes:
            raise ValueError("A direction needs one array for each trainable weight of the model, in its shape.")
    start = [v.numpy() for v in variables]
    # Kept as tensors, and moved inside the graph: a point of the grid copies nothing from Python.
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

    pieces = _pieces(images, labels, batch)

    def loss(*steps: float) -> float:
        if len(steps) != len(directions):
            raise TypeError(f"The loss takes one step for each direction: {len(directions)}, not {len(steps)}.")
        move(tf.constant(steps, tf.float64))
        return sum(float(total(x, y)) for x, y in pieces) / len(images)

    try:
        yield loss
    finally:
        for v, w in zip(variables, start):
            v.assign(w)


def _pieces(images: np.ndarray, labels: np.ndarray, batch: int) -> list[tuple[tf.Tensor, tf.Tensor]]:
    import tensorflow as tf

    return [
        (tf.constant(images[i : i + batch], tf.float32), tf.constant(labels[i : i + batch], tf.int32))
        for i in range(0, len(images), batch)
    ]


# Curvature


class Eigen(NamedTuple):
    """An eigenvalue, its vector [d] of length 1, and how often a product with the matrix was taken for it."""

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
    """The largest eigenvalue of a symmetric matrix of which only products with vectors are known: power iteration.

    v ← H v / ‖H v‖ turns v towards the eigenvector whose eigenvalue has the largest magnitude, and vᵀ H v is an
    estimate of it. Where that is a negative one, the iteration goes on with H moved up by its magnitude, which leaves
    the order of the eigenvalues and makes the largest the first in magnitude too.

    Args:
        product: v [size] → H v [size].
        rng: draws the first vector.
        tolerance: it ends when two estimates in turn differ by less than this share.
        limit: products at most; what there is then is returned.
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
        turned = product(v)
        before, value, products = value, float(v @ turned), products + 1
        length = np.linalg.norm(turned)
        if length == 0 or abs(value - before) < tolerance * abs(value):
            break
        v = turned / length
    return value, v, products


def hessian_product(
    model: keras.Model, images: np.ndarray, labels: np.ndarray, batch: int = 500
) -> Callable[[np.ndarray], np.ndarray]:
    """v [d] ↦ H v [d], H the Hessian of the loss that `along` slices, by all d trainable weights in a row.

    Nothing of size d × d is made. For a fixed v, ∇(vᵀ ∇L) = H v: a gradient of a gradient, at the cost of a few
    gradients (Pearlmutter 1994). The model stays as it is, and the function follows it when its weights change.

    Args:
        model: takes images and gives probabilities [n, classes].
        images, labels: what the loss is averaged over; labels are integers [n].
        batch: images at once. It bounds the memory; the product does not depend on it.
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

    pieces = _pieces(images, labels, batch)

    def product(vector: np.ndarray) -> np.ndarray:
        cut = np.split(np.asarray(vector), np.cumsum(sizes)[:-1])
        parts = [tf.reshape(tf.constant(part, v.dtype), v.shape) for part, v in zip(cut, variables)]
        products = np.zeros(sum(sizes))
        for x, y in pieces:
            products += np.concatenate([np.ravel(part) for part in total(x, y, parts)])
        return products / len(images)

    return product


def settle(model: keras.Model, images: np.ndarray) -> None:
    """Give batch norm the moving averages that belong to the model's weights: those of `images` as one batch.

    For weights that training did not arrive at, such as a mean of two networks', or where the averages of the last
    updates lag behind. The weights themselves stay.
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
