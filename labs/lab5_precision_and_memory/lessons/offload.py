"""A training step that moves what a layer kept for its backward pass out to the host, and back in time: a timeline.

Forward as in vDNN (arXiv:1602.08124): a layer's input leaves while the layer computes, and the next layer begins when
both are done. Backward: each input comes back when a given plan says, one at a time, and a layer waits for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.cost.memory import NUMBER, Network


@dataclass(frozen=True)
class Work:
    """A layer as the timeline sees it: seconds of its forward pass, bytes of its input, seconds to move those."""

    name: str
    seconds: float
    size: float
    transfer: float


@dataclass(frozen=True)
class Span:
    """From when to when a layer computes ("forward", "backward"), or its input travels ("out", "back")."""

    kind: str
    layer: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A step. `memory`: rows (seconds, bytes of activations on the device from then on), in the order of time."""

    spans: tuple[Span, ...]
    memory: np.ndarray

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return max(span.end for span in self.spans)

    @property
    def forward(self) -> float:
        """When the forward pass is over."""
        return max(span.end for span in self.spans if span.kind in ("forward", "out"))

    @property
    def peak(self) -> float:
        """The most bytes of activations at a time."""
        return float(self.memory[:, 1].max())


def works(network: Network, batch: int, speed: float, bandwidth: float) -> list[Work]:
    """The layers of a network at `speed` (floating-point operations a second) and `bandwidth` (bytes a second)."""
    entering = [network.image, *(layer.activations for layer in network.layers[:-1])]
    return [
        Work(layer.name, 2 * layer.multiply_adds * batch / speed, NUMBER * numbers * batch,
             NUMBER * numbers * batch / bandwidth)
        for layer, numbers in zip(network.layers, entering)
    ]  # fmt: skip


def hidden(layers: Sequence[Work]) -> list[int]:
    """The layers whose input is moved in no more time than the layer computes: forward, so backward as well."""
    return [number for number, layer in enumerate(layers) if layer.transfer <= layer.seconds]


def needed(layers: Sequence[Work], moved: Collection[int]) -> tuple[list[int], list[float]]:
    """The moved inputs in the order in which the backward pass needs them, and when it does if nothing is late.

    Seconds from the start of the backward pass; a layer computes twice as long as forward (1d).
    """
    order, moments, now = [], [], 0.0
    for number in reversed(range(len(layers))):
        if number in moved:
            order.append(number)
            moments.append(now)
        now += 2 * layers[number].seconds
    return order, moments


def timeline(
    layers: Sequence[Work], moved: Collection[int], prefetch: Callable[[Sequence[float], Sequence[float]], Sequence]
) -> Timeline:
    """A step in which the inputs of the layers in `moved` go out and come back.

    Args:
        prefetch: (needed, seconds) → when each transfer back begins, as the notebook's exercise. What should begin
            before the backward pass does begins with it, and is late.
    """
    spans, changes, now = [], [(0.0, layers[0].size)], 0.0
    for number, layer in enumerate(layers):
        computed, end = now + layer.seconds, now + layer.seconds
        spans.append(Span("forward", number, now, computed))
        if number in moved:
            end = max(computed, now + layer.transfer)
            spans.append(Span("out", number, now, now + layer.transfer))
            changes.append((end, -layer.size))
        if number + 1 < len(layers):
            changes.append((now, layers[number + 1].size))  # made by this layer: its room is taken at once
        now = end
    order, moments = needed(layers, moved)
    starts = prefetch(moments, [layers[number].transfer for number in order])
    back, free, arrival = now, now, {}
    for number, start in zip(order, starts):
        begin = max(back + max(0.0, float(start)), free)
        arrival[number] = free = begin + layers[number].transfer
        spans.append(Span("back", number, begin, free))
        changes.append((begin, layers[number].size))
    for number in reversed(range(len(layers))):
        start = max(now, arrival.get(number, 0.0))
        now = start + 2 * layers[number].seconds
        spans.append(Span("backward", number, start, now))
        changes.append((now, -layers[number].size))
    times, sizes = np.array(changes).T
    moments, which = np.unique(times, return_inverse=True)  # what goes makes room for what comes at the same moment
    return Timeline(tuple(spans), np.stack([moments, np.cumsum(np.bincount(which, sizes))], axis=1))
