"""The layer-wise optimizers against the papers' formulas and published check values."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from course_lib import optimizers
from course_lib.optimizers import LAMB, LARC, LARS, NovoGrad
from course_lib.optimizers.check_values import CHECK_VALUES, GRADIENTS, START

KINDS = [getattr(optimizers, name) for name in optimizers.__all__]


@pytest.mark.parametrize("name", CHECK_VALUES)
def test_published_check_values(name):
    rates, options, expected = CHECK_VALUES[name]
    optimizer, w = (
        getattr(optimizers, name)(rates[0], weight_decay=0.1, **options),
        tf.Variable(START, dtype=tf.float64),
    )
    for rate, gradient, after in zip(rates, GRADIENTS, expected):
        optimizer.learning_rate = rate
        optimizer.apply_gradients([(tf.constant(gradient, tf.float64), w)])
        np.testing.assert_allclose(w.numpy(), after, atol=1e-6)


# NumPy twins: one function for a step of one array, from the papers' formulas.


def norm(x):
    return np.sqrt(np.sum(np.square(x)))


def trust(w, g, o):
    return o.trust_coefficient * norm(w) / (norm(g) + o.decay * norm(w) + o.epsilon)


def lars(w, g, s, c, t, o, scaled):
    rate, b = (c * trust(w, g, o), o.decay) if scaled else (c, 0)
    s["v"] = o.momentum * s.get("v", 0) + rate * (g + b * w)
    return w - (o.momentum * s["v"] + rate * (g + b * w) if o.nesterov else s["v"])


def larc(w, g, s, c, t, o, scaled):
    rate = trust(w, g, o)
    rate, b = (min(rate, c) / c if o.clip else rate, o.decay) if scaled else (1, 0)
    d = rate * (g + b * w)
    s["v"] = o.momentum * s.get("v", 0) + d
    return w - c * (d + o.momentum * s["v"] if o.nesterov else s["v"])


def lamb(w, g, s, c, t, o, scaled):
    s["m"] = o.beta_1 * s.get("m", 0) + (1 - o.beta_1) * g
    s["v"] = o.beta_2 * s.get("v", 0) + (1 - o.beta_2) * g**2
    u = s["m"] / (1 - o.beta_1**t) / (np.sqrt(s["v"] / (1 - o.beta_2**t)) + o.epsilon)
    if not scaled:
        return w - c * u
    u = u + o.decay * w
    return w - c * norm(w) / norm(u) * u


def novograd(w, g, s, c, t, o, scaled):
    s["v"] = norm(g) ** 2 if t == 1 else o.beta_2 * s["v"] + (1 - o.beta_2) * norm(g) ** 2
    s["m"] = o.beta_1 * s.get("m", 0) + g / (np.sqrt(s["v"]) + o.epsilon) + o.decay * w
    return w - c * s["m"]


TWINS = {
    "LARS": (lars, lambda: LARS(0.1, 0.9, 0.01, 0.02)),
    "LARS without decay": (lars, lambda: LARS(0.1)),
    "LARS with Nesterov and ε": (lars, lambda: LARS(0.1, 0.8, 0.01, 0.02, nesterov=True, epsilon=0.1)),
    "LARS, no biases": (lars, lambda: LARS(0.1, 0.9, 0.01, 0.02, exclude=["bias", "gamma"])),
    "LARC": (larc, lambda: LARC(0.1, 0.9, 0.01, 0.2)),
    "LARC without clip": (larc, lambda: LARC(0.1, 0.9, 0.01, 0.02, clip=False)),
    "LARC with Nesterov, no biases": (larc, lambda: LARC(0.1, 0.9, 0.01, 0.2, nesterov=True, exclude=["bias"])),
    "LAMB": (lamb, lambda: LAMB(0.01, weight_decay=0.01)),
    "LAMB, no biases": (lamb, lambda: LAMB(0.01, 0.8, 0.99, 1e-3, 0.01, exclude=["bias", "gamma"])),
    "NovoGrad": (novograd, lambda: NovoGrad(0.01, weight_decay=0.01)),
}


@pytest.mark.parametrize("seed", (0, 1))
@pytest.mark.parametrize("name", TWINS)
def test_twenty_steps_on_a_tree_of_arrays_equal_the_formulas(name, seed):
    twin, make = TWINS[name]
    optimizer, random = make(), np.random.default_rng(seed)
    shapes = {"conv/kernel": (3, 3, 2, 4), "norm/gamma": (4,), "dense/kernel": (8, 5), "dense/bias": (5,)}
    weights = {n: random.normal(size=shape) for n, shape in shapes.items()}
    variables = {n: tf.Variable(w, name=n, dtype=tf.float64) for n, w in weights.items()}
    states = {n: {} for n in weights}
    for step in range(1, 21):
        rate = float(np.float32(0.05 / step))  # Keras keeps the rate in float32
        optimizer.learning_rate = rate
        gradients = {n: random.normal(size=shape) * 10.0 ** random.integers(-2, 2) for n, shape in shapes.items()}
        optimizer.apply_gradients([(tf.constant(gradients[n]), variables[n]) for n in weights])
        for n in weights:
            scaled = not any(pattern in n for pattern in optimizer.exclude or ())
            weights[n] = twin(weights[n], gradients[n], states[n], rate, step, optimizer, scaled)
    for n in weights:
        np.testing.assert_allclose(variables[n].numpy(), weights[n], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_every_argument_survives_the_config(kind):
    given = {"learning_rate": 0.3, "weight_decay": 0.02, "clipnorm": 2.0}
    if kind in (LARS, LARC):
        given.update(momentum=0.7, trust_coefficient=0.01, nesterov=True, epsilon=0.2, exclude=["bias", "gamma$"])
    else:
        given.update(beta_1=0.8, beta_2=0.9, epsilon=0.2)
    if kind is LARC:
        given["clip"] = False
    if kind is LAMB:
        given["exclude"] = ["bias"]
    config = kind.from_config(kind(**given).get_config()).get_config()
    assert config.pop("learning_rate") == pytest.approx(given.pop("learning_rate"))  # Keras keeps it in float32
    assert {name: config[name] for name in given} == given


def model(dtype="float32"):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,), dtype=dtype)
    x = keras.layers.Dense(5, activation="relu", dtype=dtype)(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, dtype=dtype)(x))


X = np.random.default_rng(0).normal(size=(64, 6))
Y = X @ np.arange(6.0)[:, None]


@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("kind", KINDS)
def test_trains_a_model_with_a_schedule(kind, dtype):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5 if kind in (LARS, LARC) else 0.05, 20, 0.9)
    options = {"trust_coefficient": 0.02} if kind in (LARS, LARC) else {}
    network = model(dtype)
    network.compile(kind(schedule, **options), "mse")
    losses = network.fit(X, Y, batch_size=16, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0]
    assert kind.from_config(network.optimizer.get_config())._learning_rate.decay_rate == 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_goes_on_from_a_saved_model_as_if_it_had_not_stopped(kind, tmp_path):
    network = model()
    network.compile(kind(0.01), "mse")
    network.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    network.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for one in (network, again):
        one.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(network.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_works_within_mixed_precisions_loss_scaling(kind):
    def step(optimizer, scaled):
        w = tf.Variable([[3.0, 4.0]])
        gradient = tf.constant([[0.5, -0.25]])
        if scaled:
            gradient = optimizer.get_scaled_loss(gradient)
            (gradient,) = optimizer.get_unscaled_gradients([gradient])
        optimizer.apply_gradients([(gradient, w)])
        return w.numpy()

    plain = step(kind(0.01, weight_decay=0.1), scaled=False)
    wrapped = step(keras.mixed_precision.LossScaleOptimizer(kind(0.01, weight_decay=0.1)), scaled=True)
    np.testing.assert_allclose(wrapped, plain, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_norms_neither_freeze_nor_divide_by_zero(kind):
    optimizer = kind(0.1)
    still, moved = tf.Variable([1.0, 2.0]), tf.Variable([0.0, 0.0])
    for _ in range(3):
        optimizer.apply_gradients([(tf.zeros(2), still), (tf.constant([1.0, -1.0]), moved)])
    np.testing.assert_array_equal(still.numpy(), [1.0, 2.0])
    assert np.isfinite(moved.numpy()).all()
    assert (np.abs(moved.numpy()) > 1e-3).all()


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_gradients_are_those_that_they_stand_for(kind):
    dense, sparse = tf.Variable([[1.0], [2.0], [3.0]]), tf.Variable([[1.0], [2.0], [3.0]])
    slices = tf.IndexedSlices(tf.constant([[0.5], [0.25]]), tf.constant([2, 2]), tf.constant([3, 1]))
    for variable, gradient in ((dense, tf.constant([[0.0], [0.0], [0.75]])), (sparse, slices)):
        optimizer = kind(0.1)
        for _ in range(2):
            optimizer.apply_gradients([(gradient, variable)])
    np.testing.assert_array_equal(dense.numpy(), sparse.numpy())


def test_lamb_counts_steps_not_horovods_passes():
    """With `backward_passes_per_step` Horovod counts an iteration for each pass, of which one in so many is a step."""
    weights = []
    for passes in (1, 4):
        variable, optimizer = tf.Variable([1.0, 2.0]), LAMB(0.1)
        for step in range(3):
            optimizer.build([variable])
            optimizer.iterations.assign(step * passes)
            optimizer.apply_gradients([(tf.constant([0.5, -1.0 - step]), variable)])
        weights.append(variable.numpy())
    np.testing.assert_array_equal(*weights)
