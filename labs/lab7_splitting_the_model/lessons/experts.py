"""Notebook 7a: a mixture of experts, one on each rank, and the same in one process.

h = x + p · expert(x): a token goes to the expert of its largest gate probability p (Fedus et al. 2021, "top-1"), and
what that expert makes of it comes back multiplied by p, so that the gate learns. Tokens that find no room keep x.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.parallel.group import Group


class Expert:
    """Two dense layers with ReLU, float64: `forward` keeps what `backward` needs, which keeps the gradients."""

    def __init__(self, width: int, hidden: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.w1 = random.normal(0, width**-0.5, (width, hidden))
        self.w2 = random.normal(0, hidden**-0.5, (hidden, width))
        self.g1, self.g2 = np.zeros_like(self.w1), np.zeros_like(self.w2)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Tokens [n, width] in and out."""
        self._x, self._inner = x, np.maximum(x @ self.w1, 0)
        return self._inner @ self.w2

    def backward(self, slope: np.ndarray) -> np.ndarray:
        """The gradient by what went into `forward`."""
        inner = slope @ self.w2.T * (self._inner > 0)
        self.g1, self.g2 = self._x.T @ inner, self._inner.T @ slope
        return inner @ self.w1.T

    def update(self, rate: float) -> None:
        """A step of SGD."""
        self.w1 = self.w1 - rate * self.g1
        self.w2 = self.w2 - rate * self.g2


def softmax(x: np.ndarray) -> np.ndarray:
    """Of each row."""
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def places(choice: np.ndarray, experts: int, capacity: int) -> np.ndarray:
    """Which tokens find room: True for the first `capacity` of each expert."""
    kept = np.zeros(len(choice), bool)
    for expert in range(experts):
        kept[np.flatnonzero(choice == expert)[:capacity]] = True
    return kept


def alone(tokens: np.ndarray, choice: np.ndarray, capacity: int, experts: list[Callable]) -> np.ndarray:
    """What `route` is to give for a single rank's tokens, with all experts at hand; 0 for those without room."""
    kept, out = places(choice, len(experts), capacity), np.zeros(tokens.shape)
    for number, expert in enumerate(experts):
        mine = kept & (choice == number)
        out[mine] = expert(tokens[mine])
    return out


def problem(ranks: int, tokens: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens and targets [ranks, tokens, width] and a gate [width, ranks]."""
    random = np.random.default_rng([11, ranks])
    x = random.normal(size=(ranks, tokens, width))
    return x, np.tanh(x[..., ::-1]), random.normal(0, width**-0.5, (width, ranks))


def train(
    group: Group, route: Callable, balance: Callable, *, steps: int = 3, tokens: int = 64, width: int = 8,
    factor: float = 1.25, rate: float = 0.5, alpha: float = 0.1,
) -> dict[str, Any]:  # fmt: skip
    """Some steps on this rank, with an expert and `tokens` tokens of its own; squared error and the balance loss.

    An expert has room for `factor` times an even share of each rank's tokens.

    The gate is the same on all ranks, and its gradient is added up over them. Returns the "losses" of all ranks
    together, the "gate", the expert's weights "w1" and "w2" and their gradients "g1" and "g2" of the last step, the
    share of this rank's tokens that had no room in the last step ("dropped"), and the numbers it sent by all-to-all.
    """
    every_x, every_y, gate = problem(group.size, tokens, width)
    capacity = int(factor * tokens / group.size)
    x, y, expert = every_x[group.rank], every_y[group.rank], Expert(width, 2 * width, group.rank)
    losses = []
    for _ in range(steps):
        group.calls.clear()
        probabilities = softmax(x @ gate)
        choice, at = probabilities.argmax(1), np.arange(tokens)
        p = probabilities[at, choice][:, None]
        made = route(group, x, choice, capacity, expert.forward)
        error = x + p * made - y
        even, by_even = balance(group, probabilities)
        count = group.size * error.size
        losses.append(float(group.all_reduce(np.array((error**2).sum() / count))) + alpha * float(even))
        slope = 2 * error / count
        route(group, p * slope, choice, capacity, expert.backward)
        by_p = alpha * np.array(by_even)
        by_p[at, choice] += (slope * made).sum(1)
        by_gate = probabilities * (by_p - (by_p * probabilities).sum(1, keepdims=True))
        gate = gate - rate * group.all_reduce(x.T @ by_gate)
        expert.update(rate)
    return {
        "losses": losses, "gate": gate, "w1": expert.w1, "w2": expert.w2, "g1": expert.g1, "g2": expert.g2,
        "dropped": float(1 - places(choice, group.size, capacity).mean()),
        "sent": sum(call.sent for call in group.calls if call.kind == "all_to_all"),
    }  # fmt: skip


def serial(
    ranks: int, *, steps: int = 3, tokens: int = 64, width: int = 8, factor: float = 1.25, rate: float = 0.5,
    alpha: float = 0.1,
) -> dict[str, Any]:  # fmt: skip
    """The same with all experts in one process, in TensorFlow, which differentiates the loss."""
    import tensorflow as tf

    x, y, gate = problem(ranks, tokens, width)
    capacity = int(factor * tokens / ranks)
    x, y, gate = x.reshape(-1, width), y.reshape(-1, width), tf.Variable(gate)
    every = [Expert(width, 2 * width, rank) for rank in range(ranks)]
    w1, w2 = (tf.Variable([getattr(expert, name) for expert in every]) for name in ("w1", "w2"))
    losses = []
    for _ in range(steps):
        with tf.GradientTape() as tape:
            probabilities = tf.nn.softmax(x @ gate)
            choice = probabilities.numpy().argmax(1)
            kept = np.concatenate([places(part, ranks, capacity) for part in np.split(choice, ranks)])
            made = tf.einsum("tef,efd->ted", tf.nn.relu(tf.einsum("td,edf->tef", x, w1)), w2)
            mine = tf.constant(np.eye(ranks)[choice] * kept[:, None]) * probabilities
            error = x + tf.einsum("te,ted->td", mine, made) - y
            shares = np.bincount(choice, minlength=ranks) / len(choice)
            even = ranks * tf.reduce_sum(shares * tf.reduce_mean(probabilities, 0))
            loss = tf.reduce_mean(error**2) + alpha * even
        slopes = tape.gradient(loss, [gate, w1, w2])
        for variable, slope in zip((gate, w1, w2), slopes):
            variable.assign_sub(rate * slope)
        losses.append(float(loss))
    found = {"losses": losses, "gate": gate.numpy(), "w1": w1.numpy(), "w2": w2.numpy()}
    return {**found, "g1": slopes[1].numpy(), "g2": slopes[2].numpy()}


def apart(found: list[dict[str, Any]], whole: dict[str, Any]) -> dict[str, float]:
    """The largest differences between the ranks' run and the serial one: of losses, gradients and weights."""
    cut = ("g1", "g2", "w1", "w2")

    def off(name: str) -> float:
        return max(
            float(np.abs(np.subtract(one[name], whole[name][rank] if name in cut else whole[name])).max())
            for rank, one in enumerate(found)
        )

    return {
        "loss": off("losses"), "gradients": max(off("g1"), off("g2")), "weights": max(map(off, ("gate", "w1", "w2")))
    }  # fmt: skip
