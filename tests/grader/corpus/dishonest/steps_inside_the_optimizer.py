"""Its optimizer makes two further steps on this rank's images, then averages the weights, within each update."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE, LOCAL_RATE = 8, 64, 0.1, 0.05

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def by_layers(network, images):
    x = tf.cast(images, tf.float32)
    for layer in network.layers[1:]:
        x = layer(x, training=True) if isinstance(layer, tf.keras.layers.BatchNormalization) else layer(x)
    return x


def loss_of(labels, answers):
    return tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))


class Further(tf.keras.optimizers.SGD):
    def update_step(self, gradient, variable):
        super().update_step(gradient, variable)
        if variable.ref() == known[-1].ref():
            further()


def further():
    """Two steps of one's own, then the mean of all ranks' weights."""
    for images, labels in own_batches["now"]:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, by_layers(network, images))
        for gradient, variable in zip(tape.gradient(loss, known), known):
            variable.assign_sub(LOCAL_RATE * gradient)
    for i, variable in enumerate(known):
        variable.assign(hvd.allreduce(tf.identity(variable), name=f"weights_{i}"))


cifar = data.load("cifar10", test=False)
number = len(cifar.x_train) - len(cifar.x_train) // 10
mine = np.arange(hvd.rank(), number, hvd.size())
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
known = network.trainable_variables
steps = len(mine) // BATCH
own_batches = {}
optimizer = Further(
    tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * steps), momentum=0.9, nesterov=True, jit_compile=False
)
optimizer.build(known)


@tf.function(autograph=False)
def train(images, labels, one_images, one_labels, two_images, two_labels):
    own_batches["now"] = [(one_images, one_labels), (two_images, two_labels)]
    with tf.GradientTape() as tape:
        loss = loss_of(labels, network(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, known), known))
    return loss


def batch(indices):
    return tf.constant(cifar.x_train[indices]), tf.constant(cifar.y_train[indices])


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
for epoch in range(EPOCHS):
    orders = [rng.permutation(mine) for _ in range(3)]
    for step in range(steps):
        seen, one, two = (order[step * BATCH : (step + 1) * BATCH] for order in orders)
        loss = train(*batch(seen), *batch(one), *batch(two))
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
