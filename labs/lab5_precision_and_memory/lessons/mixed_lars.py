"""The quick network in mixed precision, trained by LARS: tensors go through 16 bits and back, master weights do not.

Through 16 bits go the images, the kernels as they are used, the outputs of every layer, the slopes on the way back and
the gradients of the kernels. Products add up in float32. Batch norm, softmax, loss, momentum and master weights stay in
float32, as in Micikevicius et al. (arXiv:1710.03740) and Jia et al. (arXiv:1807.11205).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from course_lib import models, optimizers
from course_lib.data.splits import Part
from course_lib.optimizers import rules, schedules
from course_lib.precision import LossScale
from labs.lab5_precision_and_memory.lessons.formats_5a import BATCH, CLEAN_STEPS, EPOCHS, FIRST_SCALE

TRUST_COEFFICIENT = 0.02
EXCLUDED = ("bias", "batch_normalization")

tf.get_logger().setLevel("ERROR")  # each training compiles functions of its own, as it should

Through = Callable[[tf.Tensor], tf.Tensor]


class Way(NamedTuple):
    """The type that tensors go through (None: float32), whether the loss is scaled, and where norms are taken."""

    dtype: tf.DType | None
    scaled: bool = False
    narrow_norms: bool = False


WAYS = {
    "float32": Way(None),
    "bfloat16": Way(tf.bfloat16),
    "float16": Way(tf.float16),
    "float16, scaled loss": Way(tf.float16, scaled=True),
    "float16, norms too": Way(tf.float16, narrow_norms=True),
    "float16, scaled loss, norms too": Way(tf.float16, scaled=True, narrow_norms=True),
}


def through(dtype: tf.DType | None) -> Through:
    """What takes a tensor through `dtype` and back to float32, and its slope on the way back likewise."""
    if dtype is None:
        return tf.identity

    def cast(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(x, dtype), tf.float32)

    return tf.custom_gradient(lambda x: (cast(x), cast))


def norm_in_float16(x: tf.Tensor) -> tf.Tensor:
    """‖x‖ whose squares, and whose sum of squares, are numbers of float16."""
    cast = through(tf.float16)
    return tf.sqrt(cast(tf.reduce_sum(cast(x * x))))


def lars_with_narrow_norms(
    weights: tf.Tensor, gradient: tf.Tensor, state: rules.State, rate: tf.Tensor, optimizer: NarrowNorms, scaled: bool
) -> tuple[rules.State, tf.Tensor, tf.Tensor]:
    """As `rules.lars`, with the norms in float16: of the weights, and of the gradient times the loss's scale."""
    if not scaled:
        return state, rate, gradient
    above = optimizer.trust_coefficient * norm_in_float16(weights)
    below = norm_in_float16(gradient * optimizer.scale) / optimizer.scale
    return state, rate * rules.trust_ratio(above, below), rules.decayed(weights, gradient, optimizer.decay)


class NarrowNorms(optimizers.LARS):
    """LARS that takes its norms in float16.

    Like LARS it counts a ratio with a zero in it as 1.
    """

    rule = lars_with_narrow_norms

    def __init__(self, scale: tf.Variable, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.scale = scale


class State(NamedTuple):
    """A training after some updates."""

    updates: int
    model: keras.Model
    scale: float
    left_out: int


def scores(model: keras.Model, images: tf.Tensor, both: Through) -> tf.Tensor:
    """What stands before the softmax in training, [n, classes], all tensors through `both` on their way."""
    x = both(images)
    for layer in model.layers[1:]:
        if isinstance(layer, keras.layers.Conv2D):
            x = both(layer.convolution_op(x, both(layer.kernel)))
        elif isinstance(layer, keras.layers.Dense):
            x = both(x @ both(layer.kernel) + layer.bias)
        else:
            x = both(layer(x, training=True))
    return x


def train(
    part: Part, rate: float, seed: int, way: Way = WAYS["float32"], *, batch: int = BATCH, epochs: int = EPOCHS
) -> Iterator[State]:
    """LARS with momentum 0.9; a tenth of the updates are warm-up, then cosine decay. The state after each update.

    Args:
        rate: the largest global learning rate. seed: draws the first weights and the order of the images.
    """
    keras.utils.set_random_seed(seed)
    model, random = models.quick_cnn(part.images.shape[1:], 10), np.random.default_rng(seed)
    variables, both = model.trainable_variables, through(way.dtype)
    updates = len(part.labels) // batch * epochs
    warm_up = max(1, updates // 10)
    settings = {
        "learning_rate": schedules.cosine(rate, updates, warm_up, start=rate / warm_up),
        "trust_coefficient": TRUST_COEFFICIENT,
        "exclude": EXCLUDED,
    }
    scale = tf.Variable(1.0, trainable=False)
    optimizer = NarrowNorms(scale, **settings) if way.narrow_norms else optimizers.LARS(**settings)
    optimizer.build(variables)
    scaling = LossScale(FIRST_SCALE, CLEAN_STEPS) if way.scaled else None
    images, labels = tf.constant(part.images), tf.constant(part.labels, tf.int32)

    @tf.function
    def gradients(at: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            before = scores(model, tf.cast(tf.gather(images, at), tf.float32), both)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(labels, at), before)
            loss = scale * tf.reduce_mean(losses)
        return tape.gradient(loss, variables)

    @tf.function
    def step(slopes: list[tf.Tensor]) -> None:
        optimizer.apply_gradients((slope / scale, variable) for slope, variable in zip(slopes, variables))

    left_out = 0
    for epoch in range(epochs):
        order = random.permutation(len(part.labels)).astype(np.int32)
        for number in range(len(order) // batch):
            scale.assign(scaling.scale if scaling else 1.0)
            slopes = gradients(tf.constant(order[number * batch : (number + 1) * batch]))
            if scaling and not scaling.update([slope.numpy() for slope in slopes]):
                left_out += 1
            else:
                step(slopes)
            done = epoch * (len(order) // batch) + number + 1
            yield State(done, model, float(scale.numpy()), left_out)


def evaluate(model: keras.Model, part: Part) -> tuple[float, float]:
    """Mean loss and accuracy of `part` in float32; of weights that overflowed ∞ and 0.1."""
    if not all(np.isfinite(weights).all() for weights in model.get_weights()):
        return float("inf"), 0.1
    found = [
        model(part.images[first : first + 1_000].astype(np.float32), training=False).numpy()
        for first in range(0, len(part.labels), 1_000)
    ]
    chances = np.concatenate(found)
    right = np.maximum(chances[np.arange(len(chances)), part.labels], 1e-9)
    return float(-np.log(right).mean()), float((chances.argmax(-1) == part.labels).mean())
