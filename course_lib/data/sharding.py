"""Partition a data set over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib.system.errors import CourseError


def shard(
    data: Sequence[np.ndarray],
    rank: int,
    size: int,
    option: int = 1,
    *,
    batch_size: int,
    epoch: int = 0,
    seed: int = 0,
) -> tuple[np.ndarray, ...]:
    """Return the part of `data` that one rank trains on in one epoch.

    Option 1: all ranks shuffle the set with the same seed and partition it, so that together they read each image at
    most once. Batch k of all ranks together has the images of batch k of a single rank with `size` times the batch
    size. Option 2: each rank shuffles the whole set with its own seed and reads the first 1/size of it.

    With both options every rank gets the same number of full batches, because unequal numbers cause a deadlock. The
    remaining images are left out in this epoch.

    Args:
        data: arrays of the same length, for example (x, y).
        rank, size: number of this rank, 0 … size − 1, and number of ranks.
        option: 1 or 2, as above.
        batch_size: images of a batch on one rank.
        epoch, seed: determine the permutation.

    Returns:
        The rows of each array for this rank, in the order in which it reads them.

    Raises:
        CourseError: for an invalid argument, arrays of different lengths, or too few images for one batch on each rank.
    """
    if size < 1 or not 0 <= rank < size:
        raise CourseError(f"There is no rank {rank} among {size} ranks: rank runs from 0 to size - 1.")
    if option not in (1, 2):
        raise CourseError(f"The partitioning option is 1 or 2, not {option!r}.")
    if batch_size < 1:
        raise CourseError(f"batch_size is {batch_size}: it must be at least 1.")
    images = len(data[0])
    if any(len(array) != images for array in data):
        raise CourseError(f"The arrays differ in length: {', '.join(str(len(array)) for array in data)}.")
    batches = images // (size * batch_size)
    if batches == 0:
        raise CourseError(
            f"{images} images are too few to give each of {size} ranks a batch of {batch_size}: "
            "use a smaller batch_size."
        )
    if option == 1:
        mine = np.random.default_rng([seed, epoch]).permutation(images)[rank::size]
    else:
        mine = np.random.default_rng([seed, epoch, rank]).permutation(images)
    mine = mine[: batches * batch_size]
    return tuple(array[mine] for array in data)
