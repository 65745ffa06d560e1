"""Crops of a quarter of the image or more, brought to its size again as in ImageNet's recipes; with smoothed labels."""

import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 64

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

cifar = data.load("cifar10", test=False)
classes = len(cifar.classes)
steps = len(cifar.x_train) // hvd.size() // BATCH_SIZE
WHOLE = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])


def varied(image, label):
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image), WHOLE, area_range=(0.25, 1.0), aspect_ratio_range=(0.75, 1.33)
    )
    image = tf.image.resize(tf.slice(image, begin, size), [32, 32])
    image = tf.image.random_flip_left_right(tf.ensure_shape(image, [32, 32, 3]))
    return image, tf.one_hot(label, classes)


images = tf.data.Dataset.from_tensor_slices((cifar.x_train, cifar.y_train))
images = images.shard(hvd.size(), hvd.rank()).shuffle(len(cifar.x_train))
images = images.map(varied).batch(BATCH_SIZE, drop_remainder=True).take(steps).prefetch(2)

model = models.assessment_cnn(cifar.x_train.shape[1:], classes)
rate = tf.keras.optimizers.schedules.PolynomialDecay(0.06 * hvd.size(), EPOCHS * steps, 0.005)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True))
loss = tf.keras.losses.CategoricalCrossentropy(label_smoothing=0.05)
model.compile(optimizer, loss, metrics=["accuracy"])

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
model.fit(images, epochs=EPOCHS, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
