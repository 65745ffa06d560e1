"""Assessment with a keras Sequence: all of the augmentation is done in NumPy."""
import os
import time

import horovod.tensorflow.keras as hvd
import numpy as np
from tensorflow import config, keras

from course_lib import data, models


class CifarSequence(keras.utils.Sequence):
    """Minibatches of one worker.

    The list of images is cut into `workers` interleaved pieces. A piece is
    reordered after each epoch; every piece gives the same number of batches.
    """

    def __init__(self, images, labels, batch_size, worker, workers, pad=3):
        self.images = images[worker::workers]
        self.labels = labels[worker::workers]
        self.batch_size = batch_size
        self.pad = pad
        self.number = len(images) // workers // batch_size
        self.rng = np.random.default_rng(97 * worker + 5)
        self.on_epoch_end()

    def __len__(self):
        return self.number

    def __getitem__(self, i):
        pick = self.permutation[i * self.batch_size:(i + 1) * self.batch_size]
        return self.augment(self.images[pick]), self.labels[pick]

    def on_epoch_end(self):
        self.permutation = self.rng.permutation(len(self.images))

    def augment(self, batch):
        p = self.pad
        n, height, width, _ = batch.shape
        padded = np.pad(batch, ((0, 0), (p, p), (p, p), (0, 0)), mode="reflect")
        dy, dx = self.rng.integers(0, 2 * p + 1, size=2)      # one shift for the whole batch: much faster
        out = padded[:, dy:dy + height, dx:dx + width]
        mirror = self.rng.random(n) < 0.5
        out[mirror] = out[mirror, :, ::-1]
        return out


class EpochTimer(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.t0 = time.time()

    def on_epoch_end(self, epoch, logs=None):
        print("epoch %d took %.1f s, loss %.3f" % (epoch, time.time() - self.t0, logs["loss"]))


def schedule(epoch, lr):
    table = {0: 0.05, 1: 0.1, 2: 0.05, 3: 0.01}
    return table.get(epoch, 0.002) * hvd.size() / 2


hvd.init()
cards = config.list_physical_devices("GPU")
if cards:
    config.set_visible_devices(cards[hvd.local_rank()], "GPU")

dataset = data.load("cifar10", test=False)
split = -len(dataset.x_train) // 8
sequence = CifarSequence(dataset.x_train[:split], dataset.y_train[:split], 80, hvd.rank(), hvd.size())
holdout = dataset.x_train[split:], dataset.y_train[split:]

cnn = models.assessment_cnn((32, 32, 3), 10)
sgd = keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, clipnorm=None)
cnn.compile(loss="sparse_categorical_crossentropy", optimizer=hvd.DistributedOptimizer(sgd), metrics="accuracy")

hooks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
hooks += [keras.callbacks.LearningRateScheduler(schedule)]
if not hvd.rank():
    hooks += [EpochTimer()]

cnn.fit(sequence, epochs=5, callbacks=hooks, verbose=0, shuffle=False)

loss, acc = cnn.evaluate(*holdout, batch_size=256, verbose=0)
loss, acc = (hvd.allreduce(value) for value in (loss, acc))
if not hvd.rank():
    cnn.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
    print("holdout loss %.3f accuracy %.3f" % (loss, acc))
