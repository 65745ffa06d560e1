"""The noise in stochastic gradients: how large it is, and how to keep it when the batch grows.

g_n is the gradient of example n, G their mean over all examples, C their covariance. A batch of m examples drawn at
random has a gradient with mean G and covariance C / m.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tensorflow import keras


def multiplicative(batch: int, base: int, rng: np.random.Generator) -> np.ndarray:
    """Weights z [batch] for the examples of a batch, so that its gradient is as noisy as that of `base` examples.

    The gradient becomes (1/M) Σ g_n z_n with z_n ~ N(1, σ²) (Hoffer et al. 2017, arXiv:1705.08741). Its mean stays G;
    its covariance is ((1 + σ²) C + σ² G Gᵀ) / M. With σ² = M / base − 1, which grows as M does, the first term is
    C / base; the second is small where the gradients of single examples are much larger than their mean. In Keras,
    pass the weights as `sample_weight`.

    Raises:
        ValueError: where the batch is smaller than `base`: noise can be added only.
    """
    if batch < base:
        raise ValueError(f"A batch of {batch} is noisier than one of {base} already.")
    return rng.normal(1.0, np.sqrt(batch / base - 1), batch)


def of_examples(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The gradients g_n [n, d] of the cross-entropy of single examples, over all trainable variables of `model`.

    Batch norm uses its moving averages, or an example would have no gradient of its own. About a millisecond each.

    Args:
        images: uint8 [n, h, w, c]. labels: int [n].
    """
    import tensorflow as tf
    from tensorflow import keras

    variables = model.trainable_variables

    def one(example: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, label = example
        with tf.GradientTape() as tape:
            predicted = model(tf.cast(image, tf.float32)[None], training=False)
            loss = tf.reduce_sum(keras.losses.sparse_categorical_crossentropy(label[None], predicted))
        return tf.concat([tf.reshape(slope, [-1]) for slope in tape.gradient(loss, variables)], 0)

    @tf.function
    def all_of_them(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(one, (images, labels), fn_output_signature=tf.float32)

    return all_of_them(tf.constant(images), tf.constant(labels, tf.int32)).numpy()


def of_batches(gradients: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The gradients (1/M) Σ g_n z_n of many batches: [batches, d].

    Args:
        gradients: g_n of all examples [n, d].
        rows: the numbers of the examples in each batch [batches, M].
        weights: their z [batches, M].
    """
    shares = [np.bincount(at, z, minlength=len(gradients)) for at, z in zip(rows, weights)]
    return np.array(shares, gradients.dtype) @ gradients / rows.shape[1]


def noise_scale(squares: Sequence[float], batches: Sequence[int]) -> float:
    """The simple noise scale tr(C) / |G|², in examples (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1).

    A batch of this size has as much noise as signal. E|g|² = |G|² + tr(C) / m for a batch of m, so the mean
    squared norms at two batch sizes give both.

    Args:
        squares: mean of |g|² over many batches, for the small and the large batch size. On N ranks these come
            for free: from the gradients before and after the all-reduce.
        batches: the two batch sizes, small and large.

    Raises:
        ValueError: where the estimate of |G|² is not positive: average over more batches.
    """
    (small, large), (little, much) = batches, squares
    signal = (large * much - small * little) / (large - small)
    noise = (little - much) / (1 / small - 1 / large)
    if signal <= 0:
        raise ValueError("The noise hides the gradient: average the squared norms over more batches, or larger ones.")
    return noise / signal
