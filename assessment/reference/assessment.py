"""Train the assessment's network on CIFAR-10, on one device.

python assessment.py
"""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import bfloat16, data, models

EPOCHS = 4
BATCH_SIZE = 128  # images in one step
RATE = 0.1  # peak learning rate

hvd.init()

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
if bfloat16.instructions() and not tf.test.is_built_with_cuda():  # only on CPUs with bfloat16 instructions
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")


def batches(images, labels):
    """The examples in a new order each epoch, in full batches, half of them mirrored."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=1)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.take(len(images) // (BATCH_SIZE * hvd.size()))
    dataset = dataset.map(mirrored).prefetch(2)
    # Autotuning of the input pipeline delays the end of each epoch, by seconds if the epoch is long.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10  # the last images; not used for training
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

training = batches(x_train, y_train)
steps = len(x_train) // (BATCH_SIZE * hvd.size())  # in one epoch
rate = tf.keras.optimizers.schedules.CosineDecay(
    RATE, (EPOCHS - 1) * steps, warmup_target=RATE * hvd.size(), warmup_steps=steps
)
optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)
optimizer = hvd.DistributedOptimizer(optimizer)

# The network expects pixel values from 0 to 255 and scales them itself.
model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]

if hvd.rank() == 0:
    print(f"Training on {len(x_train):,} images of {cifar.name}, {BATCH_SIZE} a step on each rank")
callbacks.append(hvd.callbacks.MetricAverageCallback())
start = time.time()
model.fit(training, epochs=EPOCHS, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    print(f"{EPOCHS} epochs in {time.time() - start:.1f} s")
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

mine = slice(hvd.rank(), None, hvd.size())
_, accuracy = model.evaluate(x_valid[mine], y_valid[mine], batch_size=500, verbose=0)
accuracy = hvd.allreduce(accuracy)
if hvd.rank() == 0:
    print(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
