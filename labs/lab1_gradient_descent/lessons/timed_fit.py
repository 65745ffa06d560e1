"""What Keras's `fit` needs so that a run can be timed: a data set that ends when it ends, and a limit in seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras


def batches(x: np.ndarray, y: np.ndarray, batch_size: int, *, shuffle: bool = True) -> tf.data.Dataset:
    """Batches of (x, y) for `fit`, in another order in each epoch; the last one may be smaller.

    Given arrays, Keras makes a data set with tf.data's autotuner. When the run is over, TensorFlow 2.15 often waits
    for the autotuner's next look, and `fit` then returns late, at worst after twice the time. This one has none.
    """
    images, labels = tf.constant(x), tf.constant(y)
    numbers = tf.data.Dataset.range(len(x))
    if shuffle:
        numbers = numbers.shuffle(len(x))
    made = numbers.batch(batch_size).map(lambda at: (tf.gather(images, at), tf.gather(labels, at))).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    return made.with_options(options)


# Notebook 1c on a quiet machine: images a second in a run of four epochs with batches of 64 (recorded/batch_size.csv),
# and the seconds of all its runs.
USUAL_RATE, USUAL_SECONDS = 4_330, 130


def expected(rate: float) -> str:
    """How long the runs of 1c take where its first run trains `rate` images a second: a sentence."""
    minutes = max(1, round(USUAL_SECONDS * USUAL_RATE / rate / 60))
    return (
        f"This machine trains {rate:,.0f} images a second; where this was written it was {USUAL_RATE:,}. So expect "
        f"about {minutes} minute{'s' * (minutes > 1)} for all runs of this notebook."
    )


class Limit(keras.callbacks.Callback):
    """Ends training with the first epoch that ends after `seconds`.

    Args:
        seconds: since training began.
        tell: called after each epoch with the share of the seconds that is over, from 0 to 1.
    """

    def __init__(self, seconds: float, tell: Callable[[float], Any] | None = None) -> None:
        super().__init__()
        self.limit, self.tell = seconds, tell

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Called by Keras."""
        self.end = time.monotonic() + self.limit

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Called by Keras."""
        left = self.end - time.monotonic()
        self.model.stop_training |= left <= 0
        if self.tell:
            self.tell(min(1.0, 1 - left / self.limit))
