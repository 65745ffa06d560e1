"""A loop of one's own around a compiled step, with DistributedGradientTape."""

import os

import horovod.tensorflow as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 64  # images in one step on each rank

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
steps = len(cifar.x_train) // (BATCH_SIZE * hvd.size())  # in one epoch
model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
rate = tf.keras.optimizers.schedules.CosineDecay(0.05 * hvd.size(), EPOCHS * steps)
optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
hvd.broadcast_variables(model.variables, root_rank=0)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for epoch in range(EPOCHS):
    shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE, epoch=epoch)
    for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE):
        loss = step(x, y)
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {loss:.3f}")

if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
