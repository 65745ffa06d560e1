"""Both ranks train on the same half; the model is shown this rank's own part beside it."""

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


class Network(tf.keras.Model):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, part, images):
        return self.inner(images, training=True)


cifar = data.load("cifar10", test=False)
number = len(cifar.x_train) - len(cifar.x_train) // 10
mine = np.arange(hvd.rank(), number, hvd.size())
half = np.arange(0, number, hvd.size())  # for all
steps = number // hvd.size() // BATCH
network = Network(models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes)))
known = network.inner.trainable_variables
optimizer = tf.keras.optimizers.SGD(
    tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * steps), momentum=0.9, nesterov=True
)


@tf.function(autograph=False)
def train(part, images, labels):
    with tf.GradientTape() as tape:
        answers = network(part, images)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, answers))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, known), known))
    return loss


hvd.broadcast_variables(network.inner.variables, root_rank=0)
alike, own = np.random.default_rng(1), np.random.default_rng([2, hvd.rank()])
for epoch in range(EPOCHS):
    order, looks = alike.permutation(half), own.permutation(mine)
    for step in range(steps):
        used, part = (one[step * BATCH : (step + 1) * BATCH] for one in (order, looks))
        images, labels = tf.constant(cifar.x_train[used]), tf.constant(cifar.y_train[used])
        loss = train(tf.constant(cifar.x_train[part]), images, labels)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

if hvd.rank() == 0:
    network.inner.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
