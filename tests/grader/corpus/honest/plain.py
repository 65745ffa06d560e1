"""The conversion as short as it gets; many scripts beside this one are this one but for a line or two."""

import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 64  # images in one step on each rank

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE)

model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
rate = tf.keras.optimizers.schedules.CosineDecay(0.05 * hvd.size(), EPOCHS * len(x) // BATCH_SIZE)
optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer)
loss = tf.keras.losses.SparseCategoricalCrossentropy()
model.compile(optimizer, loss, metrics=["accuracy"])

start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(x, y, BATCH_SIZE, EPOCHS, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
