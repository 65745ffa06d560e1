"""CIFAR-10 on all ranks with a training loop of my own.

Each pass: shuffle everything the same way on all ranks, take every size-th image,
walk over it in minibatches, average the gradients with Horovod's tape.
"""

import math
import os
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

PASSES = 4
MINIBATCH = 64
BASE_LR = 0.04
WARMUP_STEPS = 40


def pin_gpu():
    devices = tf.config.list_physical_devices("GPU")
    for device in devices:
        tf.config.experimental.set_memory_growth(device, True)
    if devices:
        tf.config.set_visible_devices(devices[hvd.local_rank()], "GPU")


def load_split(fraction=0.1):
    everything = data.load("cifar10", test=False)
    cut = int(len(everything.x_train) * (1 - fraction))
    fit_part = everything.x_train[:cut], everything.y_train[:cut]
    check_part = everything.x_train[cut:], everything.y_train[cut:]
    return fit_part, check_part, len(everything.classes)


def my_indices(total, epoch):
    """Indices for this rank: same number on each rank so nobody waits forever in the allreduce."""
    order = np.random.RandomState(1234 + epoch).permutation(total)
    usable = total - total % (MINIBATCH * hvd.size())
    return order[:usable][hvd.rank() :: hvd.size()]


def learning_rate(step, total_steps):
    peak = BASE_LR * hvd.size()
    if step < WARMUP_STEPS:
        return BASE_LR + (peak - BASE_LR) * step / WARMUP_STEPS
    progress = (step - WARMUP_STEPS) / max(1, total_steps - WARMUP_STEPS)
    return 0.5 * peak * (1 + math.cos(math.pi * progress))


def make_step(net, opt):
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def train_step(pictures, targets):
        pictures = tf.image.random_flip_left_right(pictures)
        with tf.GradientTape() as tape:
            predictions = net(pictures, training=True)
            value = cross_entropy(targets, predictions)
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(value, net.trainable_variables)
        opt.apply_gradients(zip(grads, net.trainable_variables))
        return value

    return train_step


def accuracy_of(net, pictures, targets):
    hits = 0
    for begin in range(0, len(pictures), 500):
        scores = net(pictures[begin : begin + 500], training=False)
        hits += int(np.sum(np.argmax(scores, axis=1) == targets[begin : begin + 500]))
    return hits / len(pictures)


def main():
    hvd.init()
    pin_gpu()
    (x, y), (x_check, y_check), classes = load_split()

    net = models.assessment_cnn(x.shape[1:], classes)
    opt = tf.keras.optimizers.SGD(BASE_LR, momentum=0.9)
    opt.build(net.trainable_variables)
    hvd.broadcast_variables(net.variables, root_rank=0)
    hvd.broadcast_variables(opt.variables, root_rank=0)

    train_step = make_step(net, opt)
    total_steps = PASSES * (len(x) // (MINIBATCH * hvd.size()))
    done = 0
    began = time.perf_counter()
    for epoch in range(PASSES):
        losses = []
        indices = my_indices(len(x), epoch)
        for begin in range(0, len(indices), MINIBATCH):
            chosen = indices[begin : begin + MINIBATCH]
            opt.learning_rate.assign(learning_rate(done, total_steps))
            losses.append(train_step(tf.constant(x[chosen], tf.float32), tf.constant(y[chosen])))
            done += 1
        mean_loss = float(hvd.allreduce(tf.reduce_mean(losses)))
        if hvd.rank() == 0:
            print(f"pass {epoch + 1}/{PASSES}  loss {mean_loss:.4f}  {time.perf_counter() - began:.0f} s", flush=True)

    if hvd.rank() == 0:
        net.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
        print(f"held-out accuracy {accuracy_of(net, x_check, y_check):.3f}")


if __name__ == "__main__":
    main()
