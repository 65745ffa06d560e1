"""Notebook 7a: a transformer's layer that is cut over ranks by the learner's functions, and its serial twin.

Characters come in, the next ones are predicted: an embedding, which every rank has whole; attention, a few heads to a
rank; two dense layers, the first cut by columns and the second by rows; and the output layer, cut by its vocabulary.
Each of the first two is added to what came in. The twin is written in TensorFlow, which differentiates it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from course_lib.parallel.group import Group

HEADS, WIDTH, HIDDEN, LENGTH, VOCABULARY = 4, 32, 128, 24, 64
Weights = dict[str, np.ndarray]


class Learners(NamedTuple):
    """What the learner wrote in the exercises."""

    Cut: Any
    deal: Callable
    cut_cross_entropy: Callable


def text() -> np.ndarray:
    """Python's help, as whole numbers below VOCABULARY: the characters from space to underscore, in capitals."""
    from pydoc_data import topics

    words = re.sub(r"\s+", " ", " ".join(topics.topics[key] for key in sorted(topics.topics))).upper()
    codes = np.frombuffer(words.encode("ascii", "ignore"), np.uint8).astype(int) - 32
    return codes[(codes >= 0) & (codes < VOCABULARY)]


def batch(step: int, sequences: int) -> tuple[np.ndarray, np.ndarray]:
    """Characters and the ones that follow, both [sequences, LENGTH]: the same at every call of the same step."""
    codes = text()
    starts = np.random.default_rng([7, step]).integers(len(codes) - LENGTH - 1, size=sequences)
    places = starts[:, None] + np.arange(LENGTH)
    return codes[places], codes[places + 1]


def first_weights(seed: int = 1) -> Weights:
    """The whole network's weights, float64, and biases that are not 0."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0, 0.3 if len(shape) == 1 else shape[0] ** -0.5, shape)

    return {
        "embedding": normal(VOCABULARY, WIDTH) * VOCABULARY**0.5,
        "qkv": normal(WIDTH, 3 * WIDTH),
        "qkv bias": np.zeros(3 * WIDTH),
        "out": normal(WIDTH, WIDTH),
        "out bias": normal(WIDTH),
        "w1": normal(WIDTH, HIDDEN),
        "b1": normal(HIDDEN),
        "w2": normal(HIDDEN, WIDTH),
        "b2": normal(WIDTH),
        "logits": normal(WIDTH, VOCABULARY),
        "logits bias": normal(VOCABULARY),
    }


def cut(weights: Weights, deal: Callable, rank: int, size: int) -> Weights:
    """A rank's part of all weights; what is not cut is copied."""

    def columns(x: np.ndarray) -> np.ndarray:
        return np.split(x, size, axis=-1)[rank]

    qkv, out = deal(weights["qkv"], weights["out"], HEADS, rank, size)
    bias, _ = deal(weights["qkv bias"][None], weights["out"], HEADS, rank, size)
    part = {
        "qkv": qkv, "qkv bias": bias[0], "out": out, "w1": columns(weights["w1"]), "b1": columns(weights["b1"]),
        "w2": np.split(weights["w2"], size)[rank], "logits": columns(weights["logits"]),
        "logits bias": columns(weights["logits bias"]),
    }  # fmt: skip
    return {name: np.array(part.get(name, whole)) for name, whole in weights.items()}


def attention(qkv: np.ndarray, heads: int) -> tuple[np.ndarray, Callable]:
    """Causal attention of some heads, and the function that takes a gradient back.

    qkv: [sequences, length, 3 · k]: queries, keys and values, each head by head; the result is [sequences, length, k].
    """
    sequences, length, triple = qkv.shape
    size = triple // 3 // heads
    q, k, v = qkv.reshape(sequences, length, 3, heads, size).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(2, 3) / size**0.5
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)

    def back(slope: np.ndarray) -> np.ndarray:
        slope = slope.reshape(sequences, length, heads, size).transpose(0, 2, 1, 3)
        by_shares = slope @ v.swapaxes(2, 3)
        by_scores = shares * (by_shares - (by_shares * shares).sum(-1, keepdims=True)) / size**0.5
        three = np.array([by_scores @ k, by_scores.swapaxes(2, 3) @ q, shares.swapaxes(2, 3) @ slope])
        return three.transpose(1, 3, 0, 2, 4).reshape(qkv.shape)

    return (shares @ v).transpose(0, 2, 1, 3).reshape(sequences, length, heads * size), back


