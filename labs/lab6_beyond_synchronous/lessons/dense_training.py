"""A network of dense layers in NumPy, trained on gradients of which only a part is sent.

Ranks are emulated in one process, or each is a process of its own; the arithmetic is the same, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from course_lib import compression
from course_lib.compression import Communicator, Dense, PowerSGD, Sign, TopK
from course_lib.data.splits import Part
from labs.lab6_beyond_synchronous.lessons import small_network

WIDTHS = (small_network.PIXELS, 64, 64, 10)
RANKS, BATCH, UPDATES = 2, 32, 500  # BATCH: of each rank
MOMENTUM, CLIP = 0.9, 2.0
WARM_UP = 0.1  # share of the updates, of the learning rate and of deep gradient compression's ratio

fashion = small_network.fashion


class Network:
    """Dense layers with ReLU between them and a softmax at the end. Its weights are one float32 array, [L].

    `shapes` are those of its tensors: kernel, bias, kernel, bias, …; `ends` [T + 1] says where they begin and end.
    """

    def __init__(self, widths: Sequence[int] = WIDTHS) -> None:
        self.shapes = [shape for pair in zip(widths, widths[1:]) for shape in (pair, pair[1:])]
        self.ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])

    def draw(self, seed: int) -> np.ndarray:
        """First weights [L]: kernels normal with variance 2 / inputs (arXiv:1502.01852), biases 0."""
        random = np.random.default_rng(seed)
        tensors = [
            random.normal(0, np.sqrt(2 / shape[0]), shape) if len(shape) == 2 else np.zeros(shape)
            for shape in self.shapes
        ]
        return compression.joined(tensors, 0).astype(np.float32)

    def gradient(self, weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean loss on images [b, pixels] with labels [b], and its gradient [L]."""
        made, kernels = self._made(weights, images), compression.split(weights, self.shapes)[::2]
        scores = np.exp(made[-1] - made[-1].max(1, keepdims=True))
        slope = scores / scores.sum(1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(np.maximum(slope[rows, labels], 1e-9)).mean()
        slope[rows, labels] -= 1
        slope /= len(labels)
        found = np.empty_like(weights)
        into = compression.split(found, self.shapes)
        for layer in reversed(range(len(kernels))):
            np.matmul(made[layer].T, slope, out=into[2 * layer])
            slope.sum(0, out=into[2 * layer + 1])
            slope = (slope @ kernels[layer].T) * (made[layer] > 0)
        return float(loss), found

    def accuracy(self, weights: np.ndarray, part: Part) -> float:
        """The share of `part` that is recognised; 0.1, as by guessing, if weights have overflowed."""
        if not np.isfinite(weights).all():
            return 0.1
        return float((self._made(weights, part.images)[-1].argmax(1) == part.labels).mean())

    def _made(self, weights: np.ndarray, images: np.ndarray) -> list[np.ndarray]:
        """The images, and what each layer makes of them."""
        made, tensors = [images], compression.split(weights, self.shapes)
        for number, (kernel, bias) in enumerate(zip(tensors[::2], tensors[1::2]), 1):
            outputs = made[-1] @ kernel + bias
            made.append(np.maximum(outputs, 0) if 2 * number < len(tensors) else outputs)
        return made


class Training:
    """SGD: a tenth of the updates are warm-up of the learning rate, then cosine decay. `step` makes one update.

    Args:
        reduce: makes of the ranks' gradients [n, L] what all of them step by, [L].
        rate: the largest learning rate. momentum: of what `reduce` returns.
        own: which of the `ranks` are computed here; all unless given.
    """

    def __init__(
        self,
        reduce: Callable[[np.ndarray], np.ndarray],
        rate: float,
        seed: int,
        *,
        momentum: float = MOMENTUM,
        updates: int = UPDATES,
        ranks: int = RANKS,
        own: slice = slice(None),
        batch: int = BATCH,
    ) -> None:
        self.problem, self.network = fashion(), Network()
        self.weights, self.update, self.loss = self.network.draw(seed), 0, float("nan")
        self.gradients = self.mean = np.zeros(0, np.float32)
        self._reduce, self._rate, self._momentum, self._updates = reduce, rate, np.float32(momentum), updates
        size = min(ranks * batch, len(self.problem.train.labels) // ranks * ranks)
        self._batches = small_network.batches(updates, seed, size).reshape(updates, ranks, -1)[:, own]
        self._velocity = np.zeros_like(self.weights)

    def step(self) -> None:
        """One update. Afterwards `loss` is that of its batch, `gradients` and `mean` are what went in and came out."""
        part = self.problem.train
        pairs = [self.network.gradient(self.weights, part.images[at], part.labels[at]) for at in self._now()]
        self.loss, self.gradients = float(np.mean([loss for loss, _ in pairs])), np.stack([g for _, g in pairs])
        self.mean = self._reduce(self.gradients)
        self._velocity = self._momentum * self._velocity + self.mean
        self.weights = self.weights - np.float32(self.rate_now()) * self._velocity
        self.update += 1

    def run(self) -> Training:
        """Take all steps that are left; end early if a weight overflows."""
        with np.errstate(all="ignore"):
            while self.update < self._updates and np.isfinite(self.weights).all():
                self.step()
        return self

    def rate_now(self) -> float:
        """The learning rate of the next update."""
        warm_up = max(1, round(WARM_UP * self._updates))
        if self.update < warm_up:
            return self._rate * (self.update + 1) / warm_up
        return self._rate / 2 * (1 + np.cos(np.pi * (self.update - warm_up) / (self._updates - warm_up)))

    def accuracy(self, part: Part) -> float:
        """The share of `part` that is recognised."""
        return self.network.accuracy(self.weights, part)

    def _now(self) -> np.ndarray:
        return self._batches[self.update]


# Ways to send less: name → (wire, network, ratio, updates) → what compresses, and the momentum of whoever takes it.
BEFORE = {"momentum": MOMENTUM}
LADDER = {
    "nothing kept": {"memory": False},
    "memory": {},
    "momentum before": BEFORE,
    "masking": {**BEFORE, "masking": True},
    "clipping": {**BEFORE, "masking": True, "clip": CLIP},
    "warm-up": {**BEFORE, "masking": True, "clip": CLIP, "warm_up": WARM_UP},
}


def compressor(way: str, amount: float, wire: Communicator, network: Network, updates: int = UPDATES) -> tuple:
    """What compresses by `way`, and the momentum that is left for whoever takes its mean.

    Args:
        way: "dense", "signs", "low rank" or one of LADDER. After signs and low rank ", nothing kept" may follow, after
            signs also ", momentum before".
        amount: the ratio of LADDER's ways, the rank of a low rank, else without a meaning.
    """
    if way == "dense":
        return Dense(wire), MOMENTUM
    if way.startswith("signs"):
        before = "before" in way
        momentum = MOMENTUM if before else 0.0
        signs = Sign(wire, network.ends, memory="nothing kept" not in way, momentum=momentum)
        return signs, 0.0 if before else MOMENTUM
    if way.startswith("low rank"):
        return PowerSGD(wire, network.shapes, round(amount), memory=way == "low rank"), MOMENTUM
    settings = dict(LADDER[way])
    settings["warm_up"] = round(settings.get("warm_up", 0) * updates)
    return TopK(wire, amount, **settings), 0.0 if "momentum" in settings else MOMENTUM


def train(
    way: str, amount: float, rate: float, seed: int, updates: int = UPDATES, wire: Communicator | None = None
) -> Training:
    """A whole training by a way of `compressor`, on emulated ranks."""
    compressed, momentum = compressor(way, amount, wire or compression.LocalCommunicator(), Network(), updates)
    return Training(compressed.compressed_mean, rate, seed, momentum=momentum, updates=updates).run()
