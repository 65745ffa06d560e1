"""A callback averages the weights in NumPy, and puts the average in to judge, and to save it."""

import os
import time

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from course_lib import data, models

EPOCHS = 4
BATCH_SIZE = 128
RATE = 0.1
DECAY = 0.97

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class WeightAverage(tf.keras.callbacks.Callback):
    """average <- d average + (1 - d) weights after each update, with d = min(decay, (1 + t) / (10 + t)).

    It does not touch the training: the average is put into the network for the evaluation at an epoch's end, then the
    weights are put back. Only when training has ended it stays. Ranks have the same weights and so the same average.
    Stands behind the broadcast, so that it never sees weights from before it.
    """

    def __init__(self, x, y, decay):
        super().__init__()
        self.x, self.y, self.decay = x, y, decay
        self.average, self.updates = None, 0

    def on_train_batch_end(self, batch, logs=None):
        weights = self.model.get_weights()  # batch norm's moving averages included
        if self.average is None:
            self.average = weights
            return
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.average = [decay * a + (1 - decay) * w for a, w in zip(self.average, weights)]

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.get_weights()
        self.model.set_weights(self.average)
        results = self.model.evaluate(self.x, self.y, batch_size=500, verbose=0, return_dict=True)
        self.model.set_weights(weights)
        if logs is not None:
            logs["ema_loss"], logs["ema_accuracy"] = results["loss"], results["accuracy"]

    def on_train_end(self, logs=None):
        self.model.set_weights(self.average)


def mirrored(images, labels):
    return tf.image.random_flip_left_right(images), labels


def batches(images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(len(images), seed=1)
    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH_SIZE, drop_remainder=True)
    dataset = dataset.take(len(images) // (BATCH_SIZE * hvd.size()))
    dataset = dataset.map(mirrored).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


cifar = data.load("cifar10", test=False)
held_out = len(cifar.x_train) // 10
x_train, y_train = cifar.x_train[:-held_out], cifar.y_train[:-held_out]
mine = slice(len(cifar.x_train) - held_out + hvd.rank(), None, hvd.size())
x_valid, y_valid = cifar.x_train[mine], cifar.y_train[mine]

steps = len(x_train) // (BATCH_SIZE * hvd.size())
rate = tf.keras.optimizers.schedules.CosineDecay(
    RATE, (EPOCHS - 1) * steps, warmup_target=RATE * hvd.size(), warmup_steps=steps
)
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True))
model = models.assessment_cnn(x_train.shape[1:], len(cifar.classes))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    WeightAverage(x_valid, y_valid, DECAY),
    hvd.callbacks.MetricAverageCallback(),  # last, so that it averages the ema_ values, too
]
start = time.time()
history = model.fit(batches(x_train, y_train), epochs=EPOCHS, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)

if hvd.rank() == 0:
    print(f"{EPOCHS} epochs in {time.time() - start:.1f} s")
    model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))  # the average, since on_train_end
    print(f"Accuracy on {held_out:,} held-out images: {history.history['ema_accuracy'][-1]:.3f}")
