"""Checks of notebook 1b: mini-batches, an epoch of SGD, and update rules, which are held against Keras's optimizers."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from course_lib.notebook.answers import (
    array,
    case,
    compare,
    items,
    number,
    plain,
    returned,
    several,
    short,
    unchanged,
)
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
    groups = [{frozenset(batch.tolist()) for batch in _batches(function, 1000, 10, epoch)} for epoch in (0, 1)]
    if groups[0] == groups[1]:
        raise Wrong(
            "the same examples are together in each epoch, only the batches change places: shuffle the examples."
        )


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
ETA = 2.0**-6  # Keras keeps its learning rate in float32: this one and its halves are exact there
RATES = {"constant": np.full(STEPS, ETA), "falling": ETA * 0.5 ** np.minimum(np.arange(STEPS) // 4, 3)}
START = np.array([[3.0, -2.0, 1.0], [0.5, 0.0, -1.0]])
TOLERANCE = 1e-5


def _gradients() -> np.ndarray:
    """Gradients of all steps, of size about 1: [50, 2, 3]."""
    random = np.random.default_rng(11)
    shape = (STEPS, *START.shape)
    return random.choice([-1.0, 1.0], shape, p=[0.3, 0.7]) * random.uniform(0.5, 2, shape)


@lru_cache
def _keras_weights(name: str, rates: str) -> np.ndarray:
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
        "adam": partial(keras.Adam, beta_1=beta_1, beta_2=beta_2),
    }[name]
    optimizer = make(learning_rate=ETA, jit_compile=False)
    weights = tf.Variable(START)
    after = []
    for g, eta in zip(_gradients(), RATES[rates]):
        optimizer.learning_rate = eta
        optimizer.apply_gradients([(tf.constant(g), weights)])
        after.append(weights.numpy())
    return np.array(after)


# For each rule, over all steps: by sentence the changes of w that a rule with a mistake makes. g has the gradients,
# eta the learning rates [50, 1, 1].
Changes = dict[str, np.ndarray]
AVERAGED_GRADIENT = "the gradient enters the velocity with the factor 1 − β; in Keras it enters whole, times η."
STARTS_ANEW = "the velocity starts anew in each step: keep it in the state, and return it."


def _sgd_mistakes(g: np.ndarray, eta: np.ndarray) -> Changes:
    return {WRONG_SIGN: eta * g, "η is applied twice.": -(eta**2) * g, ETA_MISSING: -g}


def _velocity_mistakes(
    v: np.ndarray, step: Callable[[np.ndarray, np.ndarray], np.ndarray], g: Any, eta: Any
) -> Changes:
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


def _momentum_mistakes(g: np.ndarray, eta: np.ndarray) -> Changes:
    v = collected(eta * g, 0.9)
    return {
        f"{STARTS_ANEW[:-1]} (this is plain SGD).": -eta * g,
        "w moves by the velocity of the step before: update the velocity first.": -delayed(v),
        "this is Nesterov's rule: without it, w moves by the new velocity, and by nothing else.": -(0.9 * v + eta * g),
        **_velocity_mistakes(v, lambda v, step: v, g, eta),
    }


def _nesterov_mistakes(g: np.ndarray, eta: np.ndarray) -> Changes:
    v = collected(eta * g, 0.9)
    return {
        STARTS_ANEW: -(0.9 * eta * g + eta * g),
        "that is how θ moves, by u alone. w lies ahead of θ, by β u before the step and by another β u after it.": -v,
        "w's old place has the old β u in it: going from θ to w, take that away again.": -1.9 * v,
        "the new velocity is added whole, and the step once more: look ahead by β u.": -(v + eta * g),
        "that is the way ahead of θ alone: θ itself moves, too, and takes w with it.": -0.9 * v,
        "that is how the way ahead changes, β (u − old u): θ itself moves, too, by u.": -0.9 * (v - delayed(v)),
        "η g is added where it should be subtracted.": -0.9 * v + eta * g,
        "that is θ, the point behind: Keras keeps the point ahead.": -(v - 0.9 * delayed(v)),
        **_velocity_mistakes(v, lambda v, step: 0.9 * v + step, g, eta),
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


_MISTAKES = {
    "sgd": _sgd_mistakes,
    "momentum": _momentum_mistakes,
    "nesterov": _nesterov_mistakes,
    "adam": _adam_mistakes,
}


def _judge_steps(name: str, rates: str) -> Callable[[Rule], None]:
    def judge(rule: Rule) -> None:
        gradients = _gradients()
        if name == "adam":
            _judge_first_step(rule, gradients[0])
        taken = walk(rule, START, gradients, RATES[rates])
        with np.errstate(all="ignore"):
            mistakes = _MISTAKES[name](gradients, taken.rates)
        compare_walk(taken, _keras_weights(name, rates), mistakes, atol=TOLERANCE)

    return judge


def _judge_first_step(rule: Rule, g: np.ndarray) -> None:
    """Adam's correction with t = 0 divides by 0."""
    try:
        finite = np.isfinite(take_step(rule, START.copy(), g, None, ETA)[0]).all()
    except ZeroDivisionError:
        finite = False
    if not finite:
        raise Wrong(
            "the first step is no number: with t = 0 the correction divides by 1 − β⁰ = 0. Count the step first."
        )


