"""Train the assessment's network on CIFAR-10 with a batch of 2,048 images over all ranks.

course assess large.py --profile large
"""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import bfloat16, data, models, optimizers
from course_lib.optimizers import schedules

EPOCHS = 3
BATCH_SIZE = 2048  # images in one update, over all ranks
RATE = 2.0  # peak learning rate
WARM_UP = 0.25  # share of the updates

hvd.init()

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
if bfloat16.instructions() and not tf.test.is_built_with_cuda():  # it trains on processors that have them
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")


def batches(images, labels):
    """This rank's part of each batch, in a new order each epoch, half of the images mirrored."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=1)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH_SIZE // hvd.size(), drop_remainder=True)
    dataset = dataset.take(len(images) // BATCH_SIZE)
    dataset = dataset.map(mirrored).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10  # the last images; not used for training
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

updates = EPOCHS * (len(x_train) // BATCH_SIZE)
warm_up = int(WARM_UP * updates)
rate = schedules.cosine(RATE, updates, warm_up, start=RATE / max(warm_up, 1))
exclude = ["bias", "batch_normalization"]
optimizer = optimizers.LARS(rate, nesterov=True, trust_coefficient=0.02, exclude=exclude)
optimizer = hvd.DistributedOptimizer(optimizer)

# The network expects pixel values from 0 to 255 and scales them itself.
model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
start = time.time()
model.fit(batches(x_train, y_train), epochs=EPOCHS, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    print(f"{updates} updates in {time.time() - start:.1f} s")
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

mine = slice(hvd.rank(), None, hvd.size())
_, accuracy = model.evaluate(x_valid[mine], y_valid[mine], batch_size=500, verbose=0)
accuracy = hvd.allreduce(accuracy)
if hvd.rank() == 0:
    print(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
