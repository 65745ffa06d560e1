"""Checks of notebook 1b: mini-batches, an epoch of SGD, momentum and Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from course_lib.notebook.answers import array, case, compare, items, plain, returned, short, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.update_rules import ETA_MISSING, WRONG_SIGN, Rule, collected, delayed, take_step
from labs.lab1_gradient_descent.lessons.rules_in_keras import (
    ETA,
    START,
    STARTS_ANEW,
    STEPS,
    Changes,
    gradients,
    update_rule,
    velocity_mistakes,
)

# --- minibatches

MOST_EPOCHS = 120
CASES = ((12, 4), (10, 3), (1279, 64), (7, 1), (5, 8))  # examples, batch size; also where they do not divide


def _batches(function: Callable, examples: int, size: int, epoch: int = 0, seed: int = 0) -> list[np.ndarray]:
    """The batches, each of which has numbers of examples in it."""
    batches = items(function(examples, size, epoch, seed), "a list of arrays, the batches, is expected")
    if not batches:
        raise Wrong("there is no batch; return a list of arrays.")
    return [_whole_numbers(batch, f"batch {place}", examples) for place, batch in enumerate(batches)]


def _whole_numbers(value: Any, what: str, examples: int) -> np.ndarray:
    batch = plain(value)
    if batch is None or batch.ndim != 1 or batch.dtype.kind not in "iu":
        got = short(value) if batch is None else f"{batch.dtype} of shape {batch.shape}"
        raise Wrong(f"{what} is {got}; it should be a list of whole numbers.")
    outside = batch[(batch < 0) | (batch >= examples)]
    if len(outside):
        raise Wrong(f"{what} holds example {outside[0]}, but they are numbered from 0 to {examples - 1:,}.")
    return batch


def _judge_each_once(function: Callable) -> None:
    for examples, size in CASES:
        with case(f"{examples:,} examples in batches of {size}"):
            batches = _batches(function, examples, size)
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

    first = order()
    if not np.array_equal(first, order()):
        raise Wrong("asked twice for the same epoch, the function answers differently: seed its random generator.")
    for other, sentence in (
        (np.sort(first), "the examples come in their stored order: shuffle them."),
        (
            order(epoch=1),
            "epoch 1 has the same batches as epoch 0: reshuffle in every epoch, by putting `epoch` into the seed.",
        ),
        (
            order(seed=1),
            "seed 1 gives the same batches as seed 0: put `seed` into the random generator's seed too.",
        ),
    ):
        if np.array_equal(first, other):
            raise Wrong(sentence)
    groups = [{frozenset(batch.tolist()) for batch in _batches(function, 1000, 10, epoch)} for epoch in (0, 1)]
    if groups[0] == groups[1]:
        raise Wrong(
            "the same examples are together in each epoch, only the batches change places: shuffle the examples."
        )
    _judge_pairs(function)


def _judge_pairs(function: Callable) -> None:
    """Each pair of seed and epoch has batches of its own. One number made of both, as 10 · seed + epoch, repeats."""
    pairs = [(seed, epoch) for seed in (0, 1) for epoch in range(MOST_EPOCHS)]
    pairs += [(seed, epoch) for seed in range(2, MOST_EPOCHS) for epoch in (0, 1)]
    seen: dict[bytes, tuple[int, int]] = {}
    for seed, epoch in pairs:
        order = np.concatenate(_batches(function, 30, 10, epoch, seed)).astype(int).tobytes()
        before = seen.setdefault(order, (seed, epoch))
        if before != (seed, epoch):
            raise Wrong(
                f"epoch {before[1]} of seed {before[0]} is epoch {epoch} of seed {seed}: seed with both numbers, "
                "[seed, epoch], not with their sum, nor with another number made of both."
            )


# --- sgd_epoch

EXAMPLES, BATCH_SIZE, LEARNING_RATE = 11, 4, 0.01
FIRST_WEIGHTS = np.array([0.02, -1.0, 0.5])
AT_FIRST_WEIGHTS = "all gradients were taken at the first weights: update w after each batch."


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
        raise Wrong(AT_FIRST_WEIGHTS)


def _judge_weights(function: Callable) -> None:
    calls, result = _run_epoch(function, FIRST_WEIGHTS.copy())
    weights = [call.w for call in calls] + [array(result, FIRST_WEIGHTS.shape)]
    if all(np.array_equal(call.w, calls[0].w) for call in calls) and not np.allclose(weights[-1], weights[0]):
        raise Wrong(AT_FIRST_WEIGHTS)
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


def _momentum_mistakes(g: np.ndarray, eta: np.ndarray) -> Changes:
    v = collected(eta * g, 0.9)
    return {
        f"{STARTS_ANEW[:-1]} (this is plain SGD).": -eta * g,
        "the velocity keeps the share 1 − β of what it had: it should keep β.": -collected(eta * g, 0.1),
        "w moves by the velocity of the step before: update the velocity first.": -delayed(v),
        "this is Nesterov's rule: without it, w moves by the new velocity, and by nothing else.": -(0.9 * v + eta * g),
        **velocity_mistakes(v, lambda v, step: v, g, eta),
    }


def _corrected_again(x: np.ndarray, share: np.ndarray, decay: float) -> np.ndarray:
    """A mean whose correction goes into the next step's mean."""
    held, memory = np.empty_like(x), 0.0
    for step, now in enumerate(x):
        held[step] = memory = (decay * memory + now) / share[step]
    return held


