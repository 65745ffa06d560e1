"""The gradients of networks: the size of each tensor, and the floating-point operations of its layer.

All are computed from the architecture. Tensors are in forward order; their gradients become ready in reverse order. The
branches of a network follow each other, because one GPU computes them in sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


@dataclass(frozen=True)
class Tensor:
    """A trainable tensor.

    Attributes:
        elements: number of elements.
        flops: floating-point operations of its layer's forward pass for one image. A multiply-add counts as two; 0 for
            biases and batch norm.
    """

    name: str
    elements: int
    flops: int


@dataclass(frozen=True)
class Layer:
    """A part of a network that is never cut: a layer with its activation and pooling, or a residual block."""

    name: str
    weights: int  # trainable numbers
    activations: int  # numbers kept for the backward pass, for one image
    output: int  # numbers passed to the next part, for one image
    multiply_adds: int  # forward, for one image


def resnet50() -> list[Tensor]:
    """ResNet-50 for 224 × 224 (arXiv:1512.03385): 161 tensors, 25,557,032 numbers, 4.1 G multiply-adds an image.

    In groups that shrink the image, the first 3 × 3 convolution has the stride, as in frameworks. In the paper the
    1 × 1 convolution before it has the stride: 3.9 G multiply-adds and the same tensors.
    """
    return follow_resnet((3, 4, 6, 3)).tensors


def vgg16() -> list[Tensor]:
    """VGG-16 for 224 × 224 (arXiv:1409.1556, column D): 138,357,544 numbers, 15.5 G multiply-adds an image."""
    return follow_vgg((2, 2, 3, 3, 3)).tensors


def inception_v3() -> list[Tensor]:
    """Inception V3 for 299 × 299 (arXiv:1512.00567): 23,817,352 numbers, 5.7 G multiply-adds an image.

    Batch norm has a shift but no scale. The auxiliary classifier is left out.
    """
    image = Image(299, 3, scale=False)
    for channels, kernel, stride, side in ((32, 3, 2, 149), (32, 3, 1, 147), (64, 3, 1, 147)):
        image.convolution(f"stem{len(image.tensors)}", channels, kernel, stride=stride, side=side).norm()
    image.pool(73)
    image.convolution("stem80", 80, 1).norm()
    image.convolution("stem192", 192, 3, side=71).norm()
    image.pool(35)
    pooled = ()  # a branch with only pooling
    for block, last in enumerate((32, 64, 64)):
        image.branches(
            f"a{block}", [(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], [(last, 1)]
        )  # fmt: skip
    image.branches("to17", [(384, 3, 17)], [(64, 1), (96, 3), (96, 3, 17)], pooled, side=17)
    row, column = (1, 7), (7, 1)
    for block, width in enumerate((128, 160, 160, 192)):
        image.branches(
            f"b{block}", [(192, 1)], [(width, 1), (width, row), (192, column)],
            [(width, 1), (width, column), (width, row), (width, column), (192, row)], [(192, 1)],
        )  # fmt: skip
    image.branches(
        "to8", [(192, 1), (320, 3, 8)], [(192, 1), (192, row), (192, column), (192, 3, 8)], pooled, side=8
    )  # fmt: skip
    for block in range(2):
        image.branches(
            f"c{block}", [(320, 1)], [(384, 1), [(384, (1, 3)), (384, (3, 1))]],
            [(448, 1), (384, 3), [(384, (1, 3)), (384, (3, 1))]], [(192, 1)],
        )  # fmt: skip
    image.pool(1)
    return image.dense("dense", 1000).tensors


def alexnet() -> list[Tensor]:
    """AlexNet for 227 × 227 (Krizhevsky et al. 2012): 16 tensors, 61.0 M numbers, 0.72 G multiply-adds an image.

    With the paper's two groups in convolutions 2, 4 and 5; without groups it would have 62.4 M and 1.1 G.
    """
    return follow_alexnet().tensors


class Stage(NamedTuple):
    """MBConv blocks: a 1 × 1 convolution multiplies the channels by `expand`, a depthwise convolution of size `kernel`,
    squeeze-and-excitation, a 1 × 1 convolution.

    Attributes:
        stride: of the depthwise convolution in the first block.
        channels: of the outputs.
        layers: number of blocks.
    """

    expand: int
    kernel: int
    stride: int
    channels: int
    layers: int


@dataclass(frozen=True)
class Family:
    """Networks of MBConv blocks that differ in width, depth and resolution (EfficientNet, arXiv:1905.11946)."""

    stem: int
    stages: tuple[Stage, ...]
    head: int
    classes: int

    def scaled(self, width: float, depth: float) -> Family:
        """Multiply the channels by `width`, rounded to multiples of 8, and the layers by `depth`, rounded up."""
        stages = (
            stage._replace(channels=_round_to_8(width * stage.channels), layers=math.ceil(depth * stage.layers - 1e-9))
            for stage in self.stages
        )
        return Family(_round_to_8(width * self.stem), tuple(stages), _round_to_8(width * self.head), self.classes)

    def tensors(self, side: int) -> list[Tensor]:
        """The tensors of the network for images of side × side × 3."""
        image = Image(side, 3)
        image.convolution("stem", self.stem, 3, stride=2).norm()
        for number, stage in enumerate(self.stages, 1):
            for layer in range(stage.layers):
                self._block(image, f"stage{number}.{layer}", stage, stage.stride if layer == 0 else 1)
        image.convolution("head", self.head, 1).norm()
        image.pool(1)
        return image.dense("dense", self.classes).tensors

    @staticmethod
    def _block(image: Image, name: str, stage: Stage, stride: int) -> None:
        narrow, wide = image.channels, image.channels * stage.expand
        if stage.expand > 1:
            image.convolution(f"{name}.expand", wide, 1).norm()
        image.convolution(f"{name}.depthwise", wide, stage.kernel, stride=stride, groups=wide).norm()
        side = image.side
        image.pool(1)
        image.convolution(f"{name}.squeeze", max(1, narrow // 4), 1, bias=True)
        image.convolution(f"{name}.excite", wide, 1, bias=True)
        image.side = side
        image.convolution(f"{name}.project", stage.channels, 1).norm()


EFFICIENTNET = Family(
    32,
    (
        Stage(1, 3, 1, 16, 1),
        Stage(6, 3, 2, 24, 2),
        Stage(6, 5, 2, 40, 2),
        Stage(6, 3, 2, 80, 3),
        Stage(6, 5, 1, 112, 3),
        Stage(6, 5, 2, 192, 4),
        Stage(6, 3, 1, 320, 1),
    ),
    1280,
    1000,
)


def efficientnet_b0() -> list[Tensor]:
    """EfficientNet-B0 for 224 × 224 (arXiv:1905.11946): 5,288,548 numbers, 0.39 G multiply-adds an image."""
    return EFFICIENTNET.tensors(224)


# name → function that returns the tensors. Images are 224 × 224 unless a comment says otherwise.
NETWORKS: dict[str, Callable[[], list[Tensor]]] = {
    "AlexNet": alexnet,
    "EfficientNet-B0": efficientnet_b0,
    # For 456 × 456: 30.4 M numbers, 10 G multiply-adds an image; the paper says 9.9 G.
    "EfficientNet-B5": lambda: EFFICIENTNET.scaled(width=1.6, depth=2.2).tensors(456),
    "Inception V3": inception_v3,
    "ResNet-50": resnet50,
    "ResNet-101": lambda: follow_resnet((3, 4, 23, 3)).tensors,  # 44,549,160 numbers, 7.8 G multiply-adds
    "ResNet-152": lambda: follow_resnet((3, 8, 36, 3)).tensors,  # 60,192,808 numbers, 11.5 G multiply-adds
    "VGG-16": vgg16,
    "VGG-A": lambda: follow_vgg((1, 1, 2, 2, 2)).tensors,  # column A: 132,863,336 numbers, 7.6 G multiply-adds
}


@cache
def find(name: str) -> tuple[Tensor, ...]:
    """The tensors of one of NETWORKS; case, spaces and hyphens of the name do not matter.

    Raises:
        ValueError: for an unknown name.
    """
    for known, network in NETWORKS.items():
        if _plain(known) == _plain(name):
            return tuple(network())
    raise ValueError(f"there is no network called {name!r}: choose one of {', '.join(NETWORKS)}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _round_to_8(channels: float) -> int:
    """The nearest multiple of 8; the next larger one if the nearest is less than 0.9 · channels."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 * (rounded < 0.9 * channels)


