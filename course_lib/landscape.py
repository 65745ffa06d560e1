"""The loss around a point in weight space, along a few directions (Li et al., arXiv:1712.09913).

A network's loss is a function of all its weights. What can be drawn is a slice: L(w + a d1 + b d2) for two
directions d1, d2 and a grid of steps a, b.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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

    pieces = [
        (tf.constant(images[i : i + batch], tf.float32), tf.constant(labels[i : i + batch], tf.int32))
        for i in range(0, len(images), batch)
    ]

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