def _adam_mistakes(g: np.ndarray, eta: np.ndarray) -> Changes:
    t = np.arange(1, STEPS + 1).reshape(-1, 1, 1)
    m, v = collected(0.1 * g, 0.9), collected(0.001 * g**2, 0.999)
    m_share, v_share = 1 - 0.9**t, 1 - 0.999**t  # of the true means: both start at 0

    def change(m=m, v=v, m_share=m_share, v_share=v_share) -> np.ndarray:  # noqa: ANN001
        return -eta * m / m_share / (np.sqrt(v / v_share) + 1e-7)

    return {
        WRONG_SIGN: -change(),
        "η is applied twice.": eta * change(),
        ETA_MISSING: change() / eta,
        "m, v and the step's number start anew in each step: keep all three in the state, and return them.": (
            change(0.1 * g, 0.001 * g**2, 0.1, 0.001)
        ),
        "the bias correction is missing: m and v start at 0 and are too small at first.": change(m_share=1, v_share=1),
        "the bias correction of v is missing.": change(v_share=1),
        "the bias correction of m is missing.": change(m_share=1),
        "the step's number t stays 1, or is left out of βᵗ: the older the means, the smaller the correction.": (
            change(m_share=0.1, v_share=0.001)
        ),
        "the means are multiplied by 1 − βᵗ; they are too small by that factor: divide.": (
            change(m_share=1 / m_share, v_share=1 / v_share)
        ),
        "the correction has βᵗ in place of 1 − βᵗ: what share of the true mean does m have after t steps?": (
            change(m_share=0.9**t, v_share=0.999**t)
        ),
        "β₁ and 1 − β₁ are swapped: the old mean has the weight β₁.": change(collected(0.9 * g, 0.1)),
        "the new gradient enters m whole: in a mean it has the weight 1 − β₁.": change(10 * m),
        "the root is missing: divide by the root of v̂.": -eta * m / m_share / (v / v_share + 1e-7),
        "v averages gradients, not their squares.": change(v=collected(0.001 * np.abs(g), 0.999)),
        "v averages the squares of m: take those of the gradient.": change(v=collected(0.001 * m**2, 0.999)),
        "β₁ and β₂ are exchanged: β₁ belongs to m.": (
            change(collected(0.001 * g, 0.999), collected(0.1 * g**2, 0.9), v_share, m_share)
        ),
        "the corrected means are kept in the state, and corrected again: keep m and v as they were.": (
            change(_corrected_again(0.1 * g, m_share, 0.9), _corrected_again(0.001 * g**2, v_share, 0.999), 1, 1)
        ),
    }


def _judge_first_step(rule: Rule) -> None:
    """Adam's correction with t = 0 divides by 0, and without ε so does its step where a gradient is 0."""
    if not _finite(rule, gradients()[0]):
        raise Wrong(
            "the first step is no number: with t = 0 the correction divides by 1 − β⁰ = 0. Count the step first."
        )
    if not _finite(rule, np.zeros(START.shape)):
        raise Wrong("where a gradient is 0, the step is 0/0, no number: add ε to the root that you divide by.")


def _finite(rule: Rule, g: np.ndarray) -> bool:
    try:
        return bool(np.isfinite(take_step(rule, START.copy(), g, None, ETA)[0]).all())
    except ZeroDivisionError:
        return False


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
    update_rule("momentum", "Momentum", _momentum_mistakes),
    update_rule("adam", "Adam", _adam_mistakes, _judge_first_step),
)
check, points = EXERCISES.check, EXERCISES.points
