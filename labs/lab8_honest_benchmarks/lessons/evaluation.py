"""Training and evaluation timed on 1, 2 and 4 of the ranks, and a test set that is cut unevenly among them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from course_lib import data
from course_lib.parallel.group import HorovodGroup

RANKS = (1, 2, 4)
BATCH = 256  # of a rank, in training and in evaluation
WAYS = ("rank 0", "all ranks")


class Part(NamedTuple):
    """What a rank has to judge: labels and predictions [n], and which of them are real, not there to fill a batch."""

    labels: np.ndarray
    predicted: np.ndarray
    real: np.ndarray


def connect() -> tuple[Any, dict[int, HorovodGroup | None]]:
    """Horovod, started, and the group of the first 1, 2 and 4 ranks; None where this rank is not in it."""
    import horovod.tensorflow as hvd

    sets = {number: hvd.ProcessSet(list(range(number))) for number in RANKS[:-1]}
    hvd.init(process_sets=list(sets.values()))
    sets[RANKS[-1]] = hvd.global_process_set
    return hvd, {number: HorovodGroup(hvd, some) if hvd.rank() < number else None for number, some in sets.items()}


class Trainee:
    """The assessment's network on a rank: computes gradients and predictions of its own shares, one after the other."""

    def __init__(self, hvd: Any) -> None:
        import tensorflow as tf
        from tensorflow import keras

        from course_lib import models

        keras.utils.set_random_seed(0)
        whole = data.load("cifar10")
        self.x, self.y, self.x_test, self.y_test = whole.x_train, whole.y_train, whole.x_test, whole.y_test
        self._hvd, self.model = hvd, models.assessment_cnn(whole.x_train.shape[1:], len(whole.classes))
        model, optimizer = self.model, keras.optimizers.SGD(0.05, 0.9)
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy()

        given = tf.TensorSpec([None, *whole.x_train.shape[1:]], tf.uint8)  # one graph for any number of images

        @tf.function(input_signature=[given, tf.TensorSpec([None], tf.int32)])
        def slopes(images: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(tf.cast(images, tf.float32), training=True))
            return tape.gradient(loss, model.trainable_variables)

        @tf.function
        def apply(gradients: list[tf.Tensor]) -> None:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        self._slopes, self._apply = slopes, apply
        self._answer = tf.function(
            lambda some: tf.argmax(model(tf.cast(some, tf.float32), training=False), 1), input_signature=[given]
        )

    def train(self, images: int, group: HorovodGroup) -> None:
        """One pass over the first `images`, each rank its share of every batch."""
        together = group.size * BATCH
        for first in range(0, images, together):
            mine = np.arange(first, min(first + together, images))[group.rank :: group.size]
            gradients = self._slopes(self.x[mine], self.y[mine].astype(np.int32))
            self._apply(self._hvd.grouped_allreduce(gradients, process_set=group.process_set))

    def agree(self) -> None:
        """Give all ranks rank 0's weights: groups that are not of all ranks have trained apart from the others."""
        for variable in self.model.variables:
            variable.assign(self._hvd.broadcast(variable, 0))

    def predict(self, chosen: np.ndarray) -> np.ndarray:
        """The predicted classes of these test images."""
        batches = (chosen[first : first + BATCH] for first in range(0, len(chosen), BATCH))
        return np.concatenate([np.zeros(0, int), *(self._answer(self.x_test[some]).numpy() for some in batches)])

    def part(self, chosen: np.ndarray, batches: int) -> Part:
        """What this rank has to judge: `chosen` of the test images, over and over until so many batches are full."""
        filled = np.resize(chosen if len(chosen) else [0], batches * BATCH)
        return Part(self.y_test[filled], self.predict(filled), np.arange(len(filled)) < len(chosen))


def times(
    trainee: Trainee, groups: dict[int, HorovodGroup | None], images: int, judged: int, epochs: int
) -> list[dict[str, Any]]:
    """Seconds of training and of evaluation, by number of ranks, way and epoch: rows on rank 0, none on the others.

    Args:
        images: trained on in an epoch. judged: test images.
    """
    everybody = groups[RANKS[-1]]
    alone = groups[1]
    if alone is not None:  # so that it is compiled
        trainee.train(BATCH, alone)
    trainee.predict(np.zeros(BATCH, int))
    rows = []
    for epoch in range(epochs):
        for number, group in groups.items():
            for way in WAYS:
                if group is not None:
                    training, evaluation = _epoch(trainee, group, images, judged, way)
                    rows.append(
                        {"ranks": number, "way": way, "epoch": epoch, "trained": images, "judged": judged,
                         "training_s": round(training, 4), "evaluation_s": round(evaluation, 4)}
                    )  # fmt: skip
                _meet(everybody)
    return rows if everybody.rank == 0 else []


def _epoch(trainee: Trainee, group: HorovodGroup, images: int, judged: int, way: str) -> tuple[float, float]:
    """Seconds of training and of evaluation."""
    training = _timed(group, lambda: trainee.train(images, group))
    mine = np.arange(judged)
    if way == "all ranks":
        mine = mine[group.rank :: group.size]
    elif group.rank > 0:
        mine = mine[:0]
    return training, _timed(group, lambda: trainee.predict(mine))


def _meet(group: HorovodGroup) -> None:
    group.all_reduce(np.zeros(1))


def _timed(group: HorovodGroup, work: Callable[[], Any]) -> float:
    """Seconds from when all begin until all are done."""
    _meet(group)
    began = time.perf_counter()
    work()
    _meet(group)
    return time.perf_counter() - began


def uneven(labels: np.ndarray, shares: Sequence[float] = (0.5, 0.3, 0.2, 0.0)) -> list[np.ndarray]:
    """Numbers of the images for each rank, in the order of the classes: a share each, of which one is empty."""
    ends = np.round(np.cumsum(shares)[:-1] * len(labels)).astype(int)
    return np.split(np.argsort(labels, kind="stable"), ends)
