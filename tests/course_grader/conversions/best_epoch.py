"""Train the assessment's network on CIFAR-10, on all ranks, and keep the weights of the best epoch.

course run -n 2 assessment.py
"""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 6
BATCH_SIZE = 128  # images in one step
RATE = 0.1  # learning rate at its highest
WEIGHTS = os.environ.get("COURSE_WEIGHTS", "weights.h5")

hvd.init()

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class SaveWhenBetter(tf.keras.callbacks.Callback):
    """Must come after MetricAverageCallback, so that the value is the same on each rank."""

    def __init__(self, filename, watch="val_accuracy"):
        super().__init__()
        self.filename, self.watch, self.record = filename, watch, -1.0

    def on_epoch_end(self, epoch, logs=None):
        score = logs[self.watch]
        if score > self.record:
            self.record = score
            if hvd.rank() == 0:
                self.model.save_weights(self.filename)
                print(f"epoch {epoch}: {self.watch} {score:.3f} is the best so far")


def batches(images, labels):
    """The examples of this rank in a new order each epoch, in full batches, half of them mirrored."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shard(hvd.size(), hvd.rank())
    dataset = dataset.shuffle(len(images) // hvd.size())
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.take(len(images) // hvd.size() // BATCH_SIZE)
    dataset = dataset.map(mirrored).prefetch(2)
    # TensorFlow's tuning of the pipeline holds up the end of each epoch, for seconds in a long one.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


def exponential(epoch):
    return RATE * hvd.size() * 0.55**epoch


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10  # the last images: never trained on
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

training = batches(x_train, y_train)
optimizer = tf.keras.optimizers.SGD(RATE * hvd.size(), momentum=0.9, nesterov=True)
optimizer = hvd.DistributedOptimizer(optimizer)

model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    tf.keras.callbacks.LearningRateScheduler(exponential),
    hvd.callbacks.MetricAverageCallback(),
    SaveWhenBetter(WEIGHTS),
]

if hvd.rank() == 0:
    print(f"Training on {len(x_train):,} images of {cifar.name}, {BATCH_SIZE} a step")
start = time.time()
mine = x_valid[hvd.rank() :: hvd.size()], y_valid[hvd.rank() :: hvd.size()]
model.fit(training, validation_data=mine, epochs=EPOCHS, callbacks=callbacks, verbose=0)
if hvd.rank() == 0:
    print(f"{EPOCHS} epochs in {time.time() - start:.1f} s, best accuracy {callbacks[-1].record:.3f}")
