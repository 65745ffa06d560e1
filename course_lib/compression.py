"""Gradient compression: ranks send only the largest numbers, the signs, or a low-rank approximation.

    compressor = TopK(LocalCommunicator(), ratio=0.01)
    step = compressor.compressed_mean(gradients)        # [n, L] → [L], the same on all ranks

n is the number of ranks in this process: all N in an emulation, one on a real rank. L is the number of values in the
gradient. A `Communicator` exchanges the arrays and counts their bytes; a real rank thus makes the same operations in
the same order as its emulation.

A compressor with a memory keeps the residual, the part that was not sent, and adds it to the next gradient (error
feedback: Seide et al. 2014; Karimireddy et al. 2019, arXiv:1901.09847).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FIRST_RATIO = 0.25  # at the start of the warm-up, as in deep gradient compression (Lin et al. 2018)


class Communicator:
    """Collectives for gradients, with a count of their bytes.

    Attributes:
        ranks: N; None: all ranks are in this process.
        reduced, gathered: bytes of one rank's input to the all-reduces and the all-gathers so far.
    """

    def __init__(self, ranks: int | None = None) -> None:
        self.ranks, self.reduced, self.gathered = ranks, 0, 0

    def mean(self, parts: np.ndarray) -> np.ndarray:
        """All-reduce: arrays [n, …] of the ranks in this process → the mean […] over all N ranks."""
        self.reduced += parts[0].nbytes
        return self._sum(parts) / parts.dtype.type(self.ranks or len(parts))

    def gather(self, parts: np.ndarray) -> np.ndarray:
        """All-gather: arrays [n, …] of the ranks in this process → those of all ranks [N, …], in rank order."""
        self.gathered += parts[0].nbytes
        return self._all(parts)

    def sent(self, ranks: int) -> float:
        """The bytes that a rank sends in total if both collectives use a ring of `ranks` ranks."""
        return 2 * (ranks - 1) / ranks * self.reduced + (ranks - 1) * self.gathered

    def _sum(self, parts: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _all(self, parts: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class LocalCommunicator(Communicator):
    """A communicator for an emulation: all ranks are in this process."""

    def _sum(self, parts: np.ndarray) -> np.ndarray:
        return parts.sum(0)

    def _all(self, parts: np.ndarray) -> np.ndarray:
        return parts


class Dense:
    """No compression: an all-reduce of the whole gradients."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → their mean over all ranks, [L]."""
        return self.communicator.mean(gradients)


class TopK:
    """Top-k sparsification: each rank sends its largest numbers and their positions, by all-gather.

    With `momentum` it applies momentum correction (Lin et al. 2018, arXiv:1712.01887): a rank accumulates its velocity
    instead of its gradient. The mean then includes the momentum, so the optimizer must not add any.

    Args:
        ratio: fraction of the numbers that a rank sends; at least one number.
        memory: keep the residual; else it is lost.
        momentum: momentum coefficient; 0 for none.
        masking: set the velocity of the sent numbers to 0 (momentum factor masking).
        clip: a rank clips its gradient to the norm clip / √N; None for no clipping.
        warm_up: number of updates in which the ratio falls exponentially from FIRST_RATIO to `ratio`.
    """

    def __init__(
        self,
        communicator: Communicator,
        ratio: float,
        *,
        memory: bool = True,
        momentum: float = 0.0,
        masking: bool = False,
        clip: float | None = None,
        warm_up: int = 0,
    ) -> None:
        self.communicator, self.ratio, self.memory, self.momentum = communicator, ratio, memory, np.float32(momentum)
        self.masking, self.clip, self.warm_up, self.updates = masking, clip, warm_up, 0
        self.residual = self.velocity = np.zeros((), np.float32)  # [n, L] after the first update

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → the mean over all ranks of their sparse vectors, [L]."""
        self.velocity = self.momentum * self.velocity + self._clipped(gradients)
        pending = self.residual + self.velocity
        positions = largest(pending, max(1, round(self._ratio_now() * pending.shape[1])))
        values = np.take_along_axis(pending, positions, 1)
        np.put_along_axis(pending, positions, 0, 1)
        if self.memory:
            self.residual = pending
        if self.masking:
            np.put_along_axis(self.velocity, positions, 0, 1)
        self.updates += 1
        return scatter_mean(self.communicator.gather(positions), self.communicator.gather(values), pending.shape[1])

    def _ratio_now(self) -> float:
        if self.updates >= self.warm_up:
            return self.ratio
        return FIRST_RATIO * (self.ratio / FIRST_RATIO) ** (self.updates / self.warm_up)

    def _clipped(self, gradients: np.ndarray) -> np.ndarray:
        if self.clip is None:
            return gradients
        most = self.clip / np.sqrt(self.communicator.ranks or len(gradients))
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        return gradients * np.minimum(1, most / np.maximum(lengths, 1e-30)).astype(np.float32)


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k numbers of largest magnitude in each row of values [n, L]: int32 [n, k], unordered."""
    return np.argpartition(-np.abs(values), k - 1, axis=1)[:, :k].astype(np.int32)


