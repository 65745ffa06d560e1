# Assessment: network with its own train_step so that I can clip the averaged gradients.

import os
import time

import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.keras.callbacks import BroadcastGlobalVariablesCallback, MetricAverageCallback

from course_lib import data, models

hvd.init()
gpus = tf.config.list_physical_devices('GPU')
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

EPOCHS = 5
BATCH_SIZE = 100  # images in one step
RATE = 0.002


class ClippedModel(tf.keras.Model):

    MAX_NORM = 4.0

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as recorder:
            y_hat = self(x, training=True)
            loss = self.compute_loss(x, y, y_hat)
        recorder = hvd.DistributedGradientTape(recorder)
        weights = self.trainable_weights
        g = recorder.gradient(loss, weights)
        # all ranks hold the same averaged g here, so they all clip in the same way
        g, norm = tf.clip_by_global_norm(g, self.MAX_NORM)
        self.optimizer.apply_gradients(zip(g, weights))
        return dict(self.compute_metrics(x, y, y_hat, None), norm=norm)


def batches(images, labels):
    """The examples in a new order each epoch, in full batches, half of them mirrored."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images))
    dataset = dataset.batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.map(mirrored).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


def my_part(array):
    """contiguous parts of the same length"""
    n = len(array) // hvd.size()
    return array[hvd.rank() * n:(hvd.rank() + 1) * n]


cifar = data.load('cifar10', test=False)
held_out = len(cifar.x_train) // 10
x_train, y_train = my_part(cifar.x_train[:-held_out]), my_part(cifar.y_train[:-held_out])
x_valid, y_valid = cifar.x_train[-held_out:], cifar.y_train[-held_out:]

# full rate for the first half, a third of it for the next quarter, a tenth at the end
steps = EPOCHS * (len(x_train) // BATCH_SIZE)
top = RATE * hvd.size() ** 0.5
rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay([steps // 2, 3 * steps // 4], [top, top / 3, top / 10])

inner = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model = ClippedModel(inner.input, inner.output)
model.compile(optimizer=tf.keras.optimizers.Adam(rate), loss='sparse_categorical_crossentropy', metrics=['accuracy'])

start = time.time()
model.fit(batches(x_train, y_train), epochs=EPOCHS, verbose=(2 if hvd.rank() == 0 else 0),
          callbacks=[BroadcastGlobalVariablesCallback(0), MetricAverageCallback()])

if hvd.rank() == 0:
    print(f'{EPOCHS} epochs in {time.time() - start:.1f} s')
    model.save_weights(os.environ.get('COURSE_WEIGHTS', 'weights.h5'))
    print('validation:', model.evaluate(x_valid, y_valid, verbose=0, return_dict=True)['accuracy'])
