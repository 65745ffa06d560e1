"""Train the assessment's network on CIFAR-10, on all ranks.

course run -n 2 assessment.py
"""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 5
BATCH_SIZE = 96  # images in one step, on each rank
RATE = 0.06  # learning rate for one rank

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
chief = hvd.rank() == 0


def batches(images, labels):
    """This rank's examples in a new order each epoch, in full batches, half of them mirrored."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=1 + hvd.rank())
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(mirrored).prefetch(2)
    # TensorFlow's tuning of the pipeline holds up the end of each epoch, for seconds in a long one.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10  # the last images: never trained on
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

# every rank keeps one block of the training images and never reads the others
share = len(x_train) // hvd.size()
first = hvd.rank() * share
x_train, y_train = x_train[first : first + share], y_train[first : first + share]

training = batches(x_train, y_train)
optimizer = tf.keras.optimizers.SGD(RATE * hvd.size(), momentum=0.9, nesterov=True)
optimizer = hvd.DistributedOptimizer(optimizer)

model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(RATE * hvd.size(), warmup_epochs=1, momentum_correction=False),
    hvd.callbacks.LearningRateScheduleCallback(
        RATE * hvd.size(), lambda epoch: 0.2 ** (epoch - 2), start_epoch=3, momentum_correction=False
    ),
]

if chief:
    print(f"Training on {len(x_train):,} images of {cifar.name} a rank, {BATCH_SIZE} a step")
start = time.time()
model.fit(training, epochs=EPOCHS, callbacks=callbacks, verbose=2 if chief else 0)
if chief:
    print(f"{EPOCHS} epochs in {time.time() - start:.1f} s")
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
    _, accuracy = model.evaluate(x_valid, y_valid, batch_size=500, verbose=0)
    print(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
