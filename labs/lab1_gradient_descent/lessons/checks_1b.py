"""Checks of notebook 1b: mini-batches, an epoch of SGD, and update rules, which are held against Keras's optimizers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from course_lib.notebook.answers import array, case, compare, returned, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.update_rules import (
    ETA_MISSING,
    WRONG_SIGN,
    Rule,
    collected,
    compare_walk,
    delayed,
    judge_memory,
    take_step,
    walk,
)

# --- minibatches

CASES = ((12, 4), (10, 3), (1279, 64), (7, 1), (5, 8))  # examples, batch size; also where they do not divide


def _batches(function: Callable, examples: int, size: int, epoch: int = 0, seed: int = 0) -> list[np.ndarray]:
    return [np.asarray(batch) for batch in returned(function(examples, size, epoch, seed))]


def _judge_form(batches: Sequence[np.ndarray], examples: int) -> None:
    if not batches:
        raise Wrong("there is no batch; return a list of arrays.")
    for number, batch in enumerate(batches):
        if batch.ndim != 1 or not np.issubdtype(batch.dtype, np.integer):
            raise Wrong(
                f"batch {number} is {batch.dtype} of shape {batch.shape}; it should be a list of whole numbers."
            )
        outside = batch[(batch < 0) | (batch >= examples)]
        if len(outside):
            raise Wrong(f"batch {number} holds example {outside[0]}, but they are numbered from 0 to {examples - 1:,}.")


def _judge_each_once(function: Callable) -> None:
    for examples, size in CASES:
        with case(f"{examples:,} examples in batches of {size}"):
            batches = _batches(function, examples, size)
            _judge_form(batches, examples)
            times = np.bincount(np.concatenate(batches), minlength=examples)
            missing = np.count_nonzero(times == 0)
            if times.max() > 1:
                raise Wrong(
                    f"in one epoch some examples come up to {times.max()} times and {missing:,} not at all. "
                    "Draw without replacement: shuffle all the numbers, then cut."
                )
            if missing and missing == examples % size:
                raise Wrong(
                    f"the last {missing} of the shuffle are lost. Where the batch size does not divide the number of "
                    "examples, the last batch is smaller."
                )
            if missing:
                raise Wrong(f"{missing:,} examples are in no batch of the epoch.")


def _judge_sizes(function: Callable) -> None:
    for examples, size in CASES:
        sizes = [len(batch) for batch in _batches(function, examples, size)]
        expected = [size] * (examples // size) + [examples % size] * (examples % size > 0)
        compare(sizes, expected, f"{examples:,} examples in batches of {size}: the list of the batches' sizes")


def _judge_shuffle(function: Callable) -> None:
    def order(epoch: int = 0, seed: int = 0) -> np.ndarray:
        return np.concatenate(_batches(function, 1000, 10, epoch, seed))

    first, next_epoch, next_seed = order(), order(epoch=1), order(seed=1)
    if not np.array_equal(first, order()):
        raise Wrong("asked twice for the same epoch, the function answers differently: seed its random generator.")
    for one, other, sentence in (
        (first, np.sort(first), "the examples come in their stored order: shuffle them."),
        (
            first,
            next_epoch,
            "epoch 1 has the same batches as epoch 0: reshuffle in every epoch, by putting `epoch` into the seed.",
        ),
        (
            first,
            next_seed,
            "seed 1 gives the same batches as seed 0: put `seed` into the random generator's seed too.",
        ),
        (
            next_epoch,
            next_seed,
            "epoch 1 of seed 0 is epoch 0 of seed 1: seed with both numbers, [seed, epoch], not with their sum.",
        ),
    ):
        if np.array_equal(one, other):
            raise Wrong(sentence)


# --- sgd_epoch

EXAMPLES, BATCH_SIZE, LEARNING_RATE = 11, 4, 0.01
FIRST_WEIGHTS = np.array([0.02, -1.0, 0.5])


class _Call(NamedTuple):
    """A call of `gradient` by the learner's `sgd_epoch`."""

    w: np.ndarray
    examples: np.ndarray
    labels: np.ndarray
    gradient: np.ndarray


def _run_epoch(function: Callable, w: np.ndarray, epoch: int = 0, seed: int = 0) -> tuple[list[_Call], np.ndarray]:
    """An epoch with a small linear model: the gradients that were asked for, and what is returned."""
    random = np.random.default_rng(5)
    x = np.column_stack([np.arange(EXAMPLES), random.normal(size=(EXAMPLES, 2))])  # column 0 tells the example
    y = np.arange(EXAMPLES) / 10
    calls = []

    def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        g = x.T @ (x @ w - y) / len(y)
        calls.append(_Call(np.array(w), np.array(x[:, 0], int), np.array(y), g))
        return g.copy()

    result = function(w, x, y, gradient, LEARNING_RATE, BATCH_SIZE, epoch, seed)
    if not calls:
        raise Wrong("`gradient` was never called.")
    return calls, result


