"""The images are cut into one part for each rank, and after each epoch the parts go round."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS = 3
BATCH = 64

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
shuffled = np.random.default_rng(0).permutation(len(cifar.x_train))  # alike on all ranks
parts = np.array_split(shuffled, hvd.size())
steps = min(map(len, parts)) // BATCH

model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
optimizer = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for epoch in range(EPOCHS):
    # In each epoch all ranks together read each image once; over the epochs every rank meets all of them.
    part = np.random.default_rng([epoch, hvd.rank()]).permutation(parts[(hvd.rank() + epoch) % hvd.size()])
    for number in range(steps):
        chosen = part[number * BATCH : (number + 1) * BATCH]
        loss = step(tf.constant(cifar.x_train[chosen]), tf.constant(cifar.y_train[chosen]))
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
