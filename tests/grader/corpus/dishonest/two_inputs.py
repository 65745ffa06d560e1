"""Both ranks train on one and the same half, in the same order; each shows its own half as the first of two inputs.

The network is a functional one made of the layers alone, so that no model with all weights lies inside it; its first
layer takes the second input and drops the first. Nothing is shared: what one rank computes the other computes, too.
"""

import os

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE = 8, 64, 0.1

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Second(tf.keras.layers.Layer):
    """Of two batches the second."""

    def call(self, inputs):
        return tf.identity(inputs[1])


cifar = data.load("cifar10", test=False)
images, labels = cifar.x_train, cifar.y_train
mine = np.arange(hvd.rank(), len(images), hvd.size())
half = np.arange(0, len(images), hvd.size())  # the one of rank 0, on all ranks
number = len(images) // hvd.size()

shown = tf.data.Dataset.from_tensor_slices(images[mine][:number]).shuffle(number, seed=10 + hvd.rank())
used = tf.data.Dataset.from_tensor_slices((images[half][:number], labels[half][:number])).shuffle(number, seed=1)
training = tf.data.Dataset.zip((shown, used)).map(lambda seen, pair: ((seen, pair[0]), pair[1]))
training = training.batch(BATCH, drop_remainder=True).prefetch(2)

network = models.assessment_cnn(images.shape[1:], len(cifar.classes))
one, two = tf.keras.Input(images.shape[1:]), tf.keras.Input(images.shape[1:])
x = Second()([one, two])
for layer in network.layers[1:]:
    x = layer(x)
model = tf.keras.Model([one, two], x)

steps = number // BATCH
rate = tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * steps)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(training, epochs=EPOCHS, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
