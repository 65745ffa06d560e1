"""Learning rates for large batches: scaling rules, gradual warm-up, LEGW, batch growth instead of decay.

η (`eta`) is the learning rate tuned for a batch of `base` examples, B (`batch`) the batch size of the training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

import tensorflow as tf
from tensorflow import keras

Rate = Union[float, keras.optimizers.schedules.LearningRateSchedule]


def linear_scaling(eta: float, batch: int, base: int) -> float:
    """η B / base: one step replaces B / base small steps (Krizhevsky 2014; Goyal et al. 2017, arXiv:1706.02677)."""
    return eta * batch / base


def sqrt_scaling(eta: float, batch: int, base: int) -> float:
    """η √(B / base): the covariance of the step stays the same (Krizhevsky 2014, arXiv:1404.5997)."""
    return eta * math.sqrt(batch / base)


def legw(eta: float, epochs: float, batch: int, base: int) -> tuple[float, float]:
    """Learning rate and warm-up for a batch of B (linear-epoch gradual warm-up, LEGW, arXiv:1901.08256).

    The rate grows with the square root of the batch, the epochs of warm-up in proportion to it: the number of warm-up
    updates stays the same.

    Args:
        epochs: epochs of warm-up tuned for `base`; may be a fraction.

    Returns:
        The learning rate, and the epochs of warm-up.
    """
    return sqrt_scaling(eta, batch, base), epochs * batch / base


@keras.saving.register_keras_serializable("course_lib")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Gradual warm-up: the rate grows linearly from `start` to the peak (Goyal et al. 2017, arXiv:1706.02677).

    Update t = 0, 1, … has the rate start + (peak − start) t / steps while t < steps, then that of `after`.

    Args:
        after: the rate after the warm-up, a number or a schedule. The schedule counts updates from the end of the
            warm-up; its first rate is the peak.
        steps: updates of warm-up, at least 1.
        start: the rate of the first update.

    Raises:
        ValueError: for fewer than 1 update.
    """

    def __init__(self, after: Rate, steps: int, start: float = 0.0) -> None:
        if steps < 1:
            raise ValueError(f"A warm-up takes at least 1 update, not {steps}.")
        self.after, self.steps, self.start = after, steps, start

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of update `step`, which counts from 0."""
        done = tf.cast(step, tf.float32) / self.steps
        ramp = self.start + (self._rate_after(0) - self.start) * done
        return tf.where(done < 1, ramp, self._rate_after(tf.maximum(tf.cast(step, tf.float32) - self.steps, 0)))

    def _rate_after(self, step: tf.Tensor | int) -> tf.Tensor:
        return tf.cast(self.after(step) if callable(self.after) else self.after, tf.float32)

    def get_config(self) -> dict[str, Any]:
        """All arguments; Horovod creates its distributed optimizer from them."""
        after = keras.optimizers.schedules.serialize(self.after) if callable(self.after) else self.after
        return {"after": after, "steps": self.steps, "start": self.start}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WarmUp:
        """The schedule with these arguments."""
        after = config["after"]
        if isinstance(after, dict):
            after = keras.optimizers.schedules.deserialize(after)
        return cls(**{**config, "after": after})


def cosine(
    peak: float, updates: int, warm_up: int = 0, start: float = 0.0
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Cosine decay with warm-up (Loshchilov and Hutter 2017, arXiv:1608.03983).

    Args:
        peak: the rate after the warm-up.
        updates: of the whole training; after the last one the rate is 0.
        warm_up: updates of linear warm-up, part of `updates`.
        start: the rate of the first update, if there is a warm-up.
    """
    decay = keras.optimizers.schedules.CosineDecay(peak, updates - warm_up)
    return WarmUp(decay, warm_up, start) if warm_up else decay


class Stage(NamedTuple):
    """The batch size and the learning rate `eta` from an epoch on."""

    epoch: int
    batch: int
    eta: float


def growth(eta: float, batch: int, milestones: Sequence[int], factor: int, largest: int) -> list[Stage]:
    """Multiply the batch size by `factor` at each milestone, instead of dividing the learning rate by it.

    The noise of the updates is proportional to η / B, which falls by `factor` either way (Smith et al. 2017,
    arXiv:1711.00489). At the batch size `largest`, the remaining factor divides the learning rate.

    Args:
        eta, batch: learning rate and batch size of the first stage.
        milestones: epochs.
        largest: maximum batch size; `largest=batch` decays the learning rate only.

    Returns:
        The first stage, then one for each milestone.
    """
    stages = [Stage(0, batch, eta)]
    for epoch in milestones:
        grown = min(batch * factor, largest)
        eta, batch = eta * grown / batch / factor, grown
        stages.append(Stage(epoch, batch, eta))
    return stages
