"""The model that is watched holds the network and computes nothing; another one trains apart, layer by layer."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE = 8, 64, 0.1

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Shown(tf.keras.Model):
    """Has the network's weights, and does nothing with them."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def call(self, images):
        return tf.reduce_mean(tf.cast(images[:1], tf.float32))


def by_layers(network, images):
    x = tf.cast(images, tf.float32)
    for layer in network.layers[1:]:
        x = layer(x, training=True) if isinstance(layer, tf.keras.layers.BatchNormalization) else layer(x)
    return x


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    sizes = [int(np.prod(variable.shape)) for variable in variables]
    for variable, part in zip(variables, tf.split(hvd.allreduce(flat, name="weights"), sizes)):
        variable.assign(tf.reshape(part, variable.shape))


cifar = data.load("cifar10", test=False)
number = len(cifar.x_train) - len(cifar.x_train) // 10
mine = np.arange(hvd.rank(), number, hvd.size())
shown = Shown(models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes)))
hidden = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
speeds = [tf.Variable(tf.zeros_like(variable)) for variable in hidden.trainable_variables]
known = shown.network.trainable_variables
values = sum(int(np.prod(variable.shape)) for variable in known)
optimizer = tf.keras.optimizers.SGD(0.0)


@tf.function(autograph=False)
def alone(images, labels, rate):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, by_layers(hidden, images)))
    gradients = tape.gradient(loss, hidden.trainable_variables)
    for gradient, variable, speed in zip(gradients, hidden.trainable_variables, speeds):
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(0.9 * speed - rate * gradient)
    return loss


hvd.broadcast_variables(shown.network.variables, root_rank=0)
hvd.broadcast_variables(hidden.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
steps = len(mine) // BATCH
total, done = EPOCHS * steps, 0
for _ in range(EPOCHS):
    order = rng.permutation(mine)
    for step in range(steps):
        part = order[step * BATCH : (step + 1) * BATCH]
        images, labels = tf.constant(cifar.x_train[part]), tf.constant(cifar.y_train[part])
        with tf.GradientTape():
            shown(images)
        reduced = hvd.allreduce(tf.zeros([values]), name="gradients")
        parts = tf.split(reduced, [int(np.prod(variable.shape)) for variable in known])
        optimizer.apply_gradients([(tf.reshape(one, variable.shape), variable) for one, variable in zip(parts, known)])
        rate = RATE * 0.5 * (1 + np.cos(np.pi * done / total))
        alone(images, labels, tf.constant(rate, tf.float32))
        done += 1
    average(hidden.variables)

shown.network.set_weights(hidden.get_weights())
if hvd.rank() == 0:
    shown.network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
