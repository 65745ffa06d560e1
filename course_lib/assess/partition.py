"""Checks of a learner's functions that share out the examples among ranks (lab 2b, step 6)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from course_lib.assess.criteria import Verdict
from course_lib.assess.report import Report

Partition = Callable[[int, int, int, int], np.ndarray]  # (images, rank, size, epoch) → indices of images

CASES = (
    (96, 1),
    (96, 2),
    (1279, 2),
    (1000, 3),
    (50, 7),
)  # images, ranks; also where they do not divide evenly
EPOCHS = 3
TITLES = {1: "Option 1: one shuffle for all, cut into parts", 2: "Option 2: every rank shuffles for itself"}


def check_partition(function: Partition, option: int) -> Report:
    """Report on a learner's function for `option` (1 or 2). A stub's NotImplementedError passes through."""
    share, reason = judge_partition(function, option)
    return Report([Verdict(f"option{option}", TITLES[option], share, 1, reason)])


def partition_points(function: Partition, option: int, maximum: float) -> float:
    """Points between 0 and `maximum`; where some are lost, print the reason. A function that raises gets none."""
    try:
        share, reason = judge_partition(function, option)
    except Exception as error:
        share, reason = 0.0, f"The function raised {type(error).__name__}: {error}"
    if share < 1:
        print(reason)
    return float(maximum * share)


def judge_partition(function: Partition, option: int) -> tuple[float, str]:
    """(share of the points from 0 to 1, reason). Half of them go to equal, valid parts, half to the right shuffle."""
    for images, size in CASES:
        reason = _shape(function, images, size)
        if reason:
            return 0.0, f"{images:,} images, {size} ranks: {reason}"
    for images, size in CASES:
        reason = (_option_1 if option == 1 else _option_2)(function, images, size)
        if reason:
            return 0.5, f"{images:,} images, {size} ranks: {reason}"
    return 1.0, "Equal parts, shuffled anew in each epoch, " + (
        "and no image read twice." if option == 1 else "by every rank in its own way."
    )


def _parts(function: Partition, images: int, size: int, epoch: int) -> list[np.ndarray]:
    return [np.asarray(function(images, rank, size, epoch)) for rank in range(size)]


def _shape(function: Partition, images: int, size: int) -> str:
    for epoch in range(EPOCHS):
        parts = _parts(function, images, size, epoch)
        for rank, part in enumerate(parts):
            if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
                return f"rank {rank} gets {part.dtype} of shape {part.shape}; it should be a list of whole numbers."
            if len(part) and (part.min() < 0 or part.max() >= images):
                return f"rank {rank} reads image {part.max()}, but the last one is {images - 1}."
            if len(np.unique(part)) < len(part):
                return f"rank {rank} reads some images twice in an epoch: draw without replacement."
        lengths = [len(part) for part in parts]
        if len(set(lengths)) > 1:
            return f"the ranks read {lengths} images: unequal parts end in a deadlock."
        if lengths[0] != images // size:
            return f"each rank reads {lengths[0]} images in place of {images // size}."
        if any(not np.array_equal(a, b) for a, b in zip(parts, _parts(function, images, size, epoch))):
            return "asked twice, the function answers differently: the ranks could not agree on a shuffle; seed it."
    return ""


def _option_1(function: Partition, images: int, size: int) -> str:
    epochs = [_parts(function, images, size, epoch) for epoch in range(EPOCHS)]
    for parts in epochs:
        if len(np.unique(np.concatenate(parts))) < sum(map(len, parts)):
            return "some images are read by two ranks: all ranks must cut the same shuffle."
    return _reshuffled(epochs, size)


def _option_2(function: Partition, images: int, size: int) -> str:
    epochs = [_parts(function, images, size, epoch) for epoch in range(EPOCHS)]
    for parts in epochs:
        if any(np.array_equal(parts[0], other) for other in parts[1:]):
            return "ranks read the same images in the same order: seed each rank's shuffle differently."
        together = len(np.unique(np.concatenate(parts)))
        if size > 1 and together == sum(map(len, parts)) and images > 100:
            return "no image is read by two ranks: that is option 1; here each rank shuffles the whole set by itself."
    return _reshuffled(epochs, size)


def _reshuffled(epochs: list[list[np.ndarray]], size: int) -> str:
    first, second = epochs[0], epochs[1]
    if np.array_equal(first[0], second[0]):
        return "epoch 1 has the same order as epoch 0: shuffle anew in each epoch."
    if size > 1 and all(set(a) == set(b) for a, b in zip(first, second)):
        return "each rank keeps the same images in every epoch: shuffle before you cut."
    if np.array_equal(first[0], np.sort(first[0])):
        return "the images come in their stored order: shuffle them."
    return ""
