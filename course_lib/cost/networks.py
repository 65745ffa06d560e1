"""The gradients of networks: how many numbers each tensor has, and how much work its layer is.

All are computed from the architecture, in forward order; a gradient becomes ready in the opposite one. Where a network
has branches, they stand one after the other, as one GPU computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


@dataclass(frozen=True)
class Tensor:
    """One trainable array: numbers in it, and floating-point operations of its layer's forward pass for one image.

    A multiply-add counts as two operations. A bias and a batch norm's arrays count none.
    """

    name: str
    elements: int
    flops: int


@dataclass(frozen=True)
class Layer:
    """A piece of a network that is not cut: a layer with what belongs to it, or a residual block."""

    name: str
    weights: int  # trainable numbers
    activations: int  # numbers kept for the backward pass, for one image
    output: int  # numbers handed to the next piece, for one image
    multiply_adds: int  # forward, for one image


def resnet50() -> list[Tensor]:
    """ResNet-50 for 224 × 224 (arXiv:1512.03385): 161 tensors, 25,557,032 numbers, 4.1 G multiply-adds an image.

    Where a group shrinks the image its first 3 × 3 convolution does it, as frameworks train it; in the paper the
    1 × 1 before it does, with 3.9 G multiply-adds and the same tensors.
    """
    return follow_resnet((3, 4, 6, 3)).tensors


def vgg16() -> list[Tensor]:
    """VGG-16 for 224 × 224 (arXiv:1409.1556, column D): 138,357,544 numbers, 15.5 G multiply-adds an image."""
    return follow_vgg((2, 2, 3, 3, 3)).tensors


def inception_v3() -> list[Tensor]:
    """Inception V3 for 299 × 299 (arXiv:1512.00567): 23,817,352 numbers, 5.7 G multiply-adds an image.

    Batch norm has a shift and no scale; the auxiliary classifier is left out.
    """
    image = Image(299, 3, scale=False)
    for channels, kernel, stride, side in ((32, 3, 2, 149), (32, 3, 1, 147), (64, 3, 1, 147)):
        image.convolution(f"stem{len(image.tensors)}", channels, kernel, stride=stride, side=side).norm()
    image.pool(73)
    image.convolution("stem80", 80, 1).norm()
    image.convolution("stem192", 192, 3, side=71).norm()
    image.pool(35)
    pooled = ()  # a branch that only pools keeps the channels
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
    """Layers of the same block, MBConv: × `expand` channels by 1 × 1, depthwise `kernel`, squeeze and excite, 1 × 1.

    The first layer has `stride`; all hand on `channels`.
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
        """With `width` times the channels, in multiples of 8, and `depth` times the layers, rounded up."""
        stages = (
            stage._replace(channels=_eights(width * stage.channels), layers=math.ceil(depth * stage.layers - 1e-9))
            for stage in self.stages
        )
        return Family(_eights(width * self.stem), tuple(stages), _eights(width * self.head), self.classes)

    def tensors(self, side: int) -> list[Tensor]:
        """Of the network for images of side × side × 3."""
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


# name → tensors. Those that stand here alone are deeper or wider ones of the same kind, for 224 × 224 unless given.
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
    """The tensors of one of NETWORKS, whatever case, spaces and hyphens its name is written with.

    Raises:
        ValueError: where there is none of that name.
    """
    for known, network in NETWORKS.items():
        if _plain(known) == _plain(name):
            return tuple(network())
    raise ValueError(f"there is no network called {name!r}: choose one of {', '.join(NETWORKS)}")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _eights(channels: float) -> int:
    """The nearest multiple of 8, or the next one where that would be less than nine tenths."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 * (rounded < 0.9 * channels)


def follow_resnet(depths: Sequence[int], *, shrink_first: bool = False) -> Image:
    """An image's way through a ResNet with so many blocks in its groups.

    Args:
        shrink_first: where a group shrinks the image, its first 1 × 1 convolution does it, as in the paper, and not its
            first 3 × 3.
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
    """An image's way through a VGG with so many convolutions in its groups, each a piece with the pooling after it."""
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
    """An image's way through AlexNet; a response normalisation follows convolutions 1 and 2."""
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
    """Follows an image of side × side × channels through a network and notes the tensors it meets.

    Attributes:
        tensors: those met so far; pieces: the layers that `piece` has closed, for `memory`.
    """

    def __init__(self, side: int, channels: int, scale: bool = True) -> None:
        """`scale`: whether batch norm has one."""
        self.side, self.channels, self.scale = side, channels, scale
        self.tensors: list[Tensor] = []
        self.pieces: list[Layer] = []
        self._kept, self._closed = 0, 0  # numbers kept in the piece that is open; tensors of the closed ones

    @property
    def size(self) -> int:
        """Numbers of the image as it is now."""
        return self.side**2 * self.channels

    def keep(self) -> Image:
        """Keep what is here now for the backward pass: the output of a sum, a ReLU, a response normalisation."""
        self._kept += self.size
        return self

    relu = keep

    def piece(self, name: str) -> None:
        """Close a piece: what came since the last one."""
        tensors = self.tensors[self._closed :]
        weights, multiply_adds = sum(t.elements for t in tensors), sum(t.flops for t in tensors) // 2
        self.pieces.append(Layer(name, weights, self._kept, self.size, multiply_adds))
        self._kept, self._closed = 0, len(self.tensors)

    def convolution(
        self, name: str, channels: int, kernel: int | tuple[int, int], *, stride: int = 1, side: int = 0,
        groups: int = 1, bias: bool = False,
    ) -> Image:  # fmt: skip
        """A convolution that keeps the size but for its stride, or makes it `side`."""
        self.side = side or math.ceil(self.side / stride)
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        return self._layer(name, height * width * self.channels // groups, channels, bias)

    def branches(self, name: str, *branches: Sequence, side: int = 0) -> None:
        """Branches that start from the same image, side by side, and hand on all their channels.

        Args:
            branches: lists of (channels, kernel[, side]) with batch norm; none just pools. A list in a list splits.
            side: of the image that they hand on, where it is another.
        """
        start, handed = (self.side, self.channels), 0
        for number, layers in enumerate(branches):
            self.side, self.channels = start
            handed += self._branch(f"{name}.{number}", layers)
        self.side, self.channels = side or start[0], handed

    def _branch(self, name: str, layers: Sequence) -> int:
        """The channels at the end of a branch."""
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
        """A 1 × 1 convolution of the `channels` that a block began with, beside it, to what the block hands on."""
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
        """Batch norm: it keeps its input."""
        layer = self.tensors[-1].name.rpartition("/")[0]
        parts = ("gamma", "beta") if self.scale else ("beta",)
        self.tensors += [Tensor(f"{layer}/{part}", self.channels, 0) for part in parts]
        return self.keep()

    def pool(self, side: int) -> Image:
        """Pooling to images of `side` × `side`, which are kept."""
        self.side = side
        return self.keep()
