"""How many numbers a network holds: weights, the activations that training keeps, what crosses a cut between layers.

All counts of activations are for one image. "Kept" are the outputs that the backward pass needs again:

- of a convolution or a sum that a normalisation follows (its gradient needs its input);
- of a ReLU (its gradient and that of the next convolution's weights), a pooling and a local response normalisation;
- of a dense layer.

The output of a batch norm is not kept, since the ReLU behind it tells the rest, nor that of a convolution that only
a ReLU or a sum follows. Frameworks differ in details; what a step holds for a moment (the gradients of activations,
work space) comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

NUMBER = 4  # bytes of a number in single precision
OPTIMIZERS = {"SGD": 0, "momentum": 1, "Adam": 2}  # numbers that it keeps for each weight, beside the gradient


@dataclass(frozen=True)
class Layer:
    """A piece of a network that is not cut: a layer with what belongs to it, or a residual block."""

    name: str
    weights: int  # trainable numbers
    activations: int  # numbers kept for the backward pass, for one image
    output: int  # numbers handed to the next piece, for one image
    multiply_adds: int  # forward, for one image


@dataclass(frozen=True)
class Network:
    """A chain of layers; `image` counts the numbers of an input image, `source` says where the sizes come from."""

    name: str
    source: str
    image: int
    layers: tuple[Layer, ...]

    @property
    def weights(self) -> int:
        """Trainable numbers of all layers."""
        return sum(layer.weights for layer in self.layers)

    @property
    def activations(self) -> int:
        """Numbers kept for the backward pass, for one image, the image included."""
        return self.image + sum(layer.activations for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        """Of a forward pass, for one image."""
        return sum(layer.multiply_adds for layer in self.layers)


# Cutting


@cache
def split(network: Network, devices: int) -> tuple[tuple[Layer, ...], ...]:
    """The layers cut into one run for each device, so that the busiest device has the fewest multiply-adds.

    Of equally good cuts the one that fewest activations cross is taken. A network with fewer layers than devices
    leaves the last devices empty.
    """
    layers = network.layers
    used = min(devices, len(layers))
    # best[k]: for the first k layers on so many devices, (work of the busiest, numbers that cross, where to cut)
    best = {end: (_work(layers[:end]), 0, ()) for end in range(1, len(layers) + 1)}
    for count in range(2, used + 1):
        best = {
            end: min(
                (max(best[cut][0], _work(layers[cut:end])), best[cut][1] + layers[cut - 1].output, (*best[cut][2], cut))
                for cut in range(count - 1, end)
            )
            for end in range(count, len(layers) + 1)
        }
    cuts = (0, *best[len(layers)][2], len(layers))
    return tuple(layers[a:b] for a, b in zip(cuts, cuts[1:])) + ((),) * (devices - used)


def cuts(network: Network, devices: int) -> tuple[int, ...]:
    """Numbers that cross from each device to the next for one image, when `split` has cut the network."""
    return tuple(run[-1].output for run in split(network, devices) if run)[:-1]


def _work(layers: Sequence[Layer]) -> int:
    return sum(layer.multiply_adds for layer in layers)


def largest_batch(size: Callable[[int], float], limit: float) -> int:
    """The largest batch for which `size(batch)`, which grows with the batch, is at most `limit`; 0 if none is."""
    if size(1) > limit:
        return 0
    high = 2
    while size(high) <= limit:
        high *= 2
        if high > 1e12:
            raise ValueError("size(batch) does not grow with the batch")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= limit else (low, middle)
    return low


# Training


def recomputed(network: Network) -> int:
    """Numbers kept for one image when of each layer only the input is kept, and the rest computed again.

    In the backward pass one layer at a time has all of its activations besides.
    """
    inputs = network.image + sum(layer.output for layer in network.layers[:-1])
    return inputs + max(layer.activations for layer in network.layers)


def training(
    network: Network, batch: int, optimizer: str = "Adam", *,
    mixed: bool = False, ranks: int = 1, stage: int = 0,
) -> dict[str, float]:  # fmt: skip
    """Bytes that training keeps on each rank: "weights", "gradients", "state" and "activations".

    Args:
        batch: images of a step on one rank.
        optimizer: one of OPTIMIZERS.
        mixed: weights, gradients and activations have 16 bits, and the state includes the weights in 32 bits.
        ranks, stage: of `ranks` ranks each keeps a share only of the state (stage 1), the gradients, too (stage 2), the
            weights, too (stage 3). The stages are those of ZeRO (arXiv:1910.02054).
    """
    number = NUMBER / 2 if mixed else NUMBER
    return {
        "weights": number * network.weights / (ranks if stage >= 3 else 1),
        "gradients": number * network.weights / (ranks if stage >= 2 else 1),
        "state": NUMBER * (OPTIMIZERS[optimizer] + mixed) * network.weights / (ranks if stage >= 1 else 1),
        "activations": number * network.activations * batch,
    }


# Counting


def walk(model: Any) -> list[dict[str, Any]]:
    """A row for each layer of a Keras model: name, kind, weights, outputs (numbers for one image), kept.

    It knows the layers of `models.small_cnn` and its like, where a ReLU follows each batch norm.
    """
    rows = []
    for layer in model.layers:
        kind = type(layer).__name__
        shapes = layer.output_shape if isinstance(layer.output_shape, list) else [layer.output_shape]
        rows.append(
            {
                "layer": layer.name,
                "kind": kind,
                "weights": sum(math.prod(weight.shape) for weight in layer.trainable_weights),
                "outputs": sum(math.prod(shape[1:]) for shape in shapes),
                # What Flatten hands on is the same memory; the image is kept as the scaled one.
                "kept": kind not in ("InputLayer", "BatchNormalization", "Flatten"),
            }
        )
    return rows


class _Count:
    """Follows an image through a network and counts; `piece` closes a layer."""

    def __init__(self, side: int, channels: int) -> None:
        self.side, self.channels = side, channels
        self.layers: list[Layer] = []
        self._clear()

    def _clear(self) -> None:
        self._weights = self._kept = self._multiply_adds = 0

    @property
    def _size(self) -> int:
        return self.side**2 * self.channels

    def keep(self) -> _Count:
        """Keep what is here now: the output of a sum, a pooling, a ReLU."""
        self._kept += self._size
        return self

    relu = keep

    def conv(self, channels: int, kernel: int, stride: int = 1, *, bias: bool = False, groups: int = 1) -> _Count:
        """A convolution that keeps the size but for its stride."""
        return self.valid(channels, kernel, stride, math.ceil(self.side / stride), bias=bias, groups=groups)

    def valid(
        self, channels: int, kernel: int, stride: int, side: int, *, bias: bool = False, groups: int = 1
    ) -> _Count:
        """A convolution to images of `side` × `side`."""
        one = kernel**2 * self.channels // groups * channels
        self.side, self.channels = side, channels
        self._weights += one + channels * bias
        self._multiply_adds += one * side**2
        return self

    def norm(self) -> _Count:
        """Batch norm: keeps its input, has a scale and a shift for each channel."""
        self._weights += 2 * self.channels
        return self.keep()

    def pool(self, side: int) -> _Count:
        """Pooling to images of `side` × `side`."""
        self.side = side
        return self.keep()

    def dense(self, units: int) -> _Count:
        """A dense layer with a bias."""
        self._weights += self._size * units + units
        self._multiply_adds += self._size * units
        self.side, self.channels = 1, units
        return self.keep()

    def shortcut(self, channels: int, *, norm: bool) -> _Count:
        """A 1 × 1 convolution beside a block that began with `channels`."""
        self._weights += channels * self.channels + 2 * self.channels * norm
        self._multiply_adds += channels * self._size
        self._kept += self._size * norm
        return self

    def piece(self, name: str) -> None:
        self.layers.append(Layer(name, self._weights, self._kept, self._size, self._multiply_adds))
        self._clear()


def _small_cnn() -> Network:
    count = _Count(28, 1)
    for number, channels in enumerate((32, 48, 64), 1):
        count.conv(channels, 3).norm().relu().pool(count.side // 2).piece(f"conv {number}")
    count.dense(10).piece("dense")
    return Network("small CNN", "models.small_cnn, Fashion-MNIST 28 × 28", 28 * 28, tuple(count.layers))


def wide_resnet(depth: int = 28, width: int = 10) -> Network:
    """A Wide ResNet for 32 × 32: three groups of (depth − 4) / 6 blocks with 16, 32 and 64 times `width` channels."""
    count = _Count(32, 3)
    count.conv(16, 3).piece("conv 1")
    for group, channels in enumerate((16, 32, 64), 2):
        for block in range((depth - 4) // 6):
            before, stride = count.channels, 2 if group > 2 and block == 0 else 1
            count.norm().relu().conv(width * channels, 3, stride).norm().relu().conv(width * channels, 3)
            if block == 0:
                count.shortcut(before, norm=False)
            count.piece(f"block {group}.{block + 1}")
    count.norm().relu().pool(1).dense(10).piece("dense")
    source = "arXiv:1605.07146, CIFAR-10 32 × 32"
    return Network(f"WRN-{depth}-{width}", source, 32 * 32 * 3, tuple(count.layers))


def _resnet50() -> Network:
    # As in the paper a 1 × 1 convolution shrinks the image; in `networks.resnet50` a 3 × 3 does, as in frameworks.
    count = _Count(224, 3)
    count.conv(64, 7, 2).norm().relu().pool(56).piece("conv 1")
    for group, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(blocks):
            channels, stride = count.channels, 2 if group > 2 and block == 0 else 1
            count.conv(width, 1, stride).norm().relu().conv(width, 3).norm().relu().conv(4 * width, 1).norm()
            if block == 0:
                count.shortcut(channels, norm=True)
            count.relu().piece(f"block {group}.{block + 1}")
    count.pool(1).dense(1000).piece("dense")
    return Network("ResNet-50", "arXiv:1512.03385, ImageNet 224 × 224", 224 * 224 * 3, tuple(count.layers))


def _alexnet() -> Network:
    # Two groups in convolutions 2, 4 and 5, as in the paper: 61.0 million weights. Without groups it has 62.4.
    count = _Count(227, 3)
    count.valid(96, 11, 4, 55, bias=True).relu().keep().pool(27).piece("conv 1")
    count.conv(256, 5, bias=True, groups=2).relu().keep().pool(13).piece("conv 2")
    count.conv(384, 3, bias=True).relu().piece("conv 3")
    count.conv(384, 3, bias=True, groups=2).relu().piece("conv 4")
    count.conv(256, 3, bias=True, groups=2).relu().pool(6).piece("conv 5")
    for number, units in ((6, 4096), (7, 4096), (8, 1000)):
        count.dense(units).piece(f"dense {number}")
    return Network("AlexNet", "Krizhevsky et al. 2012, ImageNet 227 × 227", 227 * 227 * 3, tuple(count.layers))


def vgg16() -> Network:
    """VGG-16 (arXiv:1409.1556, configuration D), every convolution a layer of its own, with the pooling after it."""
    count = _Count(224, 3)
    for group, (channels, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for number in range(1, convolutions + 1):
            count.conv(channels, 3, bias=True).relu()
            if number == convolutions:
                count.pool(count.side // 2)
            count.piece(f"conv {group}.{number}")
    for number, units in ((6, 4096), (7, 4096), (8, 1000)):
        count.dense(units).piece(f"dense {number}")
    return Network("VGG-16", "arXiv:1409.1556, ImageNet 224 × 224", 224 * 224 * 3, tuple(count.layers))


NETWORKS = {network.name: network for network in (_small_cnn(), wide_resnet(), _resnet50(), _alexnet())}