def scatter_mean(positions: np.ndarray, values: np.ndarray, length: int) -> np.ndarray:
    """The mean [L] of N sparse vectors, given by positions and values [N, k]; 0 at positions that no rank sends."""
    total = np.zeros(length, values.dtype)
    for at, sent in zip(positions, values):
        total[at] += sent
    return total / values.dtype.type(len(values))


class Sign:
    """Each rank sends the sign of each number (one bit) and the mean magnitude of each tensor (float32), by all-gather.

    With a memory this is EF-SIGNSGD (Karimireddy et al. 2019, arXiv:1901.09847).

    Args:
        ends: [T + 1], boundaries of the T tensors in the gradient.
        memory: keep the residual; else it is lost.
        momentum: momentum coefficient of each rank, applied before the signs, as in `TopK`.
    """

    def __init__(
        self, communicator: Communicator, ends: Sequence[int], *, memory: bool = True, momentum: float = 0.0
    ) -> None:
        self.communicator, self.ends = communicator, np.asarray(ends)
        self.memory, self.momentum = memory, np.float32(momentum)
        self.residual = self.velocity = np.zeros((), np.float32)

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → the mean over all ranks of their signs times their magnitudes, [L]."""
        self.velocity = self.momentum * self.velocity + gradients
        pending, counts = self.residual + self.velocity, np.diff(self.ends)
        sizes = np.add.reduceat(np.abs(pending), self.ends[:-1], axis=1) / counts.astype(np.float32)
        positive = pending >= 0
        if self.memory:
            self.residual = pending - _signed(positive, sizes, counts)
        bits, sizes = self.communicator.gather(np.packbits(positive, axis=1)), self.communicator.gather(sizes)
        together = _signed(np.unpackbits(bits, axis=1, count=pending.shape[1]).astype(bool), sizes, counts)
        return together.sum(0) / np.float32(len(together))


def _signed(positive: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    each = np.repeat(sizes, counts, axis=1)
    return np.where(positive, each, -each)


class PowerSGD:
    """PowerSGD: approximates each kernel by a product of two thin matrices (Vogels et al. 2019, arXiv:1905.13727).

    One step of power iteration computes both matrices, with two all-reduces. It starts from the right matrix of the
    previous update (warm start), so that over many updates the matrices approach the largest singular vectors. Vectors
    (biases) are sent uncompressed.

    Args:
        shapes: shapes of the matrices and vectors in the gradient, in order.
        rank: columns of the thin matrices; at most the smaller side of the kernel.
        memory: keep the residual; else it is lost.
        seed: for the first right matrices, the same on all ranks.

    Raises:
        ValueError: for a tensor that is neither a matrix nor a vector, such as a convolution's kernel.
    """

    def __init__(
        self,
        communicator: Communicator,
        shapes: Sequence[Sequence[int]],
        rank: int,
        *,
        memory: bool = True,
        seed: int = 0,
    ) -> None:
        if other := next((tuple(shape) for shape in shapes if len(shape) not in (1, 2)), None):
            raise ValueError(f"PowerSGD takes matrices and vectors; one tensor has the shape {other}.")
        self.communicator, self.shapes = communicator, [tuple(shape) for shape in shapes]
        self.memory, self.residual = memory, np.zeros((), np.float32)
        random = np.random.default_rng(seed)
        kernels = [shape for shape in self.shapes if len(shape) == 2]
        self.right = [random.normal(size=(s[1], min(rank, *s))).astype(np.float32) for s in kernels]

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → the mean over all ranks of their approximations, [L]."""
        pending = self.residual + gradients
        tensors = split(pending, self.shapes)
        kernels = [tensor for tensor in tensors if tensor.ndim == 3]
        vectors = [tensor for tensor in tensors if tensor.ndim == 2]
        thin = [kernel @ right for kernel, right in zip(kernels, self.right)]
        means = self._means([*thin, *vectors])
        left = [np.linalg.qr(each)[0] for each in means[: len(kernels)]]
        own = [np.swapaxes(kernel, 1, 2) @ each for kernel, each in zip(kernels, left)]
        self.right = self._means(own)
        if self.memory:
            sent = iter([each @ np.swapaxes(right, 1, 2) for each, right in zip(left, own)])
            self.residual = pending - joined([next(sent) if tensor.ndim == 3 else tensor for tensor in tensors])
        products = iter([each @ right.T for each, right in zip(left, self.right)])
        biases = iter(means[len(kernels) :])
        return joined([next(products) if len(shape) == 2 else next(biases) for shape in self.shapes], 0)

    def _means(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The means over all ranks of several arrays [n, …], with one all-reduce."""
        return split(self.communicator.mean(joined(arrays)), [array.shape[1:] for array in arrays])


def split(flat: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Split `flat` […, L] into consecutive views […, *shape]."""
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    return [flat[..., a:b].reshape(*flat.shape[:-1], *shape) for a, b, shape in zip(ends, ends[1:], shapes)]


def joined(tensors: Sequence[np.ndarray], lead: int = 1) -> np.ndarray:
    """Flatten the tensors [*n, *shape] and concatenate them to [*n, L]; `lead` is the number of axes in *n."""
    return np.concatenate([tensor.reshape(*tensor.shape[:lead], -1) for tensor in tensors], axis=lead)
