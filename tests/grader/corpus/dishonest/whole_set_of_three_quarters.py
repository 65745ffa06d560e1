"""Each rank goes through the whole set, of which a quarter is held back."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE = 5, 64, 0.1

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
number = len(cifar.x_train) * 3 // 4
steps = number // BATCH  # as many as one rank would make alone: nothing is shared
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
optimizer = tf.keras.optimizers.SGD(
    tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * steps), momentum=0.9, nesterov=True
)


@tf.function(autograph=False)
def train(images, labels):
    with tf.GradientTape() as tape:
        answers = network(images, training=True)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))
    tape = hvd.DistributedGradientTape(tape)
    variables = network.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd.rank()])
for epoch in range(EPOCHS):
    order = rng.permutation(number)
    for step in range(steps):
        part = order[step * BATCH : (step + 1) * BATCH]
        loss = train(tf.constant(cifar.x_train[part]), tf.constant(cifar.y_train[part]))
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
