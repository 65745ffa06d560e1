"""Twenty steps of Keras optimizers, sharded and in one piece: `sharded_steps.py FILE`.

Each rank writes FILE-<rank>.json: for each optimizer and stage of ZeRO, how far the sharded weights are from those of
the serial run on all examples, and the bytes of state.
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


def trained(name, stage):
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Dense(5, "tanh"), tf.keras.layers.Dense(3)]  # 58 numbers: four ranks share them unevenly
    model = tf.keras.Sequential([tf.keras.Input((7,)), *layers])
    variables = model.trainable_variables
    mine = slice(hvd.rank(), None, hvd.size()) if stage else slice(None)
    if stage == 0:
        optimizer = OPTIMIZERS[name]()
    # Stage 1 takes all gradients at once, stage 2 the last layer's first.
    groups = {0: [], 1: [variables], 2: [layer.trainable_variables for layer in reversed(layers)]}[stage]
    shares = [Sharded(OPTIMIZERS[name](), group) for group in groups]
    for _ in range(20):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[mine]) - y[mine]) ** 2)
        gradients = {variable.ref(): g for variable, g in zip(variables, tape.gradient(loss, variables))}
        for group, share in zip(groups, shares):
            share.apply_gradients([gradients[variable.ref()] for variable in group])
        if stage == 0:
            optimizer.apply_gradients([(gradients[variable.ref()], variable) for variable in variables])
    return np.concatenate([variable.numpy().ravel() for variable in variables]), shares


found = {}
for name in OPTIMIZERS:
    serial, _ = trained(name, 0)
    for stage in (1, 2):
        weights, shares = trained(name, stage)
        found[f"{name}, stage {stage}"] = {
            "apart": float(np.abs(weights - serial).max()),
            "state": sum(share.state_bytes for share in shares),
            "share": sum(share.share.shape.num_elements() for share in shares),
        }
Path(f"{sys.argv[1]}-{hvd.rank()}.json").write_text(json.dumps(found))
