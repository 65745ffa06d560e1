"""A chain of layers that counts: how often a layer is computed, and how many arrays are kept meanwhile.

    chain = Chain(layers=10)
    x, slope = chain.start()
    y = chain.forward(0, x)          # the first layer's output from its input
    slope = chain.backward(9, x9, slope)

An array counts from the moment the chain has made it until nothing refers to it any more.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cache

import numpy as np


@dataclass(frozen=True)
class Call:
    """A call of a layer: "forward" or "backward", its number, and which layers' inputs are alive beside its own."""

    kind: str
    layer: int
    kept: tuple[int, ...]


class Chain:
    """Layers xᵢ₊₁ = tanh(xᵢ wᵢ), i = 0 … layers − 1, each of the same size.

    A layer's backward pass needs the layer's input only, and leaves the gradient by its weights in `gradients`.

    Attributes:
        layers: how many there are.
        forwards: calls of `forward` so far.
        kept: the most arrays that were alive during a call, beside the one that the layer takes and the one that it
            makes. The chain's own input counts, slopes don't.
        calls: every call so far.
    """

    def __init__(self, layers: int, *, width: int = 4, batch: int = 2, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.layers, self._settings = layers, {"width": width, "batch": batch, "seed": seed}
        self.forwards = self.kept = 0
        self.calls: list[Call] = []
        self._weights = random.normal(0, width**-0.5, (layers, width, width))
        self.gradients = np.full_like(self._weights, np.nan)
        self._start = random.normal(size=(2, batch, width))
        self._alive: dict[int, tuple[weakref.ref, int]] = {}  # id of an array → itself, the layer that it enters

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The chain's input, and the gradient of the loss by its output."""
        x, slope = (array.copy() for array in self._start)
        return self._watch(x, 0), slope

    def forward(self, layer: int, x: np.ndarray) -> np.ndarray:
        """The output of a layer for its input x. Raises ValueError where x is no input of this layer."""
        self._check(layer, x)
        self.forwards += 1
        self._note("forward", layer, x)
        return self._watch(np.tanh(x @ self._weights[layer]), layer + 1)

    def backward(self, layer: int, x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """The gradient of the loss by a layer's input x, from the gradient by its output.

        Raises ValueError where x is no input of this layer.
        """
        self._check(layer, x)
        self._note("backward", layer, x)
        inside = np.tanh(x @ self._weights[layer])
        inside = slope * (1 - inside**2)
        np.matmul(x.T, inside, out=self.gradients[layer])
        return inside @ self._weights[layer].T

    def reference(self) -> tuple[np.ndarray, np.ndarray]:
        """The gradients by the chain's input and by the weights [layers, width, width], with every input kept."""
        plain = Chain(self.layers, **self._settings)
        x, slope = plain.start()
        inputs = [x]
        for layer in range(self.layers - 1):
            inputs.append(plain.forward(layer, inputs[-1]))
        for layer in reversed(range(self.layers)):
            slope = plain.backward(layer, inputs[layer], slope)
        return slope, plain.gradients

    def _watch(self, array: np.ndarray, layer: int) -> np.ndarray:
        key = id(array)
        self._alive[key] = weakref.ref(array, lambda _: self._alive.pop(key, None)), layer
        return array

    def _check(self, layer: int, x: np.ndarray) -> None:
        if not 0 <= layer < self.layers:
            raise ValueError(f"there is no layer {layer}: they are numbered from 0 to {self.layers - 1}")
        watched, enters = self._alive.get(id(x), (lambda: None, None))
        if watched() is not x:
            raise ValueError(f"layer {layer} wants an array as the chain made it, no copy")
        if enters != layer:
            raise ValueError(f"layer {layer} was given the input of layer {enters}")

    def _note(self, kind: str, layer: int, x: np.ndarray) -> None:
        kept = tuple(sorted(enters for watched, enters in list(self._alive.values()) if watched() is not x))
        self.kept = max(self.kept, len(kept))
        self.calls.append(Call(kind, layer, kept))


@cache
def fewest(layers: int, kept: int) -> float:
    """The fewest forward calls for the backward pass of a chain with at most `kept` arrays kept; inf if it can't be.

    Every schedule goes forward j layers first, and keeps where it is. Then it has a chain of layers − j, with one array
    less to keep, and one of j (Griewank 1992).
    """
    if layers == 1:
        return 0
    if kept == 0:
        return float("inf")
    return min(j + fewest(layers - j, kept - 1) + fewest(j, kept) for j in range(1, layers))


def arrays_needed(layers: int, forwards: int) -> int:
    """The fewest arrays with which so many forward calls are enough for the backward pass of a chain."""
    return next(kept for kept in range(1, layers) if fewest(layers, kept) <= forwards)


@cache
def halved(layers: int, kept: int) -> float:
    """The forward calls of a schedule that always keeps half-way, as long as it may."""
    if layers == 1:
        return 0
    if kept <= 1:
        return layers * (layers - 1) // 2 if kept else float("inf")
    half = layers // 2
    return half + halved(layers - half, kept - 1) + halved(half, kept)
