"""Training with gradients of few bits, by emulated ranks in one process: a network in NumPy, and means over the ranks.

The arithmetic is that of real ranks in the same order, so the results are equal to the bit; a test compares them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from course_lib import collectives
from course_lib.collectives import simulated
from course_lib.data.splits import Part, Problem
from course_lib.precision import auto_scale, quantise
from labs.lab5_precision_and_memory.lessons import narrow_wire as wire
from labs.lab5_precision_and_memory.lessons.narrow_wire import Cast, Format

RANKS, MOMENTUM = 8, np.float32(0.9)
HIDDEN = (64, 64)
IMAGES = 12_800
LARGEST_SHIFT = 100  # octaves: a factor must itself be a float32

Reduce = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (gradients [N, L], ends of the tensors) → mean [L] or [N, L]


def fashion(images: int = IMAGES, side: int = 14) -> Problem:
    """The first `images` of Fashion-MNIST (of a slice fewer), shrunk to side × side pixels and standardised.

    Args:
        side: 28, 14 or 7: neighbouring pixels are averaged.
    """
    return Problem.fashion(images).downsampled(side)


class Network:
    """Dense layers with ReLU between them and a softmax at the end. Its weights are one float32 array, [L].

    `ends` [T + 1] says where its tensors begin and end in it: kernel, bias, kernel, bias, …; `names` are theirs.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        pairs = list(zip(widths, widths[1:]))
        self.shapes = [shape for inputs, outputs in pairs for shape in ((inputs, outputs), (outputs,))]
        self.names = [f"{what} {layer}" for layer in range(1, len(pairs) + 1) for what in ("kernel", "bias")]
        self.ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])

    def draw(self, seed: int) -> np.ndarray:
        """First weights [L]: kernels normal with variance 2 / inputs (arXiv:1502.01852), biases 0."""
        random = np.random.default_rng(seed)
        return np.concatenate(
            [
                (random.normal(0, np.sqrt(2 / shape[0]), shape) if len(shape) == 2 else np.zeros(shape)).ravel()
                for shape in self.shapes
            ]
        ).astype(np.float32)

    def activations(self, weights: np.ndarray, images: np.ndarray) -> list[np.ndarray]:
        """The images and what each layer makes of them; weights [L], or [N, L] for images [N, b, pixels]."""
        made, tensors = [images], self._tensors(weights)
        for kernel, bias in zip(tensors[::2], tensors[1::2]):
            made.append(made[-1] @ kernel + bias[..., None, :])
            if kernel is not tensors[-2]:
                made[-1] = np.maximum(made[-1], 0)
        return made

    def gradients(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss of all, and the gradient [N, L] of each rank's own mean loss.

        Args:
            weights: [L], or one row for each rank. images: [N, b, pixels]. labels: [N, b].
        """
        made, tensors = self.activations(weights, images), self._tensors(weights)
        scores = np.exp(made[-1] - made[-1].max(-1, keepdims=True))
        chances = scores / scores.sum(-1, keepdims=True)
        right = labels[..., None]
        loss = -np.log(np.maximum(np.take_along_axis(chances, right, -1), 1e-9)).mean()
        np.put_along_axis(chances, right, np.take_along_axis(chances, right, -1) - 1, -1)
        slope = chances / np.float32(labels.shape[-1])
        found = np.empty((len(images), self.ends[-1]), np.float32)
        into = self._tensors(found)
        for layer in reversed(range(len(made) - 1)):
            into[2 * layer][...] = np.swapaxes(made[layer], -1, -2) @ slope
            into[2 * layer + 1][...] = slope.sum(-2)
            slope = (slope @ np.swapaxes(tensors[2 * layer], -1, -2)) * (made[layer] > 0)
        return float(loss), found

    def accuracy(self, weights: np.ndarray, part: Part) -> float:
        """The share of `part` that is recognised; 0.1, as by guessing, if weights have overflowed."""
        if not np.isfinite(weights).all():
            return 0.1
        scores = self.activations(weights, part.images)[-1]
        return float((scores.argmax(-1) == part.labels).mean())

    def _tensors(self, flat: np.ndarray) -> list[np.ndarray]:
        ends = zip(self.ends, self.ends[1:], self.shapes)
        return [flat[..., first:last].reshape(*flat.shape[:-1], *shape) for first, last, shape in ends]


class Training:
    """SGD with momentum 0.9; a quarter of the updates are warm-up, then cosine decay. `step` makes one update.

    Args:
        batch: of all ranks together. rate: the largest learning rate. updates: of the whole training.
        reduce: makes the mean of the ranks' gradients: one for all ranks, or one for each, whose weights then differ.
        ranks: N. own: which of them are computed here; all unless given.
        skip: leave out an update whose mean is not finite, as loss scaling does; `skipped` counts them.
    """

    def __init__(
        self,
        problem: Problem,
        batch: int,
        rate: float,
        updates: int,
        seed: int,
        reduce: Reduce,
        ranks: int = RANKS,
        own: slice = slice(None),
        skip: bool = False,
    ) -> None:
        self.network = Network((problem.train.images.shape[1], *HIDDEN, 10))
        self.weights = self.network.draw(seed)
        self.update, self.skipped, self.loss = 0, 0, float("nan")
        self.parts = self.mean = np.zeros(0, np.float32)
        self._part, self._batch, self._rate, self._updates = problem.train, batch, rate, updates
        self._reduce, self._ranks, self._own, self._skip = reduce, ranks, own, skip
        self._velocity, self._order = np.zeros_like(self.weights), np.empty(0, int)
        self._random = np.random.default_rng(seed)

    @property
    def finite(self) -> bool:
        """Whether no weight has overflowed."""
        return bool(np.isfinite(self.weights).all())

    def step(self) -> None:
        """One update. Afterwards `loss` is that of its batch, `parts` and `mean` are what went into it and came out."""
        at = self._draw().reshape(self._ranks, -1)[self._own]
        self.loss, self.parts = self.network.gradients(self.weights, self._part.images[at], self._part.labels[at])
        self.mean = self._reduce(self.parts, self.network.ends)
        if self._skip and not np.isfinite(self.mean).all():
            self.skipped += 1
        else:
            self._velocity = MOMENTUM * self._velocity + np.float32(self._rate_now()) * self.mean
            self.weights = self.weights - self._velocity
        self.update += 1

    def run(self, updates: int | None = None) -> Training:
        """Take `updates` steps, or all that are left; end early if a weight overflows."""
        for _ in range(self._updates - self.update if updates is None else updates):
            if not self.finite:
                break
            self.step()
        return self

    def accuracy(self, part: Part) -> float:
        """Of the first rank's network."""
        return self.network.accuracy(self.weights if self.weights.ndim == 1 else self.weights[0], part)

    def _rate_now(self) -> float:
        warm_up = max(1, self._updates // 4)
        if self.update < warm_up:
            return self._rate * (self.update + 1) / warm_up
        return self._rate / 2 * (1 + np.cos(np.pi * (self.update - warm_up) / (self._updates - warm_up)))

    def _draw(self) -> np.ndarray:
        if len(self._order) < self._batch:
            self._order = self._random.permutation(len(self._part.labels))
        at, self._order = self._order[: self._batch], self._order[self._batch :]
        return at


def ring(parts: np.ndarray, cast: Cast) -> np.ndarray:
    """`narrow_wire.ring_mean` of all ranks at once: [N, L] → [L]."""
    ranks, length = parts.shape
    held = cast(parts)
    first = np.repeat(np.arange(ranks), np.diff(collectives.chunks(length, ranks))) + 1  # where a chunk starts
    column = np.arange(length)
    total = held[first % ranks, column]
    for hop in range(1, ranks):
        total = cast(total + held[(first + hop) % ranks, column])
    return total / np.float32(ranks)


def twice(parts: np.ndarray, cast: Cast) -> np.ndarray:
    """Each number rounded, added up in float32, and the mean rounded: [N, L] → [L]."""
    return cast(cast(parts).sum(0, dtype=np.float32) / np.float32(len(parts)))


def once(parts: np.ndarray, cast: Cast) -> np.ndarray:
    """Each number rounded, sent to everybody, and added up in float32: [N, L] → [L]."""
    return cast(parts).sum(0, dtype=np.float32) / np.float32(len(parts))


WAYS = {"ring": ring, "twice": twice, "once": once}


def casting(form: Format) -> Cast:
    """To the nearest numbers of `form`."""
    return lambda x: quantise(x, *form)


def factor(largest: np.ndarray, ranks: int, form: Format) -> np.ndarray:
    """`auto_scale`'s power of two as what a float32 can be multiplied by: float32, of the shape of `largest`."""
    return np.exp2(np.clip(auto_scale(largest, ranks, form[0]), -LARGEST_SHIFT, LARGEST_SHIFT)).astype(np.float32)


def largest_by_tensor(parts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The largest size of each tensor's numbers, on any of the ranks: [T] of gradients [N, L]."""
    return np.maximum.reduceat(np.abs(parts).max(0), ends[:-1])


def factors(largest: np.ndarray, ends: np.ndarray, form: Format, ranks: int, scale: str = "each") -> np.ndarray:
    """What each number of the gradient is multiplied by: float32 [L].

    Args:
        largest: [T], by tensor, the same on all ranks. ends: [T + 1], of the tensors.
        ranks: how many numbers are added up in the format.
        scale: "each" tensor has a factor of its own, "all" have one together, "none" is multiplied by 1.
    """
    if scale == "none":
        return np.ones(ends[-1], np.float32)
    sizes = largest if scale == "each" else np.full_like(largest, largest.max())
    return np.repeat(factor(sizes, ranks, form), np.diff(ends))


def scaled(parts: np.ndarray, ends: np.ndarray, form: Format, scale: str, way: str) -> tuple[np.ndarray, np.ndarray]:
    """The parts times their factors, and the factors. Only round the ring are numbers added up in the format."""
    by = factors(largest_by_tensor(parts, ends), ends, form, len(parts) if way == "ring" else 1, scale)
    return parts * by, by


def reducer(form: Format | None = None, scale: str = "none", way: str = "ring") -> Reduce:
    """The mean by `way`, one of WAYS, in `form`, with factors by `scale` as in `factors`. No form: in float32."""
    if form is None:
        return lambda parts, ends: parts.sum(0, dtype=np.float32) / np.float32(len(parts))
    cast, mean = casting(form), WAYS[way]

    def reduce(parts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        numbers, by = scaled(parts, ends, form, scale, way)
        return mean(numbers, cast) / by

    return reduce


def by_program(program: Callable[[wire.Rank, np.ndarray], np.ndarray]) -> Reduce:
    """The mean as `program(me, gradient [L])` makes it on simulated ranks; of rank 0."""
    return lambda parts, ends: simulated.run(program, list(parts)).results[0]


def over_tcp(me: wire.TcpRank, form: Format, mean: Callable = wire.ring_mean) -> Reduce:
    """The mean of this rank's gradient [1, L] and those of the others, in `form`; with factors, but for float32.

    Args:
        mean: (me, x [L], cast) → mean [L]. Any but `ring_mean` is taken to add up in float32.
    """
    me.form, plain, cast = form, tuple(form) == wire.FLOAT32, casting(form)
    ranks = me.size if mean is wire.ring_mean else 1

    def reduce(parts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if plain:
            return mean(me, parts[0], np.copy)
        by = factors(me.largest(largest_by_tensor(parts, ends)), ends, form, ranks)
        return mean(me, parts[0] * by, cast) / by

    return reduce


def lost(parts: np.ndarray, ends: np.ndarray, form: Format, scale: str, way: str) -> float:
    """The share of numbers other than 0 that a rank sends as 0."""
    numbers, _ = scaled(parts, ends, form, scale, way)
    return float(np.mean(casting(form)(numbers)[parts != 0] == 0))


def error(parts: np.ndarray, ends: np.ndarray, form: Format, scale: str = "each", way: str = "ring") -> float:
    """How far the mean is from the exact one (in float64), relative to the length of that."""
    exact = parts.mean(0, dtype=np.float64)
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(reducer(form, scale, way)(parts, ends) - exact) / np.linalg.norm(exact))


def time_steps(me: wire.TcpRank, forms: Sequence[Format], steps: int, batch: int, widths: Sequence[int]) -> list[dict]:
    """Time steps on real ranks, the formats in turn: form, seconds computing, seconds of the whole step, bytes sent.

    Args:
        batch: drawn examples on each rank. widths: of the network's layers.
    """
    network, random = Network(widths), np.random.default_rng(me.rank)
    weights = network.draw(0)
    images = random.normal(size=(1, batch, widths[0])).astype(np.float32)
    labels = random.integers(widths[-1], size=(1, batch))
    rows = []
    for step in range(-1, steps):  # the first one is not counted
        for form in forms:
            reduce = over_tcp(me, form)
            me.largest([0.0])  # all begin together
            before = me.sent
            began = time.perf_counter()
            _, parts = network.gradients(weights, images, labels)
            computed = time.perf_counter()
            reduce(parts, network.ends)
            if step >= 0:
                seconds = {"computing": computed - began, "step": time.perf_counter() - began}
                rows.append({"form": form, **seconds, "bytes": me.sent - before})
    return rows
