"""In which direction a network's loss rises when its images change."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow import keras

from course_lib.data.splits import Part

AT_ONCE = 1_000  # images


def input_gradients(model: keras.Model, part: Part) -> np.ndarray:
    """The gradient of each image's cross-entropy by its own pixels, [n, h, w, c].

    Batch norm uses its moving averages. `model` ends in a dense layer with softmax.
    """
    inner, last = keras.Model(model.input, model.layers[-2].output), model.layers[-1]
    # In float32 an image of which the network is sure has the probability 1 and no gradient: it would seem robust.
    kernel, bias = (tf.cast(v, tf.float64) for v in (last.kernel, last.bias))

    @tf.function(reduce_retracing=True)
    def of(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(images)
            logits = tf.cast(inner(images, training=False), tf.float64) @ kernel + bias
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return tape.gradient(loss, images)

    slices = [slice(i, i + AT_ONCE) for i in range(0, len(part.labels), AT_ONCE)]
    return np.concatenate(
        [of(tf.constant(part.images[s], tf.float32), tf.constant(part.labels[s], tf.int32)).numpy() for s in slices]
    )