def _judge_state(rule: Rule) -> None:
    judge_memory(rule, START, _gradients(), ETA)
    take_step(rule, np.zeros(5), np.ones(5), None, ETA)


def _update_rule(name: str, title: str) -> Exercise:
    return Exercise(
        name,
        Criterion("steps", f"{title}, {STEPS} steps as in Keras", 0.5, _judge_steps(name, "constant")),
        Criterion("falling", "The same while η falls", 0.3, _judge_steps(name, "falling")),
        Criterion("state", "All memory is in the state", 0.2, _judge_state),
    )


# --- heavy_ball

# (λ_min, λ_max, steps until the loss is a millionth of the start's)
RAVINES = ((1.0, 10.0, 20), (1.0, 50.0, 48), (0.02, 4.0, 100), (2.0, 2000.0, 240))


def _steps_in_a_ravine(eta: float, beta: float, ends: tuple[float, float], most: int) -> int | None:
    """Steps of momentum until the loss stays a millionth of the start's; `most` + 1 if more, None if it diverges."""
    curvatures = np.array(ends)
    place, velocity, last = np.ones(2), np.zeros(2), 0
    for step in range(1, most + 1):
        velocity = beta * velocity - eta * curvatures * place
        place = place + velocity
        loss = np.sum(curvatures * place**2) / curvatures.sum()
        if not loss < 1e12:
            return None
        last = step if loss > 1e-6 else last
    return last + 1


def _in_budget(*ravines: tuple[float, float, int]) -> Callable[[Callable], None]:
    def judge(heavy_ball: Callable) -> None:
        for low, high, budget in ravines:
            with case(f"λ from {low:g} to {high:g}"):
                eta, beta = map(number, several(heavy_ball(low, high), "η", "β"))
                _judge_settings(eta, beta, low, high, budget)

    return judge


def _judge_settings(eta: float, beta: float, low: float, high: float, budget: int) -> None:
    if not eta > 0:
        raise Wrong(f"η is {eta:g}; it should be above 0.")
    if not 0 <= beta < 1:
        raise Wrong(f"β is {beta:g}; it lies between 0 and 1" + (", and η comes first." if 0 < eta < 1 else "."))
    with np.errstate(all="ignore"):
        needed = _steps_in_a_ravine(eta, beta, (low, high), 4 * budget)
    if needed is not None and needed <= budget:
        return
    with np.errstate(all="ignore"):
        exchanged = 0 <= eta < 1 and beta > 0 and _steps_in_a_ravine(beta, eta, (low, high), budget)
    if exchanged and exchanged <= budget:
        raise Wrong("β and η are exchanged: η comes first.")
    root = (high**0.5 - low**0.5) / (high**0.5 + low**0.5)
    count = "diverges" if needed is None else f"needs {f'over {4 * budget}' if needed > 4 * budget else needed} steps"
    told = f"with η = {eta:.3g} and β = {beta:.3g} momentum {count}; the budget is {budget}: "
    if beta == 0:
        raise Wrong(told + "without β this is gradient descent.")
    if eta * high > 2 * (1 + beta):
        raise Wrong(told + "η λ_max is above 2 (1 + β).")
    if np.isclose(beta, root):
        raise Wrong(told + "that is √β: square it.")
    if eta * high > 1.02 * (1 + beta**0.5) ** 2:
        raise Wrong(told + "η λ_max is above (1 + √β)², where the swings die out more slowly.")
    if eta * low < 0.98 * (1 - beta**0.5) ** 2:
        raise Wrong(told + "η λ_min is below (1 − √β)²: along the floor it creeps.")
    raise Wrong(told + f"each step multiplies the distance by √β = {beta**0.5:.3g} at best; a smaller β would do.")


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
    _update_rule("adam", "Adam"),
    Exercise(
        "heavy_ball",
        Criterion("this-ravine", "In budget where κ = 50", 0.5, _in_budget(RAVINES[1])),
        Criterion("every-ravine", "In budget where κ = 10, 200, 1,000", 0.5, _in_budget(*RAVINES[:1], *RAVINES[2:])),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
