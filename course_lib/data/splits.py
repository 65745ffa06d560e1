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
