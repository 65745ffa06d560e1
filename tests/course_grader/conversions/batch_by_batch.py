"""train_on_batch in two nested loops; the learning rate follows a triangle."""

import os
from datetime import datetime

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models


def setup():
    hvd.init()
    tf.keras.utils.set_random_seed(7)  # same start everywhere; broadcast below makes it certain
    found = tf.config.list_physical_devices("GPU")
    if found:
        tf.config.set_visible_devices([found[hvd.local_rank() % len(found)]], "GPU")


def build(shape, n_out, momentum=0.85):
    m = models.assessment_cnn(shape, n_out)
    o = tf.keras.optimizers.legacy.SGD(learning_rate=0.1, momentum=momentum)
    m.compile(optimizer=hvd.DistributedOptimizer(o), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    m.set_weights([hvd.broadcast(w, root_rank=0) for w in m.get_weights()])
    return m


def triangle(t, length, low=0.01, high=0.16):
    """low -> high in the first 30 %, then straight down to nearly nothing."""
    top = 0.3 * length
    return low + (high - low) * t / top if t < top else high * (length - t) / (length - top) + 1e-4


def cutout(batch, rs, side=8):
    batch = batch.copy()
    for img in batch:
        r, c = rs.randint(0, 32 - side, 2)
        img[r:r + side, c:c + side] = 128
    return batch


def train(m, xs, ys, epochs, bs, quiet):
    rs = np.random.RandomState(hvd.rank())
    n_steps = len(xs) // bs
    for e in range(epochs):
        perm = rs.permutation(len(xs))
        for k, part in enumerate(np.array_split(perm[:n_steps * bs], n_steps)):
            tf.keras.backend.set_value(m.optimizer.lr, triangle(e * n_steps + k, epochs * n_steps))
            b = cutout(xs[part], rs)
            if k % 2 == 0:
                b = np.flip(b, axis=2)
            logs = m.train_on_batch(b, ys[part], reset_metrics=(k == 0), return_dict=True)
        if not quiet:
            print(datetime.now().strftime("%H:%M:%S"), "epoch", e, {k: round(v, 3) for k, v in logs.items()})


def main(epochs=5, bs=128):
    setup()
    d = data.load("cifar10", test=False)
    n = len(d.x_train)
    fold = np.arange(n) % 12 == 0  # every twelfth image is for checking
    xs, ys = d.x_train[~fold], d.y_train[~fold]
    each = len(xs) // hvd.size()
    lo = each * hvd.rank()
    bs = min(bs, each // 4)
    m = build(d.x_train.shape[1:], len(d.classes))
    train(m, xs[lo:lo + each], ys[lo:lo + each], epochs, bs, quiet=hvd.rank() > 0)
    if hvd.rank() == 0:
        m.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
        print("checked on", fold.sum(), "images:", m.test_on_batch(d.x_train[fold][:1000], d.y_train[fold][:1000])[1])


main()
