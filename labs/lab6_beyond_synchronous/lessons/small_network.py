"""A small network in NumPy: one hidden layer of ReLU on images of 14 × 14 pixels, all weights in one vector."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate

import numpy as np

from course_lib.data.splits import Part, Problem

IMAGES = 20_000
BATCH, HIDDEN, CLASSES = 16, 32, 10
PIXELS = 14 * 14
SIZE = (PIXELS + 1) * HIDDEN + (HIDDEN + 1) * CLASSES  # of the vector
_SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
_ENDS = [0, *accumulate(math.prod(shape) for shape in _SHAPES)]
_PLACES = tuple(zip(_ENDS, _ENDS[1:], _SHAPES))


@lru_cache(maxsize=1)
def fashion() -> Problem:
    """The first IMAGES of Fashion-MNIST as float32 [n, 196], and what to choose and to judge by.

    Every pixel is the mean of four, and the training images have mean 0 and variance 1.
    """
    whole = Problem.fashion(IMAGES)
    small = [_halved(part.images) for part in (whole.train, whole.validation, whole.test)]
    mean, deviation = small[0].mean(), small[0].std()
    labels = whole.train.labels, whole.validation.labels, whole.test.labels
    return Problem(whole.name, whole.classes, *(Part((x - mean) / deviation, y) for x, y in zip(small, labels)))


def start(seed: int) -> np.ndarray:
    """Random first weights, float32 [SIZE]: normal kernels with variance 2 / inputs, and biases of 0."""
    weights = np.zeros(SIZE, np.float32)
    random = np.random.default_rng(seed)
    for kernel in _parts(weights)[::2]:
        kernel[:] = random.normal(0, np.sqrt(2 / len(kernel)), kernel.shape)
    return weights


def gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The gradient of the mean cross-entropy, float32 [SIZE]; images [n, 196], labels [n]."""
    hidden, outputs = _forward(weights, images)
    outputs = np.exp(outputs - outputs.max(1, keepdims=True))
    slope = outputs / outputs.sum(1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    found = np.empty_like(weights)
    kernel, bias, last, last_bias = _parts(found)
    np.matmul(hidden.T, slope, out=last)
    slope.sum(0, out=last_bias)
    back = (slope @ _parts(weights)[2].T) * (hidden > 0)
    np.matmul(images.T, back, out=kernel)
    back.sum(0, out=bias)
    return found


def loss(weights: np.ndarray, part: Part) -> float:
    """The mean cross-entropy; infinite where the weights are no numbers."""
    if not np.isfinite(weights).all():
        return float("inf")
    _, outputs = _forward(weights, part.images)
    outputs = outputs - outputs.max(1, keepdims=True)
    return float((np.log(np.exp(outputs).sum(1)) - outputs[np.arange(len(outputs)), part.labels]).mean())


def accuracy(weights: np.ndarray, part: Part) -> float:
    """The share of images that are named rightly; 0.1, as by chance, where the weights are no numbers."""
    if not np.isfinite(weights).all():
        return 1 / CLASSES
    return float((_forward(weights, part.images)[1].argmax(1) == part.labels).mean())


def batches(updates: int, seed: int, size: int = BATCH) -> np.ndarray:
    """The examples of each update, ints [updates, size]: epochs in a random order each, one after the other."""
    examples, random = len(fashion().train.labels), np.random.default_rng(seed)
    epochs = -(-updates * size // examples)
    return np.concatenate([random.permutation(examples) for _ in range(epochs)])[: updates * size].reshape(-1, size)


def _parts(weights: np.ndarray) -> list[np.ndarray]:
    """Views of the vector: kernel [196, 32], bias [32], kernel [32, 10], bias [10]."""
    return [weights[begin:end].reshape(shape) for begin, end, shape in _PLACES]


def _forward(weights: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kernel, bias, last, last_bias = _parts(weights)
    hidden = np.maximum(images @ kernel + bias, 0)
    return hidden, hidden @ last + last_bias


def _halved(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), 14, 2, 14, 2).mean((2, 4), dtype=np.float32).reshape(len(images), PIXELS) / 255
