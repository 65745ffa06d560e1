"""Trainings with what learners wrote in notebook 6c: their functions for one rank, called for all emulated ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course_lib import compression
from course_lib.collectives import simulated
from labs.lab6_beyond_synchronous.lessons.dense_training import MOMENTUM, Network


class Largest:
    """As `compression.TopK` with memory. `send`: (gradient, kept, k) → positions, values, kept."""

    def __init__(self, send: Callable, ratio: float) -> None:
        self._send, self._ratio = send, ratio
        self.residual = np.zeros((0, 0), np.float32)

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [N, L] → the mean of what is sent, [L]."""
        if not len(self.residual):
            self.residual = np.zeros_like(gradients)
        k = max(1, round(self._ratio * gradients.shape[1]))
        sent = [self._send(gradient, kept, k) for gradient, kept in zip(gradients, self.residual)]
        self.residual = np.stack([np.asarray(kept, np.float32) for *_, kept in sent])
        return _added(sent, gradients)


class Corrected:
    """As `TopK` with momentum. `send`: (gradient, velocity, kept, k, β) → positions, values, velocity, kept."""

    def __init__(self, send: Callable, ratio: float, momentum: float = MOMENTUM) -> None:
        self._send, self._ratio, self._momentum = send, ratio, momentum
        self.residual = self.velocity = np.zeros((0, 0), np.float32)

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [N, L] → the mean of what is sent, [L]."""
        if not len(self.residual):
            self.residual = self.velocity = np.zeros_like(gradients)
        k = max(1, round(self._ratio * gradients.shape[1]))
        sent = [
            self._send(gradient, velocity, kept, k, np.float32(self._momentum))
            for gradient, velocity, kept in zip(gradients, self.velocity, self.residual)
        ]
        self.velocity = np.stack([np.asarray(velocity, np.float32) for _, _, velocity, _ in sent])
        self.residual = np.stack([np.asarray(kept, np.float32) for *_, kept in sent])
        return _added(sent, gradients)


class LowRank:
    """As `compression.PowerSGD` without a memory. `step`: (me, matrix, right) → approximation of the mean, right."""

    def __init__(self, step: Callable, network: Network, rank: int) -> None:
        self._step, self._shapes = step, network.shapes
        self.right = compression.PowerSGD(compression.LocalCommunicator(), network.shapes, rank).right

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [N, L] → the mean of the approximations, [L]; vectors as they are."""
        tensors, made, used = compression.split(gradients, self._shapes), [], 0
        for tensor in tensors:
            if tensor.ndim == 3:
                right = self.right[used]
                found = simulated.run(lambda me, m, right=right: self._step(me, m, right), list(tensor)).results[0]
                self.right[used] = np.asarray(found[1], np.float32)
                made.append(np.asarray(found[0], np.float32))
                used += 1
            else:
                made.append(tensor.mean(0))
        return compression.joined(made, 0)


def _added(sent: list, gradients: np.ndarray) -> np.ndarray:
    positions, values = (np.stack([np.asarray(message[part]) for message in sent]) for part in (0, 1))
    return compression.scatter_mean(positions, values.astype(np.float32), gradients.shape[1])
