"""Learning rates for large batches: scaling rules, gradual warm-up, LEGW, growing the batch in place of decaying.

η is the learning rate that was tuned for a batch of `base` examples, B the batch that is trained with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

import tensorflow as tf
from tensorflow import keras

Rate = Union[float, keras.optimizers.schedules.LearningRateSchedule]


def linear_scaling(eta: float, batch: int, base: int) -> float:
    """η B / base: k small steps become one, k times as long (Krizhevsky 2014; Goyal et al. 2017, arXiv:1706.02677)."""
    return eta * batch / base


def sqrt_scaling(eta: float, batch: int, base: int) -> float:
    """η √(B / base): the step's covariance stays what it was (Krizhevsky 2014, arXiv:1404.5997)."""
    return eta * math.sqrt(batch / base)


def legw(eta: float, epochs: float, batch: int, base: int) -> tuple[float, float]:
    """Learning rate and epochs of warm-up for a batch of B (linear-epoch gradual warm-up, arXiv:1901.08256).

    The rate by the square root, the warm-up in proportion to the batch: it keeps its number of updates.

    Args:
        epochs: of warm-up that were tuned for `base`; may be a fraction.
    """
    return sqrt_scaling(eta, batch, base), epochs * batch / base


@keras.saving.register_keras_serializable("course_lib")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """From `start` in equal increments to the full rate (Goyal et al. 2017, arXiv:1706.02677).

    Update t = 0, 1, … has the rate start + (peak − start) t / steps while t < steps, then that of `after`.

    Args:
        after: what follows, a rate or a schedule; it counts its updates from the end of the warm-up, and its first
            rate is the peak.
        steps: updates of warm-up, at least 1.
        start: the rate of the first update.
    """

    def __init__(self, after: Rate, steps: int, start: float = 0.0) -> None:
        if steps < 1:
            raise ValueError(f"A warm-up takes at least 1 update, not {steps}.")
        self.after, self.steps, self.start = after, steps, start

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """The rate of update `step`, which counts from 0."""
        done = tf.cast(step, tf.float32) / self.steps
        ramp = self.start + (self._full(0) - self.start) * done
        return tf.where(done < 1, ramp, self._full(tf.maximum(tf.cast(step, tf.float32) - self.steps, 0)))

    def _full(self, step: tf.Tensor | int) -> tf.Tensor:
        return tf.cast(self.after(step) if callable(self.after) else self.after, tf.float32)

    def get_config(self) -> dict[str, Any]:
        """All arguments: Horovod makes the optimizer anew from them."""
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
    """Warm-up from `start` over the first `warm_up` updates, then half a cosine down to 0 (arXiv:1608.03983)."""
    decay = keras.optimizers.schedules.CosineDecay(peak, updates - warm_up)
    return WarmUp(decay, warm_up, start) if warm_up else decay


class Stage(NamedTuple):
    """From epoch `epoch` on: batch size and learning rate."""

    epoch: int
    batch: int
    eta: float


def growth(eta: float, batch: int, milestones: Sequence[int], factor: int, largest: int) -> list[Stage]:
    """At each of the milestones (epochs) the batch grows by `factor`, where else the learning rate is divided by it.

    The noise of the updates goes with η / B, which falls by `factor` either way (Smith et al. 2017, arXiv:1711.00489).
    A batch that would pass `largest` stops there, and the rest is taken from the learning rate: with `largest=batch`
    all of it.
    """
    stages = [Stage(0, batch, eta)]
    for epoch in milestones:
        grown = min(batch * factor, largest)
        eta, batch = eta * grown / batch / factor, grown
        stages.append(Stage(epoch, batch, eta))
    return stages
