"""Checks of notebook 1b: mini-batches and an epoch of SGD. Those of the update rules are in update_rules.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part, update_rules

_CASES = ((12, 4), (10, 3), (1279, 64), (7, 1), (5, 8))  # examples, batch size; also where they do not divide


def _drawn(function: Callable, examples: int, size: int, epoch: int = 0, seed: int = 0) -> list[np.ndarray]:
    return [np.asarray(batch) for batch in function(examples, size, epoch, seed)]


def _case(examples: int, size: int) -> str:
    return f"{examples:,} examples in batches of {size}"


def _form(batches: Sequence[np.ndarray], examples: int) -> str:
    if not batches:
        return "there is no batch; return a list of arrays."
    for number, batch in enumerate(batches):
        if batch.ndim != 1 or not np.issubdtype(batch.dtype, np.integer):
            return f"batch {number} is {batch.dtype} of shape {batch.shape}; it should be a list of whole numbers."
        if len(batch) and (batch.min() < 0 or batch.max() >= examples):
            wrong = batch.max() if batch.max() >= examples else batch.min()
            return f"batch {number} holds example {wrong}, but they are numbered from 0 to {examples - 1:,}."
    return ""


def _each_once(function: Callable) -> str:
    for examples, size in _CASES:
        if function(examples, size, 0, 0) is None:
            return "the function returns nothing: return the list of batches."
        batches = _drawn(function, examples, size)
        if reason := _form(batches, examples):
            return f"{_case(examples, size)}: {reason}"
        seen = np.bincount(np.concatenate(batches), minlength=examples)
        missing = np.flatnonzero(seen == 0)
        if seen.max() > 1:
            return (
                f"{_case(examples, size)}: in one epoch some examples come up to {seen.max()} times and "
                f"{len(missing):,} not at all. Draw without replacement: shuffle all the numbers, then cut."
            )
        if len(missing) == examples % size and len(missing):
            return (
                f"{_case(examples, size)}: the last {len(missing)} of the shuffle are lost. Where the batch size does "
                "not divide the number of examples, the last batch is smaller."
            )
        if len(missing):
            return f"{_case(examples, size)}: {len(missing):,} examples are in no batch of the epoch."
    return ""


def _sizes(function: Callable) -> str:
    for examples, size in _CASES:
        lengths = [len(batch) for batch in _drawn(function, examples, size)]
        expected = [size] * (examples // size) + [examples % size] * (examples % size > 0)
        if lengths != expected:
            return f"{_case(examples, size)}: the batches have {_short(lengths)} examples, not {_short(expected)}."
    return ""


def _short(numbers: Sequence[int]) -> str:
    return str(list(numbers)) if len(numbers) < 7 else f"[{numbers[0]}, {numbers[1]}, …, {numbers[-1]}]"


def _shuffled(function: Callable) -> str:
    def order(epoch: int = 0, seed: int = 0) -> np.ndarray:
        return np.concatenate(_drawn(function, 1000, 10, epoch, seed))

    first = order()
    if not np.array_equal(first, order()):
        return "asked twice for the same epoch, the function answers differently: seed its random generator."
    if np.array_equal(first, np.sort(first)):
        return "the examples come in their stored order: shuffle them."
    if np.array_equal(first, order(epoch=1)):
        return "epoch 1 has the same batches as epoch 0: reshuffle in every epoch, by putting `epoch` into the seed."
    if np.array_equal(first, order(seed=1)):
        return "seed 1 gives the same batches as seed 0: put `seed` into the random generator's seed too."
    if np.array_equal(order(epoch=1, seed=0), order(epoch=0, seed=1)):
        return "epoch 1 of seed 0 is epoch 0 of seed 1: seed with both numbers, [seed, epoch], not with their sum."
    return ""


def _epoch(function: Callable, examples: int = 11, size: int = 4, epoch: int = 0, seed: int = 0) -> tuple:
    """Run a learner's `sgd_epoch` on a small linear model. ([(w, rows, labels, gradient)], start, result, η)"""
    rng = np.random.default_rng(5)
    x = np.column_stack([np.arange(examples), rng.normal(size=(examples, 2))])  # column 0 tells the row
    y = np.arange(examples) / 10
    start, eta = np.array([0.02, -1.0, 0.5]), 0.01
    calls = []

    def gradient(w: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        g = rows.T @ (rows @ w - labels) / len(labels)
        calls.append((np.array(w), np.array(rows[:, 0], int), np.array(labels), g))
        return g.copy()

    given = start.copy()
    result = function(given, x, y, gradient, eta, size, epoch, seed)
    return calls, start, given, result, eta


def _one_step_each(function: Callable) -> str:
    calls, _, _, result, _ = _epoch(function)
    if result is None:
        return "the function returns nothing: return the weights at the end of the epoch."
    if not calls:
        return "`gradient` was never called."
    for _, rows, labels, _ in calls:
        if not np.array_equal(labels, rows / 10):
            return "the labels do not belong to the examples: take the same batch of numbers from x and from y."
    sizes = [len(rows) for _, rows, _, _ in calls]
    if sizes == [11]:
        return "11 examples in batches of 4: a step over all examples is gradient descent; step once for each batch."
    if sum(sizes) != 11 or len(set(np.concatenate([rows for _, rows, _, _ in calls]))) != 11:
        return f"11 examples in batches of 4: the gradients are of {sizes} examples; an epoch uses each of the 11 once."
    if len(calls) != 3:
        return f"11 examples in batches of 4: {len(calls)} gradients were computed, not 3, one for each batch."
    if len({tuple(w) for w, _, _, _ in calls}) == 1:
        return "all gradients were taken at the first weights: update w after each batch."
    return ""


def _weights(function: Callable) -> str:
    calls, start, _, result, eta = _epoch(function)
    gradients = [g for _, _, _, g in calls]
    if not gradients:
        return "`gradient` was never called."
    result = np.asarray(result, float)
    if result.shape != start.shape:
        return f"the result has shape {result.shape}; it should be the weights, of shape {start.shape}."
    # The steps that the learner took, as multiples of the gradient: between the calls and behind the last one.
    places = [w for w, _, _, _ in calls] + [result]
    if not np.allclose(places[0], start):
        return "the first gradient was not taken at the weights that the function got."
    if len(gradients) > 1 and np.allclose(result, places[-2]) and not np.allclose(result, places[0]):
        return "the last batch's gradient was computed but not applied: update, then return."
    for before, after, g, (_, rows, _, _) in zip(places, places[1:], gradients, calls):
        reason = _stride((after - before) @ g / (g @ g), before, after, g, eta, len(rows))
        if reason:
            return reason
    return ""


def _stride(taken: float, before: np.ndarray, after: np.ndarray, g: np.ndarray, eta: float, size: int) -> str:
    named = {
        -eta: "",
        eta: "the steps go up the slope: subtract the gradient.",
        -(eta**2): "η is applied twice in each step.",
        -1.0: "η is not applied: a step is η times the gradient.",
        -eta / size: "the gradient is divided by the batch size once more; it is a mean already.",
        -eta * size: "the gradient is multiplied by the batch size; it is a mean already, and η sets the step.",
        -2 * eta: "each gradient is applied twice.",
        0.0: "the weights do not change.",
    }
    if np.allclose(after - before, taken * g, atol=1e-12):
        for factor, reason in named.items():
            if np.isclose(taken, factor, rtol=1e-6, atol=1e-12):
                return reason
        return f"a step is {-taken:.3g} times the gradient where η is {eta}."
    return "a step does not go along the gradient of its batch: w ← w − η g, one batch at a time."


def _arguments_used(function: Callable) -> str:
    first = [tuple(rows) for _, rows, _, _ in _epoch(function)[0]]
    calls, start, given, _, _ = _epoch(function, epoch=1)
    if not np.array_equal(start, given):
        return "the caller's w is changed in place (`w -= …`): write `w = w - …`, which makes a new array."
    if first == [tuple(rows) for _, rows, _, _ in calls]:
        return "epoch 1 uses the same batches as epoch 0: hand `epoch` on to `minibatches`."
    if first == [tuple(rows) for _, rows, _, _ in _epoch(function, seed=1)[0]]:
        return "seed 1 uses the same batches as seed 0: hand `seed` on to `minibatches`."
    return ""


EXERCISES = Exercises(
    Exercise(
        "minibatches",
        (
            Part("Each example once an epoch", 0.4, _each_once),
            Part("The batches' sizes", 0.2, _sizes),
            Part("Shuffled anew in each epoch", 0.4, _shuffled),
        ),
    ),
    Exercise(
        "sgd_epoch",
        (
            Part("A step for each mini-batch", 0.4, _one_step_each),
            Part("w ← w − η g", 0.4, _weights),
            Part("New batches in each epoch, the caller's w untouched", 0.2, _arguments_used),
        ),
    ),
    *update_rules.EXERCISES,
)
check, points = EXERCISES.check, EXERCISES.points
