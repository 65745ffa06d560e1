"""The course's networks, in Keras. They take images as `data.load` returns them: brightness from 0 to 255.

Each function returns a model that is not compiled: loss, optimizer and learning rate belong to the lesson.
"""

from __future__ import annotations

from tensorflow import keras
from tensorflow.keras import layers

# 0 ... 255 becomes -2 ... 2. With 0 ... 1 the first layer's variance is about 0.001, and batch norm's moving
# variance, which starts at 1, needs many updates to come down to it.
TO_UNIT_SCALE = {"scale": 1 / 64, "offset": -2}

# Keras's own 0.99 averages over hundreds of updates. A run with a large batch makes fewer, and its test
# accuracy then looks poor only because the moving averages have not arrived. 0.8 averages over about five.
BATCH_NORM_MOMENTUM = 0.8


def linear(input_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """Softmax regression: [n, h, w, c] -> probabilities [n, classes]."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Rescaling(**TO_UNIT_SCALE),
            layers.Flatten(),
            layers.Dense(classes, activation="softmax"),
        ],
        name="linear",
    )


def small_cnn(input_shape: tuple[int, int, int], classes: int) -> keras.Model:
    """Three convolutions, each with batch norm and pooling: [n, h, w, c] -> probabilities [n, classes].

    For [28, 28, 1] it has 48,106 weights and takes 4.3 million multiply-adds an image: one CPU core trains on
    some thousands of images a second.
    """
    images = keras.Input(input_shape)
    x = layers.Rescaling(**TO_UNIT_SCALE)(images)
    for channels in (32, 48, 64):
        x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=BATCH_NORM_MOMENTUM)(x)
        x = layers.ReLU()(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    return keras.Model(images, layers.Dense(classes, activation="softmax")(x), name="small_cnn")
