"""Data-parallel training of the assessment network, organised around a Trainer object."""

from __future__ import annotations

import argparse
import logging
import os
from dataclasses import dataclass

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models
from course_lib.optimizers.schedules import WarmUp, linear_scaling

log = logging.getLogger("assessment")


@dataclass
class Settings:
    epochs: int = 4
    local_batch: int = 128
    reference_batch: int = 128
    reference_rate: float = 0.08
    weight_decay: float = 5e-4
    validation_every: int = 1

    @property
    def global_batch(self) -> int:
        return self.local_batch * hvd.size()


class Pipeline:
    """Deals the pictures out: rank r of n sees pictures r, r + n, r + 2n, ..."""

    def __init__(self, settings: Settings):
        self.settings = settings
        loaded = data.load("cifar10", test=False)
        self.num_classes = len(loaded.classes)
        border = len(loaded.x_train) * 9 // 10
        self.shape = loaded.x_train.shape[1:]
        self.train_arrays = (loaded.x_train[:border], loaded.y_train[:border])
        self.valid_arrays = (loaded.x_train[border:], loaded.y_train[border:])
        self.steps = border // settings.global_batch

    def _augment(self, image, label):
        image = tf.image.resize_with_crop_or_pad(image, 36, 36)
        image = tf.image.random_crop(image, self.shape)
        image = tf.image.random_flip_left_right(image)
        return image, label

    def train(self) -> tf.data.Dataset:
        own = tf.data.Dataset.from_tensor_slices(self.train_arrays).shard(hvd.size(), hvd.rank())
        own = own.shuffle(10_000, reshuffle_each_iteration=True).repeat()
        return own.map(self._augment, num_parallel_calls=1).batch(self.settings.local_batch).prefetch(1)

    def valid(self) -> tf.data.Dataset:
        own = tf.data.Dataset.from_tensor_slices(self.valid_arrays).shard(hvd.size(), hvd.rank())
        return own.batch(500)


class Trainer:
    def __init__(self, settings: Settings, pipeline: Pipeline):
        self.settings, self.pipeline = settings, pipeline
        self.network = models.assessment_cnn(pipeline.shape, pipeline.num_classes)
        self.network.compile(
            optimizer=hvd.DistributedOptimizer(self._optimizer()),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name="acc")],
        )

    def _optimizer(self):
        s = self.settings
        peak = linear_scaling(s.reference_rate, s.global_batch, s.reference_batch)
        updates = s.epochs * self.pipeline.steps
        ramp = max(1, updates // 8)
        falling = tf.keras.optimizers.schedules.PolynomialDecay(peak, max(1, updates - ramp), peak / 100)
        return tf.keras.optimizers.SGD(
            WarmUp(falling, ramp), momentum=0.9, nesterov=True, weight_decay=s.weight_decay
        )

    def run(self):
        history = self.network.fit(
            self.pipeline.train(),
            steps_per_epoch=self.pipeline.steps,
            epochs=self.settings.epochs,
            validation_data=self.pipeline.valid(),
            validation_freq=self.settings.validation_every,
            callbacks=self._callbacks(),
            verbose=0,
        )
        return history.history["val_acc"][-1]

    def _callbacks(self):
        def report(epoch, logs):
            log.info("epoch %d: loss %.3f, acc %.3f", epoch + 1, logs["loss"], logs["acc"])

        shared = [hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0), hvd.callbacks.MetricAverageCallback()]
        return [*shared, tf.keras.callbacks.LambdaCallback(on_epoch_end=report)]

    def save(self, path: str):
        self.network.save_weights(path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--out", default=os.environ.get("COURSE_WEIGHTS", "weights.h5"))
    return parser.parse_args()


if __name__ == "__main__":
    hvd.init()
    logging.basicConfig(level=logging.INFO if hvd.rank() == 0 else logging.ERROR, format="%(message)s")
    visible = tf.config.list_physical_devices("GPU")
    if visible:
        tf.config.set_visible_devices([visible[hvd.local_rank()]], "GPU")

    options = parse()
    settings = Settings(epochs=options.epochs)
    trainer = Trainer(settings, Pipeline(settings))
    result = trainer.run()
    if hvd.rank() == 0:
        trainer.save(options.out)
        log.info("held-out accuracy %.3f", result)