def step(group: Group, learners: Learners, w: Weights, x: np.ndarray, y: np.ndarray) -> tuple[float, Weights]:
    """The mean loss of characters x, y [sequences, length], and the gradient by this rank's weights."""
    layers, tokens, grid = learners.Cut, (x.size, -1), (*x.shape, -1)
    h = w["embedding"][x].reshape(tokens)
    qkv = layers.columns(group, h, w["qkv"], w["qkv bias"])
    mixed, back = attention(qkv.reshape(grid), HEADS // group.size)
    mixed = mixed.reshape(tokens)
    h2 = h + layers.rows(group, mixed, w["out"], w["out bias"])
    inner = layers.columns(group, h2, w["w1"], w["b1"])
    bent = np.maximum(inner, 0)
    h3 = h2 + layers.rows(group, bent, w["w2"], w["b2"])
    logits = layers.columns(group, h3, w["logits"], w["logits bias"])
    loss, slope = learners.cut_cross_entropy(group, logits, y.ravel())

    g: Weights = {}
    by_h3, g["logits"], g["logits bias"] = layers.columns_back(group, h3, w["logits"], slope)
    by_bent, g["w2"], g["b2"] = layers.rows_back(group, bent, w["w2"], by_h3)
    by_h2, g["w1"], g["b1"] = layers.columns_back(group, h2, w["w1"], by_bent * (inner > 0))
    by_h2 = by_h2 + by_h3
    by_mixed, g["out"], g["out bias"] = layers.rows_back(group, mixed, w["out"], by_h2)
    by_qkv = back(by_mixed.reshape(grid)).reshape(tokens)
    by_h, g["qkv"], g["qkv bias"] = layers.columns_back(group, h, w["qkv"], by_qkv)
    g["embedding"] = np.zeros_like(w["embedding"])
    np.add.at(g["embedding"], x.ravel(), by_h + by_h2)
    return float(loss), g


def train(group: Group, learners: Learners, *, steps: int = 3, sequences: int = 8, rate: float = 0.5) -> dict[str, Any]:
    """Some steps of SGD on this rank's part, from the same first weights.

    Returns "losses" [steps], "gradients" of the first step, "weights" after the last one, the collectives of one step
    ("calls"), and how many numbers this rank sent in it ("sent").
    """
    weights = cut(first_weights(), learners.deal, group.rank, group.size)
    losses, first = [], {}
    for number in range(steps):
        group.calls.clear()
        loss, gradients = step(group, learners, weights, *batch(number, sequences))
        losses.append(loss)
        first = first or gradients
        weights = {name: weights[name] - rate * gradients[name] for name in weights}
    return {
        "losses": losses, "gradients": first, "weights": weights, "calls": [call.kind for call in group.calls],
        "sent": group.sent,
    }  # fmt: skip


def serial(*, steps: int = 3, sequences: int = 8, rate: float = 0.5) -> dict[str, Any]:
    """The same of the whole network, in TensorFlow with automatic differentiation."""
    import tensorflow as tf

    weights = {name: tf.Variable(value) for name, value in first_weights().items()}
    losses, first = [], {}
    for number in range(steps):
        with tf.GradientTape() as tape:
            loss = _loss(tf, weights, *batch(number, sequences))
        slopes = tape.gradient(loss, list(weights.values()))
        gradients = {name: tf.convert_to_tensor(slope).numpy() for name, slope in zip(weights, slopes)}
        for name, slope in gradients.items():
            weights[name].assign_sub(rate * slope)
        losses.append(float(loss))
        first = first or gradients
    return {"losses": losses, "gradients": first, "weights": {name: w.numpy() for name, w in weights.items()}}


def _loss(tf: Any, w: dict[str, Any], x: np.ndarray, y: np.ndarray) -> Any:
    h = tf.gather(w["embedding"], x)
    split = tf.reshape(h @ w["qkv"] + w["qkv bias"], (*x.shape, 3, HEADS, -1))
    q, k, v = tf.unstack(tf.transpose(split, (2, 0, 3, 1, 4)))
    scores = tf.matmul(q, k, transpose_b=True) / (WIDTH // HEADS) ** 0.5
    shares = tf.nn.softmax(tf.where(np.tri(x.shape[1], dtype=bool), scores, tf.constant(-np.inf, scores.dtype)))
    mixed = tf.reshape(tf.transpose(shares @ v, (0, 2, 1, 3)), h.shape)
    h += mixed @ w["out"] + w["out bias"]
    h += tf.nn.relu(h @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
    logits = h @ w["logits"] + w["logits bias"]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))


def apart(found: list[dict[str, Any]], whole: dict[str, Any], deal: Callable) -> dict[str, float]:
    """The largest differences between the ranks' run and the serial one: of losses, gradients and weights."""
    differences = {"loss": max(float(np.abs(np.subtract(one["losses"], whole["losses"])).max()) for one in found)}
    for what in ("gradients", "weights"):
        differences[what] = max(
            float(np.abs(one[what][name] - value).max())
            for rank, one in enumerate(found)
            for name, value in cut(whole[what], deal, rank, len(found)).items()
        )
    return differences