def _judge_calls(function: Callable) -> None:
    calls, result = _run_epoch(function, FIRST_WEIGHTS.copy())
    returned(result)
    if not all(np.array_equal(call.labels, call.examples / 10) for call in calls):
        raise Wrong("the labels do not belong to the examples: take the same batch of numbers from x and from y.")
    sizes = [len(call.examples) for call in calls]
    with case(f"{EXAMPLES} examples in batches of {BATCH_SIZE}"):
        if sizes == [EXAMPLES]:
            raise Wrong("a step over all examples is gradient descent; step once for each batch.")
        if sorted(np.concatenate([call.examples for call in calls])) != list(range(EXAMPLES)):
            raise Wrong(f"the gradients are of {sizes} examples; an epoch uses each of the {EXAMPLES} once.")
        compare(len(calls), 3, "the number of gradients, one for each batch,")
    if all(np.array_equal(call.w, calls[0].w) for call in calls):
        raise Wrong("all gradients were taken at the first weights: update w after each batch.")


def _judge_weights(function: Callable) -> None:
    calls, result = _run_epoch(function, FIRST_WEIGHTS.copy())
    weights = [call.w for call in calls] + [array(result, FIRST_WEIGHTS.shape)]
    if not np.allclose(weights[0], FIRST_WEIGHTS):
        raise Wrong("the first gradient was not taken at the weights that the function got.")
    if len(calls) > 1 and np.allclose(weights[-1], weights[-2]) and not np.allclose(weights[-1], weights[0]):
        raise Wrong("the last batch's gradient was computed but not applied: update, then return.")
    for call, after in zip(calls, weights[1:]):
        _judge_change(after - call.w, call.gradient, len(call.examples))


def _judge_change(change: np.ndarray, g: np.ndarray, size: int) -> None:
    factor = -(change @ g) / (g @ g)
    if not np.allclose(change, -factor * g, atol=1e-12):
        raise Wrong("a step does not go along the gradient of its batch: w ← w − η g, one batch at a time.")
    eta = LEARNING_RATE
    mistakes = {
        "the steps go up the slope: subtract the gradient.": -eta,
        "η is applied twice in each step.": eta**2,
        "η is not applied: a step is η times the gradient.": 1.0,
        "the gradient is divided by the batch size once more; it is a mean already.": eta / size,
        "the gradient is multiplied by the batch size; it is a mean already, and η sets the step.": eta * size,
        "each gradient is applied twice.": 2 * eta,
        "the weights do not change.": 0.0,
    }
    compare(factor, eta, "the factor of the gradient in a step, η,", mistakes, atol=1e-12)


def _judge_arguments(function: Callable) -> None:
    def examples(epoch: int = 0, seed: int = 0) -> list[list[int]]:
        w = FIRST_WEIGHTS.copy()
        with unchanged(w):
            return [call.examples.tolist() for call in _run_epoch(function, w, epoch, seed)[0]]

    for argument in ("epoch", "seed"):
        if examples() == examples(**{argument: 1}):
            raise Wrong(f"{argument} 1 uses the same batches as {argument} 0: hand `{argument}` on to `minibatches`.")


# --- update rules

STEPS = 50
ETA = 2.0**-6  # Keras keeps its learning rate in float32: this one is exact there
START = np.array([[3.0, -2.0, 1.0], [0.5, 0.0, -1.0]])
TOLERANCE = 1e-6


def _gradients(small: bool) -> np.ndarray:
    """Gradients of all steps, of size about 1. Small ones, down to 0.0001, show where a rule puts its ε."""
    random = np.random.default_rng(11)
    shape = (STEPS, *START.shape)
    drawn = random.choice([-1.0, 1.0], shape, p=[0.3, 0.7]) * random.uniform(0.5, 2, shape)
    return drawn * 10.0 ** np.array([[0, -1, -2], [-3, -4, -4]]) if small else drawn


