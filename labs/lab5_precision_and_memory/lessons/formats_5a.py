"""Training in other number formats: a network in NumPy that rounds every tensor to a format, with float32 in between.

What is rounded: weights before they are used, the outputs of each layer, their slopes on the way back, and the
gradients of the weights. A product of matrices adds up in float32, as the matrix units of GPUs do. Softmax and loss
stay in float32, and so do the master weights, unless a way says otherwise, and the momentum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from course_lib.precision import LossScale, largest, shared_exponent, with_shared_exponent
from labs.lab5_precision_and_memory.lessons.narrow_training import Part

MOMENTUM = np.float32(0.9)
HIDDEN = (64, 64, 64, 64)
BATCH, EPOCHS = 1_280, 15
FIRST_SCALE, CLEAN_STEPS = 2.0**15, 50  # of a dynamic loss scale; clean steps: a run has only 150
BITS, HISTORY, HEADROOM = 16, 8, 2.0  # of Flexpoint: bits of an integer; maxima that are kept, and by what multiplied

Round = Callable[[str, np.ndarray], np.ndarray]  # (name of the tensor, its numbers) → the numbers, rounded


class Format(NamedTuple):
    """What a figure needs of a format."""

    name: str
    exponent: int
    mantissa: int


FORMATS = (Format("float16", 5, 10), Format("bfloat16", 8, 7), Format("fp8 (5, 2)", 5, 2), Format("fp8 (4, 3)", 4, 3))


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """float32: nothing is rounded."""
    return x


def casting(exponent: int, mantissa: int) -> Round:
    """What rounds each number by itself to an IEEE-like format of 6 exponent bits or fewer, or to bfloat16's 8.

    It gives what `precision.quantise` gives, in a fraction of the time, except that the smallest numbers of 8 exponent
    bits, which are subnormal, keep more of their digits.
    """
    cut = 23 - mantissa
    shifter = np.float32(1.5 * 2.0 ** (23 + 2 - 2 ** (exponent - 1) - mantissa))
    lowest, most = np.float32(2.0 ** (2 - 2 ** (exponent - 1))), np.float32(largest(exponent, mantissa))

    def cast(name: str, x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(np.uint32)
        even = (bits >> cut) & np.uint32(1)
        rounded = ((bits + (even + np.uint32(2 ** (cut - 1) - 1))) & np.uint32(2**32 - 2**cut)).view(np.float32)
        size = np.abs(x)
        with np.errstate(invalid="ignore"):
            if exponent < 8:
                rounded = np.where(size < lowest, (x + shifter) - shifter, rounded)
            rounded = np.where(np.abs(rounded) > most, np.copysign(np.float32(np.inf), x), rounded)
        return np.where(np.isfinite(x), rounded, x)

    return cast


float16, bfloat16, _fp8 = casting(5, 10), casting(8, 7), casting(5, 2)


def fp8_gradients(name: str, x: np.ndarray) -> np.ndarray:
    """Slopes and gradients in (5, 2), all else in float16."""
    return float16(name, x) if name.startswith(("weights", "activations")) else _fp8(name, x)


def by_chance(seed: int = 0) -> Round:
    """What rounds to bfloat16, up or down by chance, so that the mean is the number itself."""
    random = np.random.default_rng(seed)

    def cast(name: str, x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(np.uint32)
        draws = random.integers(0, 2**16, x.shape, dtype=np.uint32)
        return ((bits + draws) & np.uint32(2**32 - 2**16)).view(np.float32)

    return cast


class Flexpoint:
    """Integers with one exponent for each tensor, which is set before the tensor is known (arXiv:1711.02213).

    The largest magnitude to come is taken to be HEADROOM times the largest of the last few; the paper's own rule also
    looks at how much they scatter. What is larger all the same becomes the largest number that there is. Only for a
    tensor's first time its own largest magnitude is used.

    Args:
        bound: past maxima, the latest last → the largest magnitude to plan for.
    """

    def __init__(self, bound: Callable[[Sequence[float]], float] | None = None) -> None:
        self._bound = bound or (lambda maxima: HEADROOM * max(maxima[-HISTORY:]))
        self._maxima: dict[str, deque] = {}
        self.tensors = self.too_large = 0

    def __call__(self, name: str, x: np.ndarray) -> np.ndarray:
        """The numbers of tensor `name`, rounded."""
        largest = float(np.abs(x).max())
        past = self._maxima.setdefault(name, deque(maxlen=100))
        bound = float(self._bound(list(past))) if past else largest
        if np.isfinite(largest):
            past.append(largest)
        k = shared_exponent(bound, BITS)
        self.tensors += 1
        self.too_large += largest > (2 ** (BITS - 1) - 0.5) * 2.0**k
        return with_shared_exponent(x, k, BITS)


class Way(NamedTuple):
    """How a training rounds: tensors, and the weights that are kept; and how its loss is scaled."""

    rounded: Round
    scaling: LossScale | None = None
    keep: Round = exact


FLOAT32 = Way(exact)
WAYS: dict[str, Callable[[], Way]] = {
    "float32": lambda: FLOAT32,
    "float16": lambda: Way(float16),
    "float16, scaled loss": lambda: Way(float16, LossScale(FIRST_SCALE, CLEAN_STEPS)),
    "bfloat16": lambda: Way(bfloat16),
    "Flexpoint": lambda: Way(Flexpoint()),
    "fp8 gradients": lambda: Way(fp8_gradients),
    "fp8 gradients, scaled loss": lambda: Way(fp8_gradients, LossScale(FIRST_SCALE, CLEAN_STEPS)),
    "no master weights": lambda: Way(bfloat16, keep=bfloat16),
    "no master weights, by chance": lambda: Way(bfloat16, keep=by_chance()),
}


class Network:
    """Dense layers with ReLU between them and a softmax at the end. Its weights are a list: kernel, bias, kernel, …"""

    def __init__(self, widths: Sequence[int]) -> None:
        self.pairs = list(zip(widths, widths[1:]))

    def draw(self, seed: int) -> list[np.ndarray]:
        """First weights: kernels normal with variance 2 / inputs (arXiv:1502.01852), biases 0."""
        random = np.random.default_rng(seed)
        return [
            tensor.astype(np.float32)
            for inputs, outputs in self.pairs
            for tensor in (random.normal(0, np.sqrt(2 / inputs), (inputs, outputs)), np.zeros(outputs))
        ]

    def gradients(
        self, weights: list[np.ndarray], images: np.ndarray, labels: np.ndarray, rounded: Round = exact,
        scale: float = 1.0,
    ) -> tuple[float, list[np.ndarray]]:  # fmt: skip
        """The mean loss of a batch, and the gradient of `scale` times it, for each of the weights.

        `rounded` is called with every tensor, by a name as "weights 1", "activations 1", "slopes 1", "gradients 1"
        (the kernel's) or "biases 1", and the numbers go on as it returns them.

        Args:
            images: [b, pixels]. labels: [b].
        """
        layers = range(1, len(self.pairs) + 1)
        kernels = [rounded(f"weights {layer}", weights[2 * layer - 2]) for layer in layers]
        made = [rounded("activations 0", images)]
        for layer, kernel in zip(layers, kernels):
            outputs = made[-1] @ kernel + weights[2 * layer - 1]
            made.append(outputs if layer == layers[-1] else rounded(f"activations {layer}", np.maximum(outputs, 0)))
        chances = np.exp(made[-1] - made[-1].max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        every = np.arange(len(labels))
        loss = float(-np.log(np.maximum(chances[every, labels], 1e-9)).mean())
        chances[every, labels] -= 1
        slopes = rounded(f"slopes {layers[-1]}", chances * np.float32(scale / len(labels)))
        found: list[np.ndarray] = []
        for layer in reversed(layers):
            bias = rounded(f"biases {layer}", slopes.sum(0))
            found = [rounded(f"gradients {layer}", made[layer - 1].T @ slopes), bias, *found]
            if layer > 1:
                back = (slopes @ kernels[layer - 1].T) * (made[layer - 1] > 0)
                slopes = rounded(f"slopes {layer - 1}", back)
        return loss, found

    def scores(self, weights: list[np.ndarray], images: np.ndarray, rounded: Round = exact) -> np.ndarray:
        """What stands before the softmax: [n, 10]."""
        x = rounded("activations 0", images)
        for layer, (kernel, bias) in enumerate(zip(weights[::2], weights[1::2]), 1):
            x = x @ rounded(f"weights {layer}", kernel) + bias
            if layer < len(self.pairs):
                x = rounded(f"activations {layer}", np.maximum(x, 0))
        return x

    def evaluate(self, weights: list[np.ndarray], part: Part) -> tuple[float, float]:
        """Mean loss and accuracy of `part` with the master weights; of weights that overflowed ∞ and 0.1."""
        if not all(np.isfinite(tensor).all() for tensor in weights):
            return float("inf"), 0.1
        with np.errstate(all="ignore"):
            scores = self.scores(weights, part.images)
            shifted = scores - scores.max(-1, keepdims=True)
            losses = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(scores)), part.labels]
        if not np.isfinite(scores).all():
            return float("inf"), 0.1
        return float(losses.mean()), float((scores.argmax(-1) == part.labels).mean())


class State(NamedTuple):
    """A training after some updates."""

    updates: int
    weights: list[np.ndarray]
    loss: float
    scale: float
    left_out: int


def train(
    network: Network, part: Part, rate: float, seed: int, way: Way = FLOAT32, *,
    batch: int = BATCH, epochs: int = EPOCHS,
) -> Iterator[State]:  # fmt: skip
    """SGD with momentum 0.9; a tenth of the updates are warm-up, then cosine decay. The state after each update.

    Args:
        rate: the largest learning rate. seed: draws the first weights and the order of the images.
        way: how tensors and weights are rounded; the loss is not scaled unless it says so.
    """
    rounded, scaling, keep = way
    weights, random = network.draw(seed), np.random.default_rng(1_000 + seed)
    velocity = [np.zeros_like(tensor) for tensor in weights]
    size, left_out = len(part.labels), 0
    updates = size // batch * epochs
    warm_up = max(1, updates // 10)
    order = np.concatenate([random.permutation(size)[: size // batch * batch] for _ in range(epochs)])
    for update in range(updates):
        decay = (1 + np.cos(np.pi * max(0, update - warm_up) / max(1, updates - warm_up))) / 2
        now = np.float32(rate * min(1, (update + 1) / warm_up) * decay)
        at = order[update * batch : (update + 1) * batch]
        scale = scaling.scale if scaling else 1.0
        with np.errstate(all="ignore"):
            loss, found = network.gradients(weights, part.images[at], part.labels[at], rounded, scale)
            if scaling and not scaling.update(found):
                left_out += 1
            else:
                velocity = [MOMENTUM * v + slope / np.float32(scale) for v, slope in zip(velocity, found)]
                weights = [keep("", tensor - now * v) for tensor, v in zip(weights, velocity)]
        yield State(update + 1, weights, loss, scale, left_out)


def look(network: Network, state: State, part: Part, images: int = BATCH) -> dict[str, np.ndarray]:
    """Every tensor of one pass in float32, by its name (see `Network.gradients`), without the biases."""
    seen: dict[str, np.ndarray] = {}

    def keep(name: str, x: np.ndarray) -> np.ndarray:
        if not name.startswith("biases"):
            seen[name] = x
        return x

    network.gradients(state.weights, part.images[:images], part.labels[:images], keep)
    return seen


def lost(x: np.ndarray, cast: Round = float16) -> float:
    """The share of the numbers other than 0 that a cast makes 0."""
    numbers = x[x != 0]
    return float(np.mean(cast("", numbers) == 0)) if numbers.size else 0.0
