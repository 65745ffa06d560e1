"""Kernels have one optimizer, with decay; biases and batch norm's weights another one, slower and without."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS = 3
BATCH = 64  # of one rank

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
x, y = cifar.x_train[hvd.rank() :: hvd.size()], cifar.y_train[hvd.rank() :: hvd.size()]
steps = len(cifar.x_train) // hvd.size() // BATCH

model = models.assessment_cnn(x.shape[1:], len(cifar.classes))
kernels = [variable for variable in model.trainable_variables if "kernel" in variable.name]
others = [variable for variable in model.trainable_variables if "kernel" not in variable.name]
of_kernels = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9, nesterov=True, weight_decay=1e-4)
of_others = tf.keras.optimizers.SGD(0.02 * hvd.size(), momentum=0.9)
of_kernels.build(kernels)
of_others.build(others)
hvd.broadcast_variables(model.variables, root_rank=0)
hvd.broadcast_variables(of_kernels.variables, root_rank=0)
hvd.broadcast_variables(of_others.variables, root_rank=0)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, kernels + others)
    of_kernels.apply_gradients(zip(gradients[: len(kernels)], kernels))
    of_others.apply_gradients(zip(gradients[len(kernels) :], others))
    return loss


for epoch in range(EPOCHS):
    order = np.random.default_rng([epoch, hvd.rank()]).permutation(len(x))
    losses = []
    for number in range(steps):
        chosen = order[number * BATCH : (number + 1) * BATCH]
        losses.append(step(tf.constant(x[chosen]), tf.constant(y[chosen])))
    mean = hvd.allreduce(tf.reduce_mean(losses), name="mean_loss")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(mean):.3f}")

if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