@lru_cache
def _keras_weights(name: str, small: bool) -> np.ndarray:
    """The weights after each step of Keras's own optimizer, in float64: [50, 2, 3]."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    keras = tf.keras.optimizers
    # TensorFlow takes a Python float for float32, and 0.999 rounded to that shifts Adam by 2e-6 in 50 steps.
    momentum, beta_1, beta_2 = np.array([0.9, 0.9, 0.999])
    make = {
        "sgd": keras.SGD,
        "momentum": partial(keras.SGD, momentum=momentum),
        "nesterov": partial(keras.SGD, momentum=momentum, nesterov=True),
        "adagrad": keras.Adagrad,
        "rmsprop": keras.RMSprop,
        "adam": partial(keras.Adam, beta_1=beta_1, beta_2=beta_2),
    }[name]
    optimizer = make(learning_rate=ETA, jit_compile=False)
    weights = tf.Variable(START)
    after = []
    for g in _gradients(small):
        optimizer.apply_gradients([(tf.constant(g), weights)])
        after.append(weights.numpy())
    return np.array(after)


# For each rule, over all steps: its direction d of w ← w − η d, and by sentence those of rules with a mistake.
Directions = tuple[np.ndarray, dict[str, np.ndarray]]
AVERAGED_GRADIENT = "the gradient enters the velocity with the factor 1 − β; in Keras it enters whole, times η."


def _sgd_directions(g: np.ndarray) -> Directions:
    return g, {}


def _momentum_directions(g: np.ndarray) -> Directions:
    v = collected(g, 0.9)
    return v, {
        "the velocity starts anew in each step, which leaves plain SGD: keep it in the state, and return it.": g,
        AVERAGED_GRADIENT: 0.1 * v,
        "w moves by the velocity of the step before: update the velocity first.": delayed(v),
        "this is Nesterov's rule: without it, w moves by the new velocity, v, and by nothing else.": 0.9 * v + g,
    }


def _nesterov_directions(g: np.ndarray) -> Directions:
    v = collected(g, 0.9)
    return 0.9 * v + g, {
        "the velocity starts anew in each step: keep it in the state, and return it.": 0.9 * g + g,
        "this is plain momentum: Nesterov's rule also looks ahead, by β v with the new v.": v,
        AVERAGED_GRADIENT: 0.9 * 0.1 * v + g,
        "the new velocity is added whole: look ahead by β v.": v + g,
    }


def _adagrad_directions(g: np.ndarray) -> Directions:
    def direction(total: np.ndarray) -> np.ndarray:
        return g / np.sqrt(total + 1e-7)

    total = collected(g**2, 1, start=0.1)
    one_total = collected(np.sum(g**2, axis=(1, 2), keepdims=True), 1, start=0.1)
    return direction(total), {
        "the sum of squares starts anew in each step: keep it in the state, and return it.": direction(0.1 + g**2),
        "the sum starts at 0: Keras starts it at 0.1, so that the first steps are not too long.": direction(
            total - 0.1
        ),
        "the root is missing: divide by the root of the sum of squares.": g / (total + 1e-7),
        "the squares are averaged with decay, which makes this RMSprop: Adagrad adds them up.": (
            direction(collected(0.1 * g**2, 0.9, start=0.1))
        ),
        "w moves by the sum of the step before: add this gradient's square first.": direction(delayed(total, 0.1)),
        "gradients are added up, not their squares.": direction(collected(np.abs(g), 1, start=0.1)),
        "the squares of all weights are added into one number: keep one sum for each weight.": direction(one_total),
    }


def _rmsprop_directions(g: np.ndarray) -> Directions:
    def direction(mean: np.ndarray) -> np.ndarray:
        return g / np.sqrt(mean + 1e-7)

    mean = collected(0.1 * g**2, 0.9)
    return direction(mean), {
        "the mean of squares starts anew in each step: keep it in the state, and return it.": direction(0.1 * g**2),
        "the squares are added up, which makes this Adagrad: RMSprop keeps a mean, ρ v + (1 − ρ) g².": (
            direction(collected(g**2, 1))
        ),
        "the new square enters whole: in a mean it has the weight 1 − ρ.": direction(10 * mean),
        "ρ and 1 − ρ are swapped: the old mean has the weight ρ.": direction(collected(0.9 * g**2, 0.1)),
        "the root is missing: divide by the root of the mean square.": g / (mean + 1e-7),
        "gradients are averaged, not their squares.": direction(collected(0.1 * np.abs(g), 0.9)),
        "ε stands outside the root: Keras has it inside, √(v + ε).": g / (np.sqrt(mean) + 1e-7),
    }


def _adam_directions(g: np.ndarray) -> Directions:
    t = np.arange(1, STEPS + 1).reshape(-1, 1, 1)
    m, v = collected(0.1 * g, 0.9), collected(0.001 * g**2, 0.999)
    m_correction, v_correction = 1 - 0.9**t, 1 - 0.999**t

    def direction(m=m, v=v, m_correction=m_correction, v_correction=v_correction) -> np.ndarray:  # noqa: ANN001
        return m / m_correction * np.sqrt(v_correction) / (np.sqrt(v) + 1e-7)

    return direction(), {
        "m, v and the step's number start anew in each step: keep all three in the state, and return them.": (
            direction(0.1 * g, 0.001 * g**2, 0.1, 0.001)
        ),
        "the bias correction is forgotten: m and v start at 0 and are too small at first.": (
            direction(m_correction=1, v_correction=1)
        ),
        "the bias correction of v is forgotten: divide by √(1 − β₂ᵗ) under the fraction too.": (
            direction(v_correction=1)
        ),
        "the bias correction of m is forgotten.": direction(m_correction=1),
        "the step's number t stays 1: count it in the state, and raise the betas to the power t.": (
            direction(m_correction=0.1, v_correction=0.001)
        ),
        "β₁ and 1 − β₁ are swapped: the old mean has the weight β₁.": direction(collected(0.9 * g, 0.1)),
        "the root is missing: divide by the root of v.": m / m_correction * np.sqrt(v_correction) / (v + 1e-7),
        "v averages gradients, not their squares.": direction(v=collected(0.001 * np.abs(g), 0.999)),
        "this is Algorithm 1 of the paper, with ε beside √v̂; Keras has ε beside √v, before the correction.": (
            m / m_correction / (np.sqrt(v / v_correction) + 1e-7)
        ),
        "ε stands inside the root: Adam adds it to √v.": m / m_correction / np.sqrt(v / v_correction + 1e-7),
    }


_DIRECTIONS = {
    "sgd": _sgd_directions,
    "momentum": _momentum_directions,
    "nesterov": _nesterov_directions,
    "adagrad": _adagrad_directions,
    "rmsprop": _rmsprop_directions,
    "adam": _adam_directions,
}


def _judge_steps(name: str, rule: Rule, small: bool = False, tolerance: float = TOLERANCE) -> None:
    gradients = _gradients(small)
    taken = walk(rule, START, gradients, [ETA] * STEPS)
    right, mistakes = _DIRECTIONS[name](gradients)
    mistakes = {WRONG_SIGN: -right, "η is applied twice.": ETA * right, ETA_MISSING: right / ETA, **mistakes}
    changes = {sentence: -ETA * direction for sentence, direction in mistakes.items()}
    compare_walk(taken, _keras_weights(name, small), changes, atol=tolerance)


def _update_rule(name: str, title: str) -> Exercise:
    def judge_roughly(rule: Rule) -> None:
        _judge_steps(name, rule, tolerance=10 * TOLERANCE)

    def judge_closely(rule: Rule) -> None:
        _judge_steps(name, rule)
        _judge_steps(name, rule, small=True)

    def judge_state(rule: Rule) -> None:
        judge_memory(rule, START, _gradients(small=False), ETA)
        take_step(rule, np.zeros(5), np.ones(5), None, ETA)

    return Exercise(
        name,
        Criterion("steps", f"{title}, {STEPS} steps", 0.5, judge_roughly),
        Criterion("as-keras", f"Equal to Keras's to {TOLERANCE:g}, small gradients included", 0.3, judge_closely),
        Criterion("state", "All memory is in the state", 0.2, judge_state),
    )


EXERCISES = Exercises(
    Exercise(
        "minibatches",
        Criterion("each-once", "Each example once an epoch", 0.4, _judge_each_once),
        Criterion("sizes", "The batches' sizes", 0.2, _judge_sizes),
        Criterion("shuffled", "Shuffled anew in each epoch", 0.4, _judge_shuffle),
    ),
    Exercise(
        "sgd_epoch",
        Criterion("step-for-each-batch", "A step for each mini-batch", 0.4, _judge_calls),
        Criterion("weights", "w ← w − η g", 0.4, _judge_weights),
        Criterion("arguments", "New batches in each epoch, the caller's w untouched", 0.2, _judge_arguments),
    ),
    _update_rule("sgd", "SGD"),
    _update_rule("momentum", "Momentum"),
    _update_rule("nesterov", "Nesterov"),
    _update_rule("adagrad", "Adagrad"),
    _update_rule("rmsprop", "RMSprop"),
    _update_rule("adam", "Adam"),
)
check, points = EXERCISES.check, EXERCISES.points
