"""The layer-wise optimizers on two real ranks against the serial run."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pytest

from course_lib import optimizers
from course_lib.ranks import launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks can't import a test
pytestmark = [pytest.mark.slow, pytest.mark.ranks]

NAMES = optimizers.__all__
IN_PASSES = "LAMBx1", "LAMBx2"  # a step's batch comes in so many passes, and the rate is constant


def trained_on_a_rank():
    """Weights after twenty steps of each optimizer under Horovod."""
    import horovod.tensorflow.keras as hvd
    from tensorflow import keras

    hvd.init()
    random = np.random.default_rng(0)
    x = random.normal(size=(20 * 32, 12)).astype(np.float32)
    y = np.tanh(x[:, :3]) + x[:, 3:6]
    mine = slice(hvd.rank(), None, hvd.size())
    weights = {}
    for name in (*NAMES, *IN_PASSES):
        kind, _, passes = name.partition("x")
        passes = int(passes or 1)
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)])
        options = {"weight_decay": 0.01} if kind == "NovoGrad" else {"weight_decay": 0.01, "exclude": ["bias"]}
        rate = 0.1 if kind in ("LARS", "LARC") else 0.01
        if kind == name:
            rate = keras.optimizers.schedules.PolynomialDecay(rate, 20)
        optimizer = getattr(optimizers, kind)(rate, **options)
        options = {"backward_passes_per_step": passes, "average_aggregated_gradients": passes > 1}
        model.compile(hvd.DistributedOptimizer(optimizer, **options), "mse")
        model.fit(x[mine], y[mine], batch_size=32 // hvd.size() // passes, epochs=1, shuffle=False, verbose=0)
        weights[name] = model.get_weights()
    return weights


@pytest.fixture(scope="module")
def trained():
    """Number of ranks → the weights of each rank."""
    return {ranks: launch.call(trained_on_a_rank, ranks) for ranks in (1, 2)}


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_take_the_steps_of_one(name, trained):
    (serial,), (first, second) = trained[1], trained[2]
    for one, mine, other in zip(serial[name], first[name], second[name]):
        np.testing.assert_array_equal(mine, other)
        np.testing.assert_allclose(mine, one, rtol=0, atol=1e-5)


def test_lamb_corrects_its_bias_by_steps_where_a_step_takes_several_passes(trained):
    at_once = trained[1][0]["LAMBx1"]
    for ranks in (1, 2):
        for one, other in zip(at_once, trained[ranks][0]["LAMBx2"]):
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)
