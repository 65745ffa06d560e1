"""The course's networks, in Keras. They take images as `data.load` returns them: brightness from 0 to 255.

Each function returns a model that is not compiled: loss, optimizer and learning rate belong to the lesson.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow import keras

# Maps 0 ... 255 to -2 ... 2. With 0 ... 1 the first layer's variance would be about 0.001, and batch norm's moving
# variance, which starts at 1, would need many updates to approach it.
TO_UNIT_SCALE = {"scale": 1 / 64, "offset": -2}

# Keras's default of 0.99 averages over hundreds of updates. A run with a large batch makes fewer updates, and its test
# accuracy would be poor only because the moving averages lag behind. 0.8 averages over about five updates.
BATCH_NORM_MOMENTUM = 0.8


def linear(input_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """Softmax regression: [n, h, w, c] -> probabilities [n, classes]."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Rescaling(**TO_UNIT_SCALE),
            keras.layers.Flatten(),
            keras.layers.Dense(classes, activation="softmax"),
        ],
        name="linear",
    )


def small_cnn(input_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """Three convolutions, each with batch norm and pooling: [n, h, w, c] -> probabilities [n, classes].

    For [28, 28, 1] it has 48,106 weights and takes 4.3 million multiply-adds an image: one CPU core trains on
    some thousands of images a second.
    """
    images = keras.Input(input_shape)
    x = keras.layers.Rescaling(**TO_UNIT_SCALE)(images)
    for channels in (32, 48, 64):
        x = keras.layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = _batch_norm()(x)
        x = keras.layers.ReLU()(x)
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(images, keras.layers.Dense(classes, activation="softmax")(x), name="small_cnn")


def quick_cnn(
    input_shape: tuple[int, int, int], classes: int, *, normalise: Callable[[], keras.layers.Layer] | None = None
) -> keras.Model:
    """A fast network of three convolutions, the first with stride 2: [n, h, w, c] -> probabilities [n, classes].

    For [28, 28, 1] it has 24,058 weights and takes 0.4 million multiply-adds an image: one CPU core trains on some
    35,000 images a second.

    Args:
        normalise: creates the layer after each convolution; default: batch norm.
    """
    images = keras.Input(input_shape)
    x = keras.layers.Rescaling(**TO_UNIT_SCALE)(images)
    for channels, stride in ((16, 2), (32, 1), (64, 1)):
        x = keras.layers.Conv2D(channels, 3, stride, padding="same", use_bias=False)(x)
        x = (normalise or _batch_norm)()(x)
        x = keras.layers.ReLU()(x)
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(images, keras.layers.Dense(classes, activation="softmax")(x), name="quick_cnn")


def assessment_cnn(input_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """The assessment's network: four convolutions, each with pooling and batch norm: [n, h, w, c] -> [n, classes].

    For [32, 32, 3] it has 99,450 weights (0.4 MB) and takes 4.0 million multiply-adds an image: one CPU core trains
    on some 5,000 images a second. Pooling comes first, so that batch norm and ReLU process a quarter of the numbers.
    """
    images = keras.Input(input_shape)
    x = keras.layers.Rescaling(**TO_UNIT_SCALE)(images)
    for channels in (16, 32, 64, 128):
        x = keras.layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = keras.layers.MaxPooling2D(padding="same")(x)
        x = _batch_norm()(x)
        x = keras.layers.ReLU()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    classifier = keras.layers.Dense(classes, activation="softmax", dtype="float32")  # also with a mixed policy
    return keras.Model(images, classifier(x), name="assessment_cnn")


def wide_resnet(
    input_shape: tuple[int, int, int], classes: int, *, depth: int = 40, width: int = 1, skip: bool = True
) -> keras.Model:
    """A residual network of pre-activation blocks (arXiv:1605.07146): [n, h, w, c] -> probabilities [n, classes].

    As in the paper there are three groups of (depth - 4) / 6 blocks with 16, 32 and 64 times `width` channels, and
    a block is twice batch norm, ReLU, 3 × 3 convolution. Two things differ from the paper. The first convolution and a
    pooling shrink the image fourfold, so that two CPU cores can train the network. If a block changes the shape, its
    input is pooled and padded with zero channels (option A of arXiv:1512.03385), not multiplied by further weights:
    the networks with and without skip connections thus have the same weights.

    For [28, 28, 1], depth 40 and width 1 it has 563,802 weights and takes 4.8 million multiply-adds an image, few
    more than `small_cnn`; two CPU cores train on some 2,500 images a second.

    Args:
        depth: number of layers as in the paper: 6 n + 4, with n blocks in a group.
        width: factor of the channels.
        skip: if False, only the additions of the skip connections are left out.

    Raises:
        ValueError: if the depth is not 6 n + 4.
    """
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"The depth of a Wide ResNet is 6 n + 4: 10, 16, 22, 28, …, not {depth}.")
    images = keras.Input(input_shape)
    x = keras.layers.Rescaling(**TO_UNIT_SCALE)(images)
    x = _convolution(x, 16, stride=2)
    x = keras.layers.MaxPooling2D(padding="same")(x)
    for group, channels in enumerate((16 * width, 32 * width, 64 * width)):
        for block in range((depth - 4) // 6):
            stride = 2 if group > 0 and block == 0 else 1
            inside = _convolution(_activation(x), channels, stride)
            inside = _convolution(_activation(inside), channels)
            x = keras.layers.Add()([_shortcut(x, channels, stride), inside]) if skip else inside
    x = keras.layers.GlobalAveragePooling2D()(_activation(x))
    return keras.Model(images, keras.layers.Dense(classes, activation="softmax")(x), name="wide_resnet")


def _convolution(x: tf.Tensor, channels: int, stride: int = 1) -> tf.Tensor:
    return keras.layers.Conv2D(
        channels, 3, stride, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)  # fmt: skip


def _batch_norm() -> keras.layers.Layer:
    return keras.layers.BatchNormalization(momentum=BATCH_NORM_MOMENTUM)


def _activation(x: tf.Tensor) -> tf.Tensor:
    return keras.layers.ReLU()(_batch_norm()(x))


def _shortcut(x: tf.Tensor, channels: int, stride: int) -> tf.Tensor:
    """`x` in the shape of the block's output, by pooling and padding."""
    if stride > 1:
        x = keras.layers.AveragePooling2D(stride, padding="same")(x)
    return tf.pad(x, [[0, 0]] * 3 + [[0, channels - x.shape[-1]]]) if x.shape[-1] < channels else x
