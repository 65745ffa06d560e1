"""Check update rules of notebooks 1b and 1f against Keras's optimizers."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from course_lib.notebook.exercises import Exercise
from course_lib.notebook.judging import Criterion
from course_lib.notebook.update_rules import (
    ETA_MISSING,
    WRONG_SIGN,
    Rule,
    collected,
    compare_walk,
    judge_memory,
    take_step,
    walk,
)

STEPS = 50
ETA = 2.0**-6  # Keras keeps its learning rate in float32: this one and its halves are exact there
RATES = {"constant": np.full(STEPS, ETA), "falling": ETA * 0.5 ** np.minimum(np.arange(STEPS) // 4, 3)}
START = np.array([[3.0, -2.0, 1.0], [0.5, 0.0, -1.0]])
TOLERANCE = 1e-5


def gradients() -> np.ndarray:
    """The gradients of all steps, of size about 1: [50, 2, 3]."""
    random = np.random.default_rng(11)
    shape = (STEPS, *START.shape)
    return random.choice([-1.0, 1.0], shape, p=[0.3, 0.7]) * random.uniform(0.5, 2, shape)


@lru_cache
def keras_weights(name: str, rates: str) -> np.ndarray:
    """The weights after each step of Keras's own optimizer, in float64: [50, 2, 3]."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    keras = tf.keras.optimizers
    # TensorFlow takes a Python float for float32, and 0.999 rounded to that shifts Adam by 2e-6 in 50 steps.
    momentum, beta_1, beta_2 = np.array([0.9, 0.9, 0.999])
    make = {
        "momentum": partial(keras.SGD, momentum=momentum),
        "nesterov": partial(keras.SGD, momentum=momentum, nesterov=True),
        "adam": partial(keras.Adam, beta_1=beta_1, beta_2=beta_2),
    }[name]
    optimizer = make(learning_rate=ETA, jit_compile=False)
    weights = tf.Variable(START)
    after = []
    for g, eta in zip(gradients(), RATES[rates]):
        optimizer.learning_rate = eta
        optimizer.apply_gradients([(tf.constant(g), weights)])
        after.append(weights.numpy())
    return np.array(after)


# For each rule, over all steps: by sentence the changes of w that a rule with a mistake makes. g has the gradients,
# eta the learning rates [50, 1, 1].
Changes = dict[str, np.ndarray]
AVERAGED_GRADIENT = "the gradient enters the velocity with the factor 1 − β; in Keras it enters whole, times η."
STARTS_ANEW = "the velocity starts anew in each step: keep it in the state, and return it."


def velocity_mistakes(v: np.ndarray, step: Callable[[np.ndarray, np.ndarray], np.ndarray], g: Any, eta: Any) -> Changes:
    """Those of a rule that moves w by step(velocity, η g)."""
    bare = collected(g, 0.9)  # without η
    return {
        WRONG_SIGN: step(v, eta * g),
        "η is applied twice.": -eta * step(v, eta * g),
        ETA_MISSING: -step(bare, g),
        AVERAGED_GRADIENT: -step(0.1 * v, eta * g),
        "the gradient enters the velocity with the factor 1 − β; it enters whole, times η.": -step(
            0.1 * v, 0.1 * eta * g
        ),
        "that is PyTorch's form, in which the whole velocity is multiplied by the new η. Put η into the velocity.": (
            -eta * step(bare, g)
        ),
    }


def update_rule(
    name: str,
    title: str,
    mistakes: Callable[[np.ndarray, np.ndarray], Changes],
    first: Callable[[Rule], None] = lambda rule: None,
) -> Exercise:
    """The exercise of a rule that Keras has too.

    Args:
        name: of the rule, "momentum", "nesterov" or "adam".
        mistakes: (gradients, learning rates) → the changes of w with each mistake.
        first: judges the rule before its steps are compared.
    """

    def judge_steps(rates: str) -> Callable[[Rule], None]:
        def judge(rule: Rule) -> None:
            first(rule)
            taken = walk(rule, START, gradients(), RATES[rates])
            with np.errstate(all="ignore"):
                wrong = mistakes(gradients(), taken.rates)
            compare_walk(taken, keras_weights(name, rates), wrong, atol=TOLERANCE)

        return judge

    def judge_state(rule: Rule) -> None:
        judge_memory(rule, START, gradients(), ETA)
        take_step(rule, np.zeros(5), np.ones(5), None, ETA)

    return Exercise(
        name,
        Criterion("steps", f"{title}, {STEPS} steps as in Keras", 0.5, judge_steps("constant")),
        Criterion("falling", "The same while η falls", 0.3, judge_steps("falling")),
        Criterion("state", "All memory is in the state", 0.2, judge_state),
    )
