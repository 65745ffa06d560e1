"""The gradients of two networks: how many numbers each tensor has, and how much work its layer is.

Both are computed from the architecture. In forward order; a gradient becomes ready in the opposite one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Tensor:
    """One trainable array: numbers in it, and floating-point operations of its layer's forward pass for one image.

    A multiply-add counts as two operations. A bias and a batch norm's arrays count none.
    """

    name: str
    elements: int
    flops: int


def resnet50() -> list[Tensor]:
    """ResNet-50 for 224 × 224 (arXiv:1512.03385): 161 tensors, 25,557,032 numbers, 4.1 G multiply-adds an image.

    Where a group shrinks the image its first 3 × 3 convolution does it, as frameworks train it; in the paper the
    1 × 1 before it does, with 3.9 G multiply-adds and the same tensors.
    """
    image = _Image(224, 3)
    image.convolution("conv1", 64, 7, stride=2).norm()
    image.pool(56)
    for group, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(1, blocks + 1):
            name, stride = f"conv{group}_{block}", 2 if group > 2 and block == 1 else 1
            side, channels = image.side, image.channels
            image.convolution(f"{name}.1", width, 1).norm()
            image.convolution(f"{name}.2", width, 3, stride=stride).norm()
            image.convolution(f"{name}.3", 4 * width, 1).norm()
            if block == 1:
                image.side, image.channels = side, channels
                image.convolution(f"{name}.shortcut", 4 * width, 1, stride=stride).norm()
    image.pool(1)
    return image.dense("dense", 1000).tensors


def alexnet() -> list[Tensor]:
    """AlexNet for 227 × 227 (Krizhevsky et al. 2012): 16 tensors, 61.0 M numbers, 0.72 G multiply-adds an image.

    With the paper's two groups in convolutions 2, 4 and 5; without groups it would have 62.4 M and 1.1 G.
    """
    image = _Image(227, 3)
    image.convolution("conv1", 96, 11, stride=4, side=55, bias=True)
    image.pool(27)
    image.convolution("conv2", 256, 5, groups=2, bias=True)
    image.pool(13)
    image.convolution("conv3", 384, 3, bias=True)
    image.convolution("conv4", 384, 3, groups=2, bias=True)
    image.convolution("conv5", 256, 3, groups=2, bias=True)
    image.pool(6)
    return image.dense("fc6", 4096).dense("fc7", 4096).dense("fc8", 1000).tensors


class _Image:
    """Follows an image of side × side × channels through a network and notes the tensors it meets."""

    def __init__(self, side: int, channels: int) -> None:
        self.side, self.channels = side, channels
        self.tensors: list[Tensor] = []

    def convolution(
        self, name: str, channels: int, kernel: int, *, stride: int = 1, side: int = 0, groups: int = 1,
        bias: bool = False,
    ) -> _Image:  # fmt: skip
        """A convolution that keeps the size but for its stride, or makes it `side`."""
        self.side = side or math.ceil(self.side / stride)
        return self._layer(name, kernel**2 * self.channels // groups, channels, bias)

    def dense(self, name: str, units: int) -> _Image:
        inputs, self.side = self.side**2 * self.channels, 1
        return self._layer(name, inputs, units, True)

    def _layer(self, name: str, inputs: int, outputs: int, bias: bool) -> _Image:
        elements = inputs * outputs
        self.tensors.append(Tensor(f"{name}/kernel", elements, 2 * elements * self.side**2))
        if bias:
            self.tensors.append(Tensor(f"{name}/bias", outputs, 0))
        self.channels = outputs
        return self

    def norm(self) -> None:
        layer = self.tensors[-1].name.rpartition("/")[0]
        self.tensors += [Tensor(f"{layer}/{part}", self.channels, 0) for part in ("gamma", "beta")]

    def pool(self, side: int) -> None:
        self.side = side
