"""A data set in three parts: to train on, to choose by, and to judge by."""

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
    """A data set in three parts that share no image: to train on, to choose by, and to judge by, once, at the end."""

    name: str
    classes: int
    train: Part = field(repr=False)
    validation: Part = field(repr=False)
    test: Part = field(repr=False)

    @classmethod
    def fashion(cls, images: int) -> Problem:
        """The first `images` of Fashion-MNIST, the last 5,000 for validation, and the test set; of a slice, parts of
        it. Images are uint8 [n, 28, 28, 1]."""
        whole = data.load("fashion_mnist")
        held = min(VALIDATION_IMAGES, len(whole.x_train) // 4)
        x, y = whole.x_train, whole.y_train
        used = min(images, len(x) - held)
        parts = Part(x[:used], y[:used]), Part(x[-held:], y[-held:]), Part(whole.x_test, whole.y_test)
        return cls(whole.name, len(whole.classes), *parts)

    def downsampled(self, side: int) -> Problem:
        """With the means of neighbouring pixels, standardised: float32 [n, side²], of mean 0 and variance 1 over the
        training images. `side` divides that of the images, which are squares of one channel."""
        parts = self.train, self.validation, self.test
        small = [_means(part.images, side) for part in parts]
        mean, deviation = small[0].mean(), small[0].std()
        standardised = (Part((x - mean) / deviation, part.labels) for x, part in zip(small, parts))
        return Problem(self.name, self.classes, *standardised)


def _means(images: np.ndarray, side: int) -> np.ndarray:
    cells = images.reshape(len(images), side, images.shape[1] // side, side, -1)
    return cells.mean((2, 4), dtype=np.float32).reshape(len(images), -1)
