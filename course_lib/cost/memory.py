"""Memory of training: weights, stored activations, and the activations that cross a cut between layers.

All counts of activations are for one image. The forward pass keeps the outputs that the backward pass needs:

- of a convolution or a sum before a normalisation (whose gradient needs its input);
- of a ReLU (for its gradient and that of the next convolution's weights), a pooling, a local response normalisation;
- of a dense layer.

It does not keep the output of a batch norm, since the output of the next ReLU is enough, nor that of a convolution
before a ReLU or a sum. Frameworks differ in details, and a step needs further memory for the gradients of activations
and for work space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from course_lib.cost import networks
from course_lib.cost.networks import Image, Layer

NUMBER = 4  # bytes of a number in single precision
Cuts = tuple[int, int, tuple[int, ...]]  # work of the busiest device, activations that cross, positions of the cuts
OPTIMIZERS = {"SGD": 0, "momentum": 1, "Adam": 2}  # numbers of state per weight, without the gradient


@dataclass(frozen=True)
class Network:
    """A chain of layers; `image`: numbers in an input image, `source`: where the sizes come from."""

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
        """Numbers kept for the backward pass, for one image, including the image."""
        return self.image + sum(layer.activations for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of a forward pass, for one image."""
        return sum(layer.multiply_adds for layer in self.layers)


# Cutting


@cache
def split(network: Network, devices: int) -> tuple[tuple[Layer, ...], ...]:
    """Split the layers into consecutive parts, one for each device, to minimise the work of the busiest device.

    Work is counted in multiply-adds. Among equal splits, the one with the fewest activations across the cuts is
    chosen. If there are fewer layers than devices, the last devices get no layers.
    """
    layers = network.layers
    used = min(devices, len(layers))
    # best[k]: the best cuts of the first k layers on `count` devices (here 1)
    best: dict[int, Cuts] = {end: (_work(layers[:end]), 0, ()) for end in range(1, len(layers) + 1)}
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
    """Activations that each device sends to the next for one image, if `split` has cut the network."""
    return tuple(run[-1].output for run in split(network, devices) if run)[:-1]


def _work(layers: Sequence[Layer]) -> int:
    return sum(layer.multiply_adds for layer in layers)


def largest_batch(size: Callable[[int], float], limit: float) -> int:
    """The largest batch with size(batch) ≤ limit; 0 if there is none.

    Args:
        size: increasing function of the batch, for example bytes.

    Raises ValueError if `size` does not increase.
    """
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
    """Numbers kept for one image with activation recomputation: only the input of each layer is kept.

    The backward pass recomputes the activations of one layer at a time; those of the largest layer are included.
    """
    inputs = network.image + sum(layer.output for layer in network.layers[:-1])
    return inputs + max(layer.activations for layer in network.layers)


def training(
    network: Network, batch: int, optimizer: str = "Adam", *,
    mixed: bool = False, ranks: int = 1, stage: int = 0,
) -> dict[str, float]:  # fmt: skip
    """Bytes of memory for training on each rank: "weights", "gradients", "state" and "activations".

    Args:
        batch: images per step on one rank.
        optimizer: one of OPTIMIZERS.
        mixed: weights, gradients and activations have 16 bits, and the state includes the weights in 32 bits.
        ranks: number of ranks.
        stage: ZeRO stage (arXiv:1910.02054): the ranks partition the state (1), also the gradients (2), also the
            weights (3); 0: nothing.
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
    """Count weights and outputs of a Keras model.

    Correct for networks like `models.small_cnn`, in which a ReLU follows each batch norm.

    Returns:
        One dict for each layer: layer (name), kind, weights, outputs (numbers for one image), kept (whether the
        backward pass needs the outputs).
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
                # Flatten shares the memory of its input; the image is counted once, after Rescaling.
                "kept": kind not in ("InputLayer", "BatchNormalization", "Flatten"),
            }
        )
    return rows


def _small_cnn() -> Network:
    image = Image(28, 1)
    for number, channels in enumerate((32, 48, 64), 1):
        image.convolution(f"conv{number}", channels, 3).norm().relu().pool(image.side // 2).piece(f"conv {number}")
    image.dense("dense", 10).piece("dense")
    return Network("small CNN", "models.small_cnn, Fashion-MNIST 28 × 28", 28 * 28, tuple(image.pieces))


def wide_resnet(depth: int = 28, width: int = 10) -> Network:
    """A Wide ResNet for 32 × 32: three groups of (depth − 4) / 6 blocks with 16, 32 and 64 times `width` channels."""
    image = Image(32, 3)
    image.convolution("conv1", 16, 3).piece("conv 1")
    for group, channels in enumerate((16, 32, 64), 2):
        for block in range(1, (depth - 4) // 6 + 1):
            before, stride, name = image.channels, 2 if group > 2 and block == 1 else 1, f"conv{group}_{block}"
            image.norm().relu().convolution(f"{name}.1", width * channels, 3, stride=stride)
            image.norm().relu().convolution(f"{name}.2", width * channels, 3)
            if block == 1:
                image.shortcut(f"{name}.shortcut", before, stride=stride, norm=False)
            image.piece(f"block {group}.{block}")
    image.norm().relu().pool(1).dense("dense", 10).piece("dense")
    source = "arXiv:1605.07146, CIFAR-10 32 × 32"
    return Network(f"WRN-{depth}-{width}", source, 32 * 32 * 3, tuple(image.pieces))


def _resnet50() -> Network:
    # As in the paper, the 1 × 1 convolution has the stride; in `networks.resnet50`, as in frameworks, the 3 × 3 has it.
    pieces = networks.follow_resnet((3, 4, 6, 3), shrink_first=True).pieces
    return Network("ResNet-50", "arXiv:1512.03385, ImageNet 224 × 224", 224 * 224 * 3, tuple(pieces))


def _alexnet() -> Network:
    pieces = networks.follow_alexnet().pieces
    return Network("AlexNet", "Krizhevsky et al. 2012, ImageNet 227 × 227", 227 * 227 * 3, tuple(pieces))


def vgg16() -> Network:
    """VGG-16 (arXiv:1409.1556, configuration D); each convolution is a layer, together with the pooling after it."""
    pieces = networks.follow_vgg((2, 2, 3, 3, 3)).pieces
    return Network("VGG-16", "arXiv:1409.1556, ImageNet 224 × 224", 224 * 224 * 3, tuple(pieces))


NETWORKS = {network.name: network for network in (_small_cnn(), wide_resnet(), _resnet50(), _alexnet())}
