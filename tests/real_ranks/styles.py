"""Train in one style after the other on these ranks, each with a log of its own: `python styles.py FOLDER`."""

import sys
from pathlib import Path

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf

from course_lib.ranks.instrumentation import install

STEPS, BATCH = 8, 16

hvd.init()
rank, size = hvd.rank(), hvd.size()
images = np.random.default_rng(0).random((STEPS * BATCH * size, 8, 8, 3), np.float32)[rank::size]
data = tf.data.Dataset.from_tensor_slices((images, np.arange(len(images)) % 4)).batch(BATCH)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
layers = tf.keras.layers


class Own(tf.keras.Sequential):
    def train_step(self, given):
        return {"loss": tape_step(self, [self.optimizer])(*given)}


def network(kind=tf.keras.Sequential):
    """Of another shape in each style: Horovod's compiled functions are reused for weights of the same shapes."""
    width = 5 + list(STYLES).index(name)
    return kind([layers.Flatten(input_shape=(8, 8, 3)), layers.Dense(width, activation="relu"), layers.Dense(4)])


def fit(model, optimizer):
    model.compile(optimizer, loss)
    model.fit(data, epochs=1, verbose=0, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])


def fit_distributed(**options):
    fit(network(), hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01), **options))


def mixed_precision():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    fit_distributed()
    tf.keras.mixed_precision.set_global_policy("float32")


def tape_step(model, optimizers, share=True):
    """A step in which each optimizer updates its part of the weights."""

    def step(images, labels):
        with tf.GradientTape() as tape:
            error = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape) if share else tape
        pairs = list(zip(tape.gradient(error, model.trainable_variables), model.trainable_variables))
        for number, optimizer in enumerate(optimizers):
            optimizer.apply_gradients(pairs[number :: len(optimizers)])
        return error

    return step


def sharpness_aware_step(model, optimizers):
    """A step that takes the gradient where the weights are a little higher on the loss."""

    def step(images, labels):
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            error = loss(labels, model(images, training=True))
        ascent = [0.05 * gradient for gradient in tape.gradient(error, weights)]
        for one, weight in zip(ascent, weights):
            weight.assign_add(one)
        with tf.GradientTape() as tape:
            error = loss(labels, model(images, training=True))
        gradients = hvd.DistributedGradientTape(tape).gradient(error, weights)
        for one, weight in zip(ascent, weights):
            weight.assign_sub(one)
        optimizers[0].apply_gradients(zip(gradients, weights))

    return step


def compiled_step(model, optimizers, updates):
    """A step whose gradients XLA computes; its `updates` too, or not."""

    @tf.function(jit_compile=True)
    def gradients(images, labels):
        with tf.GradientTape() as tape:
            error = loss(labels, model(images, training=True))
        return tape.gradient(error, model.trainable_variables)

    def update(*shared):
        optimizers[0].apply_gradients(zip(shared, model.trainable_variables))

    optimizers[0].build(model.trainable_variables)
    update = tf.function(update, jit_compile=True) if updates else update
    return lambda images, labels: update(*[hvd.allreduce(one) for one in gradients(images, labels)])


def loop(make_step, wrap=tf.function, optimizers=1, **options):
    model = network()
    hvd.broadcast_variables(model.variables, root_rank=0)
    step = wrap(make_step(model, [tf.keras.optimizers.SGD(0.1) for _ in range(optimizers)], **options))
    for given in data:
        step(*given)
    model(images)  # no step


STYLES = {
    "fit": fit_distributed,
    "accumulation": lambda: fit_distributed(backward_passes_per_step=2),
    "mixed precision": mixed_precision,
    "own train_step": lambda: fit(network(Own), tf.keras.optimizers.SGD(0.1)),
    "graph": lambda: loop(tape_step),
    "eager": lambda: loop(tape_step, wrap=lambda step: step),
    "two optimizers": lambda: loop(tape_step, optimizers=2),
    "sharpness-aware": lambda: loop(sharpness_aware_step),
    "compiled": lambda: loop(compiled_step, updates=False),
    "compiled updates": lambda: loop(compiled_step, updates=True),
    "apart": lambda: loop(tape_step, share=False),
}

for name, style in STYLES.items():
    patches = install.install(Path(sys.argv[1]) / name, lambda *_, **__: None)
    hvd.init()
    style()
    patches.undo()
