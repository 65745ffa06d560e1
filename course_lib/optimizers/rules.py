"""The update rules of the layer-wise optimizers, as pure functions of one layer's arrays.

    state, rate, step = rule(weights, gradient, state, rate, optimizer, scaled)

Notation of the papers: w weights of one layer (one variable), g its gradient, c learning rate, b weight decay,
m momentum, η trust coefficient, β₁ and β₂ decay rates of the moving averages. Norms are over one variable.

Arguments of every rule:

    weights, gradient: w and g, of the same shape.
    state: name → array, the rule's state between updates.
    rate: c.
    optimizer: has the hyperparameters as attributes; the Keras optimizers of `layer_wise` pass themselves.
    scaled: False for an excluded layer, which gets neither layer-wise scaling nor weight decay.

A rule returns the new state, and the rate and step of the update. It does not change its arguments.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

State = dict[str, tf.Tensor]


def norm(x: tf.Tensor) -> tf.Tensor:
    """‖x‖, a scalar. `l2_loss` is half the sum of squares and needs one pass over x without a copy."""
    return tf.sqrt(2 * tf.nn.l2_loss(x))


def trust_ratio(numerator: tf.Tensor, denominator: tf.Tensor) -> tf.Tensor:
    """numerator / denominator; 1 if one of them is zero, as for biases that start at 0 or a layer without gradient."""
    ratio = tf.math.divide_no_nan(numerator, denominator)
    return tf.where((numerator > 0) & (denominator > 0), ratio, tf.ones_like(numerator))


def lars_ratio(weights: tf.Tensor, gradient: tf.Tensor, optimizer: Any, unit: tf.Tensor | float = 1.0) -> tf.Tensor:
    """λ = η‖w‖ / (‖g‖ + b‖w‖ + ε), in multiples of `unit`."""
    length = norm(weights)
    denominator = norm(gradient) + optimizer.decay * length + optimizer.epsilon
    return trust_ratio(optimizer.trust_coefficient * length, unit * denominator)


def decayed(weights: tf.Tensor, gradient: tf.Tensor, decay: float | tf.Tensor) -> tf.Tensor:
    """g + b w."""
    return gradient + decay * weights


def lars(
    weights: tf.Tensor, gradient: tf.Tensor, state: State, rate: tf.Tensor, optimizer: Any, scaled: bool
) -> tuple[State, tf.Tensor, tf.Tensor]:
    """Rate c λ and step g + b w, for v ← m v + rate · step; w ← w − v."""
    if not scaled:
        return state, rate, gradient
    step = decayed(weights, gradient, optimizer.decay) if optimizer.decay else gradient
    return state, rate * lars_ratio(weights, gradient, optimizer), step


def larc(
    weights: tf.Tensor, gradient: tf.Tensor, state: State, rate: tf.Tensor, optimizer: Any, scaled: bool
) -> tuple[State, tf.Tensor, tf.Tensor]:
    """Rate c and step min(λ / c, 1) (g + b w), or λ (g + b w) without `clip`, for v ← m v + step; w ← w − rate · v."""
    if not scaled:
        return state, rate, gradient
    step = decayed(weights, gradient, optimizer.decay) if optimizer.decay else gradient
    if optimizer.clip:
        return state, rate, step * tf.minimum(lars_ratio(weights, gradient, optimizer, unit=rate), 1)
    return state, rate, step * lars_ratio(weights, gradient, optimizer)


def lamb(
    weights: tf.Tensor, gradient: tf.Tensor, state: State, rate: tf.Tensor, optimizer: Any, scaled: bool
) -> tuple[State, tf.Tensor, tf.Tensor]:
    """Rate and step of w ← w − c ‖w‖/‖u‖ u, with u = M̂ / (√V̂ + ε) + b w.

    The state has the moving averages M and V and the number of updates, t.
    """
    first = state["m"] + (gradient - state["m"]) * (1 - optimizer.beta_1)
    second = state["v"] + (tf.square(gradient) - state["v"]) * (1 - optimizer.beta_2)
    updates = state["t"] + 1
    time = tf.cast(updates, gradient.dtype)
    # M̂ / (√V̂ + ε) is `correction` times `step`. The factor stays a scalar to save a pass over the array.
    root = tf.sqrt(1 - tf.constant(optimizer.beta_2, gradient.dtype) ** time)
    correction = root / (1 - tf.constant(optimizer.beta_1, gradient.dtype) ** time)
    step = first / (tf.sqrt(second) + optimizer.epsilon * root)
    if scaled:
        step = decayed(weights, step, optimizer.decay / correction) if optimizer.decay else step
        rate = rate * trust_ratio(norm(weights), correction * norm(step))
    return {"m": first, "v": second, "t": updates}, rate * correction, step


def novograd(
    weights: tf.Tensor, gradient: tf.Tensor, state: State, rate: tf.Tensor, optimizer: Any, scaled: bool
) -> tuple[State, tf.Tensor, tf.Tensor]:
    """Rate c and step g / (√V + ε) + b w, for M ← β₁M + step; w ← w − rate · M.

    The state has V, which is ‖g‖² in the first update, then β₂V + (1−β₂)‖g‖². V = 0 means that the layer has had no
    gradient yet; layers can get their first gradient in different updates.
    """
    squares = 2 * tf.nn.l2_loss(gradient)
    second = tf.where(state["v"] > 0, optimizer.beta_2 * state["v"] + (1 - optimizer.beta_2) * squares, squares)
    step = gradient / (tf.sqrt(second) + optimizer.epsilon)
    return {"v": second}, rate, decayed(weights, step, optimizer.decay) if scaled and optimizer.decay else step
