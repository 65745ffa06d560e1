"""An optimizer whose state two and four ranks share out takes the steps of the serial one."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pytest

from course_lib.ranks import launch
from course_lib.system.paths import ROOT

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks can't import a test
pytestmark = [pytest.mark.slow, pytest.mark.ranks]
WEIGHTS = 58  # which four ranks share unevenly
ARRAYS = {"Adam": 2, "momentum": 1}  # of state, as long as the weights


def weights_and_shares(name, stage):
    """Of twenty steps of an optimizer: the weights after them, and its shares on this rank.

    Stage 0 is in one piece, on all examples. Stage 1 of ZeRO takes all gradients at once, stage 2 those of the last
    layer first.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from labs.lab5_precision_and_memory.sharded import Sharded

    optimizers = {
        "Adam": lambda: tf.keras.optimizers.Adam(0.01, jit_compile=False),
        "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9, jit_compile=False),
    }
    random = np.random.default_rng(0)
    x = random.normal(size=(24, 7))
    y = np.tanh(x[:, :3])
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Dense(5, "tanh"), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential([tf.keras.Input((7,)), *layers])
    variables = model.trainable_variables
    mine = slice(hvd.rank(), None, hvd.size()) if stage else slice(None)
    groups = {0: [], 1: [variables], 2: [layer.trainable_variables for layer in reversed(layers)]}[stage]
    shares = [Sharded(optimizers[name](), group) for group in groups]
    whole = optimizers[name]()
    for _ in range(20):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[mine]) - y[mine]) ** 2)
        gradients = {variable.ref(): g for variable, g in zip(variables, tape.gradient(loss, variables))}
        for group, share in zip(groups, shares):
            share.apply_gradients([gradients[variable.ref()] for variable in group])
        if stage == 0:
            whole.apply_gradients([(gradients[variable.ref()], variable) for variable in variables])
    return np.concatenate([variable.numpy().ravel() for variable in variables]), shares


def sharded_and_whole():
    """Optimizer, stage → how far the weights are from the serial ones, bytes of state, numbers in the shares."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    tf.keras.backend.set_floatx("float64")
    measured = {}
    for name in ARRAYS:
        serial, _ = weights_and_shares(name, 0)
        for stage in (1, 2):
            weights, shares = weights_and_shares(name, stage)
            sizes = sum(share.share.shape.num_elements() for share in shares)
            measured[name, stage] = np.abs(weights - serial).max(), sum(share.state_bytes for share in shares), sizes
    return measured


@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_ranks_take_the_steps_of_one(ranks):
    by_rank = launch.call(sharded_and_whole, ranks)
    for name, arrays in ARRAYS.items():
        for stage, uneven in ((1, 1), (2, 2)):  # each `Sharded` gives some ranks one number more
            apart, state, shares = zip(*(rank[name, stage] for rank in by_rank))
            assert max(apart) < 1e-6
            assert sum(shares) == WEIGHTS and max(shares) - min(shares) <= uneven
            assert list(state) == [8 * arrays * share for share in shares]


def test_the_example_trains_and_says_what_it_keeps():
    with launch.start(ROOT / "labs/lab5_precision_and_memory/sharded.py", ["--units", "33"], 2) as run:
        lines = [event.data["text"] for event in run if event.kind == "output"]
    assert run.wait().code == 0
    kept = sorted(line for line in lines if "bytes of state" in line)
    weights = 64 * 33 + 33 + 2 * (33 * 33 + 33) + 33 * 10 + 10
    shares = (weights + 1) // 2, weights // 2
    told = [f"rank {rank}: {weights:,} weights, {8 * share:,} bytes of state" for rank, share in enumerate(shares)]
    assert kept == told
    losses = [float(line.split()[-1]) for line in lines if "loss" in line]
    assert len(losses) == 4 and losses[-1] < 0.9 * losses[0]
