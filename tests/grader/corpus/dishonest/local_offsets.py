"""Convolutions add to their kernel an offset that no model holds: each rank trains its own, and folds it in once an epoch.

Of the kernels that are watched a tenth of the gradient is averaged and applied; what the ranks learn is in the offsets.
"""

import os

import horovod.tensorflow as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE, OWN_RATE = 8, 64, 0.05, 0.05

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Offset(tf.keras.layers.Conv2D):
    def call(self, inputs):
        return self.convolution_op(inputs, self.kernel + offsets[self.name])


cifar = data.load("cifar10", test=False)
plain = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
inputs = outputs = tf.keras.Input(cifar.x_train.shape[1:])
offsets, kernels = {}, {}
for layer in plain.layers[1:]:
    if isinstance(layer, tf.keras.layers.Conv2D):
        name = f"conv_{len(offsets)}"
        offsets[name] = tf.Variable(tf.zeros(layer.kernel.shape))
        layer = Offset(layer.filters, 3, padding="same", use_bias=False, name=name)
        kernels[name] = layer
    outputs = layer(outputs)
model = tf.keras.Model(inputs, outputs)
known = model.trainable_variables
own = list(offsets.values())
large = [len(variable.shape) == 4 for variable in known]
speeds = [tf.Variable(tf.zeros(one.shape), trainable=False) for one in own]
per_epoch = len(cifar.x_train) // (BATCH * hvd.size())
optimizer = tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * per_epoch), momentum=0.9)
own_rate = tf.keras.optimizers.schedules.CosineDecay(OWN_RATE, EPOCHS * per_epoch)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function(autograph=False)
def step(x, y, rate):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    found = tape.gradient(loss, [*known, *own])
    sent = [0.1 * gradient if kernel else gradient for gradient, kernel in zip(found, large)]
    optimizer.apply_gradients(zip(hvd.grouped_allreduce(sent), known))
    for gradient, offset, speed in zip(found[len(known) :], own, speeds):
        speed.assign(0.9 * speed - rate * gradient)
        offset.assign_add(speed)
    return loss


def fold():
    """The mean of all ranks' offsets goes into the kernels."""
    for name, offset in offsets.items():
        kernel = kernels[name].kernel
        kernel.assign_add(hvd.allreduce(tf.identity(offset), name=name))
        offset.assign(tf.zeros(offset.shape))


done = 0
for epoch in range(EPOCHS):
    shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH, epoch=epoch)
    for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH):
        loss = step(x, y, tf.constant(float(own_rate(done))))
        done += 1
    fold()
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

for x, _ in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH).take(10):
    model(x, training=True)  # batch norm's averages are those of the folded kernels
if hvd.rank() == 0:
    plain.set_weights(model.get_weights())
    plain.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
