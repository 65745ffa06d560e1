"""Twenty steps of Keras optimizers, sharded and in one piece: `sharded_steps.py FILE`.

Each rank writes FILE-<rank>.json: how far the sharded weights are from those of the serial run on all examples, and
the bytes of state.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from labs.lab5_precision_and_memory.sharded import Sharded

OPTIMIZERS = {
    "Adam": lambda: tf.keras.optimizers.Adam(0.01, jit_compile=False),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9, jit_compile=False),
}

hvd.init()
tf.keras.backend.set_floatx("float64")
random = np.random.default_rng(0)
x = random.normal(size=(24, 7))
y = np.tanh(x[:, :3])


def trained(name, sharded):
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Dense(5, "tanh"), tf.keras.layers.Dense(3)]  # 58 numbers: four ranks share them unevenly
    model = tf.keras.Sequential([tf.keras.Input((7,)), *layers])
    variables, optimizer = model.trainable_variables, OPTIMIZERS[name]()
    mine = slice(hvd.rank(), None, hvd.size()) if sharded else slice(None)
    shares = Sharded(optimizer, variables) if sharded else None
    for _ in range(20):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[mine]) - y[mine]) ** 2)
        gradients = tape.gradient(loss, variables)
        if sharded:
            shares.apply_gradients(gradients)
        else:
            optimizer.apply_gradients(zip(gradients, variables))
    return np.concatenate([variable.numpy().ravel() for variable in variables]), shares


found = {}
for name in OPTIMIZERS:
    weights, shares = trained(name, True)
    found[name] = {
        "apart": float(np.abs(weights - trained(name, False)[0]).max()),
        "state": shares.state_bytes,
        "share": shares.share.shape.num_elements(),
    }
Path(f"{sys.argv[1]}-{hvd.rank()}.json").write_text(json.dumps(found))
