"""Gradients of which only a part is sent: the largest numbers, the signs, or a few columns. The rest waits.

    compressor = TopK(LocalCommunicator(), ratio=0.01)
    step = compressor.compressed_mean(gradients)        # [n, L] → [L], the same on all ranks

n is the number of ranks that this process computes: all N in an emulation, one on a real rank. What travels goes
through a `Communicator`, which also counts it; so a real rank computes what its emulation does, in the same order.

A compressor with a memory sends what it did not send before: it adds what it kept to the next gradient (error feedback:
Seide et al. 2014; Karimireddy et al. 2019, arXiv:1901.09847).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FIRST_RATIO = 0.25  # of deep gradient compression's warm-up


class Communicator:
    """How ranks exchange arrays, and the bytes that one rank has handed over so far: `reduced` and `gathered`."""

    def __init__(self, ranks: int | None = None) -> None:
        self.ranks, self.reduced, self.gathered = ranks, 0, 0

    def mean(self, parts: np.ndarray) -> np.ndarray:
        """An all-reduce: arrays [n, …] of the ranks here → the mean over all N ranks."""
        self.reduced += parts[0].nbytes
        return self._sum(parts) / parts.dtype.type(self.ranks or len(parts))

    def gather(self, parts: np.ndarray) -> np.ndarray:
        """An all-gather: arrays [n, …] of the ranks here → those of all N ranks, in the order of the ranks."""
        self.gathered += parts[0].nbytes
        return self._all(parts)

    def sent(self, ranks: int) -> float:
        """The bytes that a rank sends in all if both go round a ring of so many ranks."""
        return 2 * (ranks - 1) / ranks * self.reduced + (ranks - 1) * self.gathered

    def _sum(self, parts: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _all(self, parts: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class LocalCommunicator(Communicator):
    """All ranks are in this process."""

    def _sum(self, parts: np.ndarray) -> np.ndarray:
        return parts.sum(0)

    def _all(self, parts: np.ndarray) -> np.ndarray:
        return parts


class Dense:
    """Everything is sent, by all-reduce."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → their mean over all ranks, [L]."""
        return self.communicator.mean(gradients)


class TopK:
    """The largest numbers of each rank, with their positions, by all-gather.

    With `momentum` it does momentum correction (Lin et al. 2018, arXiv:1712.01887): a rank adds up its velocity, not
    its gradient, and the mean is a finished step: whoever takes it adds no momentum of his own.

    Args:
        ratio: the share of numbers that a rank sends, rounded to a whole number of them, and at least one.
        memory: keep what is not sent; else it is lost.
        masking: set the velocity of what is sent to 0 (momentum factor masking).
        clip: the length to which a rank shortens a longer gradient, times √N; None for no clipping.
        warm_up: for so many updates more is sent, FIRST_RATIO at first, then ever less (the ratio falls exponentially).
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
        self.residual = self.velocity = np.zeros((), np.float32)  # [n, L] from the first update on

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → what all ranks together send, divided by their number, [L]."""
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
    """Positions of the k numbers of largest size in each row of values [n, L]: int32 [n, k], in no order."""
    return np.argpartition(-np.abs(values), k - 1, axis=1)[:, :k].astype(np.int32)


def scatter_mean(positions: np.ndarray, values: np.ndarray, length: int) -> np.ndarray:
    """The mean [L] of N sparse vectors: positions and values [N, k]. Where nobody sends it is 0."""
    total = np.zeros(length, values.dtype)
    for at, sent in zip(positions, values):
        total[at] += sent
    return total / values.dtype.type(len(values))


class Sign:
    """One bit for each number, its sign, and one float32 for each tensor, the mean size of its numbers; by all-gather.

    With a memory this is EF-SIGNSGD (Karimireddy et al. 2019).

    Args:
        ends: [T + 1], where the tensors begin and end in the gradient.
        momentum: of each rank, before its signs are taken, as in `TopK`.
    """

    def __init__(
        self, communicator: Communicator, ends: Sequence[int], *, memory: bool = True, momentum: float = 0.0
    ) -> None:
        self.communicator, self.ends = communicator, np.asarray(ends)
        self.memory, self.momentum = memory, np.float32(momentum)
        self.residual = self.velocity = np.zeros((), np.float32)

    def compressed_mean(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients [n, L] → the mean over all ranks of their signs times their sizes, [L]."""
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
    """Of each kernel a product of two thin matrices, by two all-reduces (Vogels et al. 2019, arXiv:1905.13727).

    One step of the power iteration finds both. It begins with the right one of the update before (warm start), so
    that over many updates they approach the largest singular vectors. Vectors (biases) are sent as they are.

    Args:
        shapes: of the matrices and vectors that make up the gradient, in their order.
        rank: columns of the thin matrices, of a small kernel as many as it has.
        seed: of the first right matrices, the same on all ranks.

    Raises:
        ValueError: for a tensor that is neither, as a convolution's kernel is.
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
        """Of several arrays [n, …] in one all-reduce."""
        return split(self.communicator.mean(joined(arrays)), [array.shape[1:] for array in arrays])


def split(flat: np.ndarray, shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Views of flat […, L] as tensors […, *shape], one after the other."""
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    return [flat[..., a:b].reshape(*flat.shape[:-1], *shape) for a, b, shape in zip(ends, ends[1:], shapes)]


def joined(tensors: Sequence[np.ndarray], lead: int = 1) -> np.ndarray:
    """The tensors [*n, *shape] as one array [*n, L]; `lead` is the number of axes that stay."""
    return np.concatenate([tensor.reshape(*tensor.shape[:lead], -1) for tensor in tensors], axis=lead)
