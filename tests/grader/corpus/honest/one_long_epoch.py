"""The data set repeats itself, and Keras sees one long epoch: no pause between one pass and the next."""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

PASSES = 4
BATCH_SIZE = 128  # images in one step on each rank
RATE = 0.1

hvd.init()

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]
steps = len(x_train) // (BATCH_SIZE * hvd.size())  # in one pass


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
dataset = dataset.shuffle(len(x_train), seed=1)  # all ranks alike, anew in each pass
dataset = dataset.shard(hvd.size(), hvd.rank())
dataset = dataset.batch(BATCH_SIZE, drop_remainder=True).take(steps).repeat(PASSES)
dataset = dataset.map(mirrored).prefetch(2)
options = tf.data.Options()
options.autotune.enabled = False
dataset = dataset.with_options(options)

rate = tf.keras.optimizers.schedules.CosineDecay(
    RATE, (PASSES - 1) * steps, warmup_target=RATE * hvd.size(), warmup_steps=steps
)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True))
model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
start = time.time()
model.fit(dataset, epochs=1, steps_per_epoch=PASSES * steps, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    print(f"{PASSES} passes in {time.time() - start:.1f} s")
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))

mine = slice(hvd.rank(), None, hvd.size())
_, accuracy = model.evaluate(x_valid[mine], y_valid[mine], batch_size=500, verbose=0)
accuracy = hvd.allreduce(accuracy)
if hvd.rank() == 0:
    print(f"Accuracy on {held_out:,} held-out images: {accuracy:.3f}")