def follow_resnet(depths: Sequence[int], *, shrink_first: bool = False) -> Image:
    """Follow an image through a ResNet.

    Args:
        depths: number of blocks in each group.
        shrink_first: in groups that shrink the image, the first 1 × 1 convolution has the stride, as in the paper;
            else the first 3 × 3 convolution.
    """
    image = Image(224, 3)
    image.convolution("conv1", 64, 7, stride=2).norm().relu().pool(56).piece("conv 1")
    for group, (width, blocks) in enumerate(zip((64, 128, 256, 512), depths), 2):
        for block in range(1, blocks + 1):
            name, stride = f"conv{group}_{block}", 2 if group > 2 and block == 1 else 1
            first, second = (stride, 1) if shrink_first else (1, stride)
            channels = image.channels
            image.convolution(f"{name}.1", width, 1, stride=first).norm().relu()
            image.convolution(f"{name}.2", width, 3, stride=second).norm().relu()
            image.convolution(f"{name}.3", 4 * width, 1).norm()
            if block == 1:
                image.shortcut(f"{name}.shortcut", channels, stride=stride)
            image.relu().piece(f"block {group}.{block}")
    image.pool(1).dense("dense", 1000).piece("dense")
    return image


def follow_vgg(depths: Sequence[int]) -> Image:
    """Follow an image through a VGG; `depths` is the number of convolutions in each group, each a part of its own."""
    image = Image(224, 3)
    for group, (width, layers) in enumerate(zip((64, 128, 256, 512, 512), depths), 1):
        for layer in range(1, layers + 1):
            image.convolution(f"conv{group}_{layer}", width, 3, bias=True).relu()
            if layer == layers:
                image.pool(image.side // 2)
            image.piece(f"conv {group}.{layer}")
    _three_dense(image)
    return image


def follow_alexnet() -> Image:
    """Follow an image through AlexNet, with local response normalisation after convolutions 1 and 2."""
    image = Image(227, 3)
    image.convolution("conv1", 96, 11, stride=4, side=55, bias=True).relu().keep().pool(27).piece("conv 1")
    image.convolution("conv2", 256, 5, groups=2, bias=True).relu().keep().pool(13).piece("conv 2")
    image.convolution("conv3", 384, 3, bias=True).relu().piece("conv 3")
    image.convolution("conv4", 384, 3, groups=2, bias=True).relu().piece("conv 4")
    image.convolution("conv5", 256, 3, groups=2, bias=True).relu().pool(6).piece("conv 5")
    _three_dense(image)
    return image


def _three_dense(image: Image) -> None:
    for number, units in ((6, 4096), (7, 4096), (8, 1000)):
        image.dense(f"fc{number}", units).piece(f"dense {number}")


class Image:
    """Follows an image of side × side × channels through a network and records the tensors of the layers.

    Attributes:
        side, channels: current shape of the image.
        tensors: tensors of the layers so far.
        pieces: the parts that `piece` has closed, for `memory`.
    """

    def __init__(self, side: int, channels: int, scale: bool = True) -> None:
        """`scale`: whether batch norm has a scale γ."""
        self.side, self.channels, self.scale = side, channels, scale
        self.tensors: list[Tensor] = []
        self.pieces: list[Layer] = []
        self._kept, self._closed = 0, 0  # numbers kept in the current part; number of tensors in closed parts

    @property
    def size(self) -> int:
        """Numbers in the current image."""
        return self.side**2 * self.channels

    def keep(self) -> Image:
        """Keep the current image for the backward pass: the output of a sum, a ReLU or a response normalisation."""
        self._kept += self.size
        return self

    relu = keep

    def piece(self, name: str) -> None:
        """Close a part: all layers since the last call."""
        tensors = self.tensors[self._closed :]
        weights, multiply_adds = sum(t.elements for t in tensors), sum(t.flops for t in tensors) // 2
        self.pieces.append(Layer(name, weights, self._kept, self.size, multiply_adds))
        self._kept, self._closed = 0, len(self.tensors)

    def convolution(
        self, name: str, channels: int, kernel: int | tuple[int, int], *, stride: int = 1, side: int = 0,
        groups: int = 1, bias: bool = False,
    ) -> Image:  # fmt: skip
        """A convolution with padding "same", or with an output of size `side`."""
        self.side = side or math.ceil(self.side / stride)
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        return self._layer(name, height * width * self.channels // groups, channels, bias)

    def branches(self, name: str, *branches: Sequence, side: int = 0) -> None:
        """Parallel branches from the same image, whose outputs are concatenated along the channels.

        Args:
            branches: for each branch, its convolutions (channels, kernel[, side]), each with batch norm. An empty
                branch only pools. A list in a branch splits it into one convolution for each entry.
            side: side of the output; default: that of the input.
        """
        start, handed = (self.side, self.channels), 0
        for number, layers in enumerate(branches):
            self.side, self.channels = start
            handed += self._branch(f"{name}.{number}", layers)
        self.side, self.channels = side or start[0], handed

    def _branch(self, name: str, layers: Sequence) -> int:
        """Follow a branch; return the channels of its output."""
        for number, layer in enumerate(layers):
            if isinstance(layer, list):
                start, channels = (self.side, self.channels), 0
                for twig, one in enumerate(layer):
                    self.side, self.channels = start
                    channels += self._branch(f"{name}.{number}.{twig}", [one])
                return channels
            channels, kernel, *side = layer
            self.convolution(f"{name}.{number}", channels, kernel, side=side[0] if side else 0).norm()
        return self.channels

    def shortcut(self, name: str, channels: int, *, stride: int = 1, norm: bool = True) -> None:
        """A 1 × 1 convolution parallel to a block, from the block's input with `channels` channels to its output."""
        side, handed = self.side, self.channels
        self.side, self.channels = stride * side, channels
        self.convolution(name, handed, 1, stride=stride)
        if norm:
            self.norm()
        self.side = side

    def dense(self, name: str, units: int) -> Image:
        """A dense layer with a bias; its output is kept."""
        inputs, self.side = self.size, 1
        return self._layer(name, inputs, units, True).keep()

    def _layer(self, name: str, inputs: int, outputs: int, bias: bool) -> Image:
        elements = inputs * outputs
        self.tensors.append(Tensor(f"{name}/kernel", elements, 2 * elements * self.side**2))
        if bias:
            self.tensors.append(Tensor(f"{name}/bias", outputs, 0))
        self.channels = outputs
        return self

    def norm(self) -> Image:
        """Batch norm, which keeps its input for the backward pass."""
        layer = self.tensors[-1].name.rpartition("/")[0]
        parts = ("gamma", "beta") if self.scale else ("beta",)
        self.tensors += [Tensor(f"{layer}/{part}", self.channels, 0) for part in parts]
        return self.keep()

    def pool(self, side: int) -> Image:
        """Pooling to `side` × `side`; the output is kept."""
        self.side = side
        return self.keep()
