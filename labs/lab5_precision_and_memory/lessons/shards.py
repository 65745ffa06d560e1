"""Ranks that share the optimizer's state: simulated ones that count their messages, Horovod's, and what they train.

All numbers of a network stand in one vector. `reduce_scatter` and `all_gather` cut it as `np.array_split` does: where
it can't be cut into equal parts, the first ranks have one number more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from course_lib.collectives import simulated


class Rank(Protocol):
    """One of the ranks that train together."""

    rank: int
    size: int

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of all ranks' arrays, on every rank."""

    def reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        """This rank's part of the sum of all ranks' arrays."""

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        """The parts of all ranks, one after the other, on every rank."""


class SimulatedRank:
    """A rank of `simulated.run` whose collectives go round a ring."""

    def __init__(self, me: simulated.Rank) -> None:
        self.rank, self.size, self._me = me.rank, me.size, me

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of all ranks' arrays: what both others do, one after the other."""
        array = np.asarray(array, float)
        return self.all_gather(self.reduce_scatter(array.ravel())).reshape(array.shape)

    def reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        """This rank's part of the sum. Each part goes round, adds up on its way, and ends with its owner."""
        parts = np.array_split(np.array(array, float), self.size)
        for step in range(1, self.size):
            self._send(parts[(self.rank - step) % self.size])
            mine = (self.rank - step - 1) % self.size
            parts[mine] = parts[mine] + self._receive()
        return parts[self.rank]

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        """The parts of all ranks: each goes round."""
        parts = {self.rank: np.array(part, float)}
        for step in range(self.size - 1):
            self._send(parts[(self.rank - step) % self.size])
            parts[(self.rank - step - 1) % self.size] = self._receive()
        return np.concatenate([parts[rank] for rank in range(self.size)])

    def _send(self, array: np.ndarray) -> None:
        self._me.send(array, (self.rank + 1) % self.size)

    def _receive(self) -> np.ndarray:
        return self._me.receive((self.rank - 1) % self.size)


def simulate(program: Callable[[Rank, Any], Any], values: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """Run `program(me, value)` on as many simulated ranks as there are values.

    Returns what each rank returned, and how many numbers each sent, [ranks].
    """
    outcome = simulated.run(lambda me, value: program(SimulatedRank(me), value), values)
    trace = outcome.trace
    return outcome.results, np.bincount(trace.source, trace.elements, minlength=len(values)).astype(int)


class HorovodRank:
    """This process as one of Horovod's ranks, or of one of its sets of ranks."""

    def __init__(self, hvd: Any, process_set: Any = None) -> None:
        self._hvd = hvd
        self._set = process_set or hvd.global_process_set
        self.rank, self.size = self._set.rank(), self._set.size()

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """The sum of all ranks' arrays."""
        return self._hvd.allreduce(np.asarray(array), op=self._hvd.Sum, **self._called("all_reduce")).numpy()

    def reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        """This rank's part of the sum of all ranks' arrays."""
        return self._hvd.reducescatter(array, op=self._hvd.Sum, **self._called("reduce_scatter")).numpy()

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        """The parts of all ranks, one after the other."""
        return self._hvd.allgather(part, **self._called("all_gather")).numpy()

    def _called(self, what: str) -> dict[str, Any]:
        return {"name": f"{what} of {self._set.ranks}", "process_set": self._set}


class Adam:
    """Adam for a vector of k numbers; it keeps two more vectors of that length."""

    def __init__(self, k: int, rate: float = 0.01) -> None:
        self.rate, self.steps = rate, 0
        self.mean, self.square = np.zeros(k), np.zeros(k)

    def update(self, weights: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """New weights [k]; `weights` stay as they are. ValueError where there are not k of both."""
        if not np.shape(weights) == np.shape(gradient) == self.mean.shape:
            told = f"{np.shape(weights)} weights and a gradient {np.shape(gradient)}"
            raise ValueError(f"this Adam was made for {len(self.mean)} numbers; it was given {told}")
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient**2 - self.square)
        mean, square = self.mean / (1 - 0.9**self.steps), self.square / (1 - 0.999**self.steps)
        return weights - self.rate * mean / (np.sqrt(square) + 1e-8)


class Network:
    """Dense layers with ReLU and softmax, all their numbers in one vector.

    Attributes:
        names: of the arrays in the vector. bounds: where each begins, and where the last one ends.
        layers: the part of the vector that each layer has, its weights and biases.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.shapes = [shape for a, b in zip(widths, widths[1:]) for shape in ((a, b), (b,))]
        self.names = [f"{kind}{layer}" for layer in range(1, len(widths)) for kind in ("w", "b")]
        self.bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)]).tolist()
        self.layers = [slice(a, b) for a, b in zip(self.bounds[::2], self.bounds[2::2])]

    def start(self, seed: int = 0) -> np.ndarray:
        """The first weights, [n]; biases are 0.1."""
        random = np.random.default_rng(seed)
        drawn = [
            random.normal(0, (2 / shape[0]) ** 0.5, shape) if len(shape) > 1 else np.full(shape, 0.1)
            for shape in self.shapes
        ]
        return np.concatenate([array.ravel() for array in drawn])

    def gradient(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the mean cross-entropy of examples x [m, d] with classes y [m], by all weights, [n]."""
        whole = np.empty(self.bounds[-1])
        for layer, gradient in self.backward(weights, x, y):
            whole[self.layers[layer]] = gradient
        return whole

    def backward(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The same gradient layer by layer, from the last to the first: (number of the layer, its part of the vector).

        Each piece is made when it is asked for; nothing else keeps it.
        """
        arrays = [weights[a:b].reshape(s) for a, b, s in zip(self.bounds, self.bounds[1:], self.shapes)]
        layers, inputs = list(zip(arrays[::2], arrays[1::2])), []
        for w, b in layers:
            inputs.append(x)
            output = x @ w + b
            x = np.maximum(output, 0)
        slope = np.exp(output - output.max(1, keepdims=True))
        slope /= slope.sum(1, keepdims=True)
        slope[np.arange(len(y)), y] -= 1
        slope /= len(y)
        del output
        for layer in reversed(range(len(layers))):
            x = inputs.pop()
            yield layer, _of_a_layer(x, slope)
            slope = slope @ layers[layer][0].T * (x > 0)


def _of_a_layer(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The gradient by a dense layer's weights and biases, in one array and no second one beside it."""
    inputs, outputs = x.shape[1], slope.shape[1]
    gradient = np.empty((inputs + 1) * outputs)
    np.matmul(x.T, slope, out=gradient[:-outputs].reshape(inputs, outputs))
    np.sum(slope, axis=0, out=gradient[-outputs:])
    return gradient
