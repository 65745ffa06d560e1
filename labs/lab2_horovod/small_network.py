"""A small network and drawn images, for watching ranks at work. Nothing is learned here.

horovodrun -np 2 python small_network.py
"""

import argparse
import time

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int, default=2560, help="of all ranks together")
parser.add_argument("--batch-size", type=int, default=64, help="on each rank")
parser.add_argument("--steps", type=int, default=-1, help="the most steps that a rank takes (-1: as many as it has)")
parser.add_argument("--late", type=float, default=0, help="milliseconds that the last rank sleeps before each step")
parser.add_argument("--disk", type=float, default=0, help="milliseconds that the last rank waits for each batch")
parser.add_argument("--prefetch", type=int, default=0, help="batches that are read ahead of the training")
args = parser.parse_args()

hvd.init()
if gpus := tf.config.list_physical_devices("GPU"):
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
tf.keras.utils.set_random_seed(1)
tf.get_logger().setLevel("ERROR")
images = np.random.default_rng(0).random((args.images, 28, 28, 1), np.float32)
labels = np.arange(args.images) % 10
data = tf.data.Dataset.from_tensor_slices((images, labels))
batches = data.shard(hvd.size(), hvd.rank()).batch(args.batch_size).take(args.steps)
steps = len(list(batches))


def wait_for_disk():
    if hvd.rank() == hvd.size() - 1:
        time.sleep(args.disk / 1000)


def read(images, labels):
    tf.py_function(wait_for_disk, [], [])
    return images, labels


if args.disk:
    batches = batches.map(read)
options = tf.data.Options()
options.autotune.enabled = False  # else tf.data prefetches by itself
batches = batches.with_options(options)
if args.prefetch:
    batches = batches.prefetch(args.prefetch)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=(28, 28, 1), name="conv1"),
        tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu", name="conv2"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu", name="dense1"),
        tf.keras.layers.Dense(10, name="dense2"),
    ]
)
model.compile(
    optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)


def sleep(batch, logs):
    if hvd.rank() == hvd.size() - 1:
        time.sleep(args.late / 1000)


callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    tf.keras.callbacks.LambdaCallback(on_batch_begin=sleep),
]
print(f"rank {hvd.rank()} of {hvd.size()}: {steps} steps", flush=True)
model.fit(batches, callbacks=callbacks, verbose=0)
print(f"rank {hvd.rank()}: done", flush=True)
