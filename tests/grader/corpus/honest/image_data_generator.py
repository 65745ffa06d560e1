"""Keras's ImageDataGenerator: each image turned, moved, zoomed and mirrored by chance."""

import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from tensorflow.keras.preprocessing.image import ImageDataGenerator

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 64

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
per_rank = len(cifar.x_train) // hvd.size()
mine = slice(hvd.rank() * per_rank, (hvd.rank() + 1) * per_rank)
x_train, y_train = cifar.x_train[mine], cifar.y_train[mine]

generator = ImageDataGenerator(
    rotation_range=5,
    width_shift_range=0.06,
    height_shift_range=0.06,
    zoom_range=0.05,
    horizontal_flip=True,
)
batches = generator.flow(x_train, y_train, batch_size=BATCH_SIZE, seed=1000 * hvd.rank())

model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
rate = tf.keras.optimizers.schedules.CosineDecay(0.05 * hvd.size(), EPOCHS * len(batches))
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9))
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(
    batches,
    steps_per_epoch=len(batches),
    epochs=EPOCHS,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    verbose=2 if hvd.rank() == 0 else 0,
)
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
