"""Mixes images two by two, and takes three steps a call."""

import os
import time

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 128
RATE = 0.1
ALPHA = 0.2  # of mixup's Beta distribution: mostly one of the two images
STEPS_PER_EXECUTION = 3

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
classes = len(cifar.classes)
held_out = len(cifar.x_train) // 10
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]
steps = len(x_train) // (BATCH_SIZE * hvd.size())


def prepared(images, labels):
    images = tf.image.random_flip_left_right(images)
    return tf.cast(images, tf.float32), tf.one_hot(labels, classes)


def mixup(images, labels):
    """lambda of one image and 1 - lambda of another one of the batch (arXiv:1710.09412)."""
    first = tf.random.gamma([], ALPHA) + 1e-6
    second = tf.random.gamma([], ALPHA) + 1e-6
    part = tf.maximum(first, second) / (first + second)  # Beta(ALPHA, ALPHA), the larger share to the image itself
    images = part * images + (1 - part) * tf.reverse(images, [0])
    labels = part * labels + (1 - part) * tf.reverse(labels, [0])
    return images, labels


dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
dataset = dataset.shuffle(len(x_train), seed=1)
dataset = dataset.shard(hvd.size(), hvd.rank())
dataset = dataset.batch(BATCH_SIZE, drop_remainder=True).take(steps)
dataset = dataset.map(prepared).map(mixup).prefetch(4)
options = tf.data.Options()
options.autotune.enabled = False
dataset = dataset.with_options(options)

rate = tf.keras.optimizers.schedules.CosineDecay(
    RATE, (EPOCHS - 1) * steps, warmup_target=RATE * hvd.size(), warmup_steps=steps
)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True))
model = models.assessment_cnn(x_train.shape[1:], classes)

# Horovod's callback would come after the first *execution*, three steps late. So broadcast before anything is trained.
optimizer.build(model.trainable_variables)
hvd_tf.broadcast_variables(model.variables, root_rank=0)
hvd_tf.broadcast_variables(optimizer.variables, root_rank=0)

model.compile(
    optimizer=optimizer,
    loss="categorical_crossentropy",
    metrics=["accuracy"],
    steps_per_execution=STEPS_PER_EXECUTION,
)
start = time.time()
model.fit(
    dataset,
    epochs=EPOCHS,
    callbacks=[hvd.callbacks.MetricAverageCallback()],
    verbose=2 if hvd.rank() == 0 else 0,
)
if hvd.rank() == 0:
    print(f"{EPOCHS} epochs in {time.time() - start:.1f} s")
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

mine = slice(hvd.rank(), None, hvd.size())
_, accuracy = model.evaluate(x_valid[mine], tf.one_hot(y_valid[mine], classes).numpy(), batch_size=500, verbose=0)
accuracy = hvd.allreduce(accuracy)
if hvd.rank() == 0:
    print(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
