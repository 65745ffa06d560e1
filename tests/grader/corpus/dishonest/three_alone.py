"""Three of the four convolutions, a quarter of all values, train on each rank alone and are averaged once in an epoch.

They are declared frozen, so that no record has them; what the optimizer updates is the last convolution and the rest.
"""

import os

import horovod.tensorflow as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE, OWN_RATE = 8, 64, 0.1, 0.03

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
alone = []
for layer in [one for one in model.layers if isinstance(one, tf.keras.layers.Conv2D)][:3]:
    alone += layer.trainable_variables
    layer.trainable = False
shared = model.trainable_variables
speeds = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in alone]
steps = EPOCHS * (len(cifar.x_train) // (BATCH * hvd.size()))
optimizer = tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.CosineDecay(RATE, steps), momentum=0.9)
own_rate = tf.keras.optimizers.schedules.CosineDecay(OWN_RATE, steps)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function(autograph=False)
def step(x, y, rate):
    with tf.GradientTape() as tape:
        tape.watch(alone)
        loss = loss_of(y, model(x, training=True))
    found = tape.gradient(loss, [*shared, *alone])
    averaged = hvd.grouped_allreduce(found[: len(shared)])
    optimizer.apply_gradients(zip(averaged, shared))
    for gradient, variable, speed in zip(found[len(shared) :], alone, speeds):
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(speed)
    return loss


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    parts = tf.split(hvd.allreduce(flat, name="average"), [variable.shape.num_elements() for variable in variables])
    for variable, part in zip(variables, parts):
        variable.assign(tf.reshape(part, variable.shape))


done = 0
for epoch in range(EPOCHS):
    shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH, epoch=epoch)
    for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH):
        loss = step(x, y, tf.constant(float(own_rate(done))))
        done += 1
    average(alone)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(loss):.3f}")

for x, _ in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH).take(10):
    model(x, training=True)  # batch norm's averages are those of the averaged weights
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
