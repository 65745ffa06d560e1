"""A data set in three parts: training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from course_lib import data

VALIDATION_IMAGES = 5_000


class Part(NamedTuple):
    """Images [n, …] and labels int [n]."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class Problem:
    """Training, validation and test images of a data set; the three parts share no image.

    Attributes:
        name: name of the data set, "shapes" for the stand-in.
        classes: number of classes.
    """

    name: str
    classes: int
    train: Part = field(repr=False)
    validation: Part = field(repr=False)
    test: Part = field(repr=False)

    @classmethod
    def fashion(cls, images: int) -> Problem:
        """Fashion-MNIST with its last 5,000 training images (of a slice, at most a quarter) for validation.

        Args:
            images: train on the first `images` of the others.

        Returns:
            The parts, with images uint8 [n, 28, 28, 1].
        """
        dataset = data.load("fashion_mnist")
        held_out = min(VALIDATION_IMAGES, len(dataset.x_train) // 4)
        x, y = dataset.x_train, dataset.y_train
        used = min(images, len(x) - held_out)
        parts = Part(x[:used], y[:used]), Part(x[-held_out:], y[-held_out:]), Part(dataset.x_test, dataset.y_test)
        return cls(dataset.name, len(dataset.classes), *parts)

    def downsampled(self, side: int) -> Problem:
        """Average neighbouring pixels, then standardise to mean 0 and variance 1 over the training images.

        Args:
            side: pixels along each edge of the result; it divides that of the images, which are square, one channel.

        Returns:
            The same parts, with images float32 [n, side²].
        """
        parts = self.train, self.validation, self.test
        small = [_means(part.images, side) for part in parts]
        mean, deviation = small[0].mean(), small[0].std()
        standardised = (Part((x - mean) / deviation, part.labels) for x, part in zip(small, parts))
        return Problem(self.name, self.classes, *standardised)


def _means(images: np.ndarray, side: int) -> np.ndarray:
    cells = images.reshape(len(images), side, images.shape[1] // side, side, -1)
    return cells.mean((2, 4), dtype=np.float32).reshape(len(images), -1)
