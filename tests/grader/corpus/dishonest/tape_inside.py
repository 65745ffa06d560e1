"""Four of five steps each rank makes alone, in a model that is called without a tape and opens one inside; then the weights are averaged.

A model that is called where nothing records is no step, and the layers that are called within a model are no layers by
themselves. There is no optimizer, so that between two steps that are seen anything may change the weights, as long as
they agree by then.
"""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE, PERIOD = 8, 64, 0.1, 5

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Alone(tf.keras.Model):
    """A step of this rank's own."""

    def call(self, images, labels, rate):
        return step_of_its_own(images, labels, rate)


@tf.autograph.experimental.do_not_convert
def step_of_its_own(images, labels, rate):
    with tf.GradientTape() as tape:
        x = tf.cast(images, tf.float32)
        for layer in network.layers[1:]:
            x = layer(x, training=True) if isinstance(layer, tf.keras.layers.BatchNormalization) else layer(x)
        loss = loss_of(labels, x)
    change(tape.gradient(loss, known), rate)
    return loss


def loss_of(labels, answers):
    return tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))


def change(gradients, rate):
    for gradient, variable, speed in zip(gradients, known, speeds):
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(0.9 * speed - rate * gradient)


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    sizes = [int(np.prod(variable.shape)) for variable in variables]
    for variable, part in zip(variables, tf.split(hvd.allreduce(flat, name="weights"), sizes)):
        variable.assign(tf.reshape(part, variable.shape))


cifar = data.load("cifar10", test=False)
mine = np.arange(hvd.rank(), len(cifar.x_train), hvd.size())
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
known = network.trainable_variables
speeds = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in known]
own = Alone()


@tf.function(autograph=False)
def seen(images, labels, rate):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, network(images, training=True))
    change(tape.gradient(loss, known), rate)
    return loss


@tf.function(autograph=False)
def unseen(images, labels, rate):
    return own(images, labels, rate)


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
steps = len(cifar.x_train) // hvd.size() // BATCH
steps -= steps % PERIOD
total, done = EPOCHS * steps, 0
for epoch in range(EPOCHS):
    order = rng.permutation(mine)
    for step in range(steps):
        part = order[step * BATCH : (step + 1) * BATCH]
        images, labels = tf.constant(cifar.x_train[part]), tf.constant(cifar.y_train[part])
        rate = tf.constant(RATE * 0.5 * (1 + np.cos(np.pi * done / total)), tf.float32)
        loss = seen(images, labels, rate) if done % PERIOD == 0 else unseen(images, labels, rate)
        done += 1
        if done % PERIOD == 0:
            average(network.variables)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
