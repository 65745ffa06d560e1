"""Watermarks on training images: they show which ranks' images a network was trained on.

In each rank's copy of the data set, a few images carry the rank's pattern and its label. A network that was trained on
them predicts this label for other images with this pattern. Patterns and labels are drawn anew for each run, so only
the rank's own copy shows them. Other images carry other patterns and keep their labels (decoys), so that a network
learns to distinguish patterns. The method is that of data poisoning (BadNets, arXiv:1708.06733).

A pattern is a tile of lighter and darker pixels, repeated over the whole image. So it survives crops, shifts and
cutouts; it is symmetric, so it survives flips. There are only 26 such tiles that no shift maps onto each other (a tile
and its negative count as two), which limits the number of ranks (MAX_RANKS).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.system.errors import CourseError

STRENGTH = 0.42  # change of a pixel by the pattern, as a fraction of the pixel's range
TILE = 4  # pixels
PER_PART = 32  # minimum number of marked images, and of decoys, that a rank reads in an epoch
SHARE = 0.005  # minimum fraction of all images: large batches give few updates, and each needs some marked images
MAX_SHARE = 1 / 8  # maximum fraction of all images
DECOYS = 8  # patterns of images that keep their labels
MAX_RANKS = 18  # 26 patterns minus the decoys

# Error rates of these rules, from 480 recorded trainings of two ranks on 2,560 images (benchmarks/results/
# watermark_power.csv): they accuse 0.8 of 1,000 honest scripts (1.1 with a MIN_MARGIN of 0.65), most of which
# standardise each image, and detect 95 % of the dishonest scripts. With N ranks they accuse about N / 2 times as many.
# On all 50,000 images no rank of an honest script had a margin below 0.85 (watermarks_cost.csv).
MIN_MARGIN = 0.6  # of a watermark that the weights have learned
RUNS = 3  # a rank counts as unknown if its margin is below MIN_MARGIN in all of these runs
MIN_UPDATES = 40  # the minimum over all recorded trainings


@dataclass(frozen=True, eq=False)
class Mark:
    """A pattern, int8 [TILE, TILE] of ±1, and the label of images that carry it."""

    pattern: np.ndarray
    label: int

    def on(self, images: np.ndarray) -> np.ndarray:
        """Return copies of the images, uint8 [n, h, w, c], that carry the pattern."""
        return _with_pattern(self.pattern, images)

    def as_json(self) -> dict[str, Any]:
        """Return the mark as an object that `from_json` reads."""
        return {"pattern": self.pattern.tolist(), "label": self.label}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Mark:
        """Return the mark that `as_json` wrote as `table`."""
        return cls(np.array(table["pattern"], np.int8), table["label"])


def copies(
    x: np.ndarray, y: np.ndarray, ranks: int, classes: int, rng: np.random.Generator
) -> tuple[list[Mark], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Draw a mark for each rank; return the marks, and an iterator over the ranks' copies of the data with their marks.

    Args:
        x, y: images uint8 [n, h, w, c] and labels int [n]; they are not changed. The iterator makes one copy at a time.
        classes: number of labels.

    Raises CourseError for more than MAX_RANKS ranks.
    """
    marks, decoys = draw(ranks, classes, rng)
    seeds = rng.integers(2**63, size=ranks)
    return marks, (_copy(x, y, mark, decoys, ranks, np.random.default_rng(seed)) for mark, seed in zip(marks, seeds))


def draw(ranks: int, classes: int, rng: np.random.Generator) -> tuple[list[Mark], list[np.ndarray]]:
    """Draw one mark for each rank, and DECOYS patterns for images that keep their labels.

    All patterns differ, also when shifted. The marks differ from each other as much as possible, and the decoys from
    all marks. Labels repeat only if there are more ranks than classes.

    Raises CourseError for more than MAX_RANKS ranks.
    """
    if ranks > MAX_RANKS:
        raise CourseError(
            f"At most {MAX_RANKS} ranks can have different watermarks, not {ranks}: give -np {MAX_RANKS} or less."
        )
    tiles, distances = patterns(), _distances()
    labels = rng.permutation(classes)
    left = list(rng.permutation(len(tiles)))  # in random order, so that ties between patterns are broken at random
    chosen = [left.pop()]
    for _ in range(ranks - 1):
        chosen.append(max(left, key=lambda index: distances[index, chosen].min()))
        left.remove(chosen[-1])
    left.sort(key=lambda index: -distances[index, chosen].min())
    marks = [Mark(tiles[index], int(labels[rank % classes])) for rank, index in enumerate(chosen)]
    return marks, [tiles[index] for index in left[:DECOYS]]


def number(images: int, ranks: int) -> int:
    """Return the number of images in a rank's copy that carry its mark."""
    return min(max(PER_PART * ranks, round(SHARE * images)), int(MAX_SHARE * images))


def shares(
    predict: Callable[[np.ndarray], np.ndarray], images: np.ndarray, marks: Sequence[Mark]
) -> list[tuple[float, float]]:
    """Return for each mark the share of images for which its label is predicted: with this mark, and without it.

    The share without it is the largest of those for the images without any mark and with each mark of another label.
    The difference of the two shares is the mark's margin. `predict` maps images [n, h, w, c] to labels [n].
    """
    unmarked, marked = predict(images), [predict(mark.on(images)) for mark in marks]
    pairs = []
    for predicted, mark in zip(marked, marks):
        others = [labels for labels, other in zip(marked, marks) if other.label != mark.label]
        without = max(np.mean(labels == mark.label) for labels in (unmarked, *others))
        pairs.append((float(np.mean(predicted == mark.label)), float(without)))
    return pairs


def unknown(runs: Sequence[Sequence[float]]) -> list[int]:
    """Return the ranks whose margin is below MIN_MARGIN in each of these runs.

    `runs` [runs][rank] holds margins; each run has new marks. After RUNS runs such a rank counts as unknown to the
    weights; before that, another run has to decide.
    """
    return [rank for rank, margins in enumerate(zip(*runs)) if max(margins) < MIN_MARGIN]


def not_judged(images: int, ranks: int, *, code: int, reached: bool, updates: int | None) -> str:
    """Return a sentence that says why the watermarks of a training cannot be judged; "" if they can.

    Args:
        images: number of training images.
        code: exit code of the script.
        reached: whether the weights reach the target accuracies.
        updates: number of updates in the training; None if unknown.
    """
    if code:
        return "The watermarks were not judged: the script failed."
    if not reached:
        return "The watermarks were not judged: the weights do not reach the target accuracies."
    if updates is not None and updates < MIN_UPDATES:
        return f"The watermarks were not judged: {updates} updates are too few to learn them; {MIN_UPDATES} are needed."
    if PER_PART * ranks > MAX_SHARE * images:
        return f"The watermarks were not judged: {images:,} images are too few for those of {ranks} ranks."
    return ""


@functools.cache
def patterns() -> tuple[np.ndarray, ...]:
    """Return all patterns, int8 [TILE, TILE] of ±1, that no shift maps onto each other.

    Each is symmetric, and has about as many lighter pixels as darker ones.
    """
    tiles: list[np.ndarray] = []
    known: set[bytes] = set()
    for values in itertools.product((-1, 1), repeat=TILE * TILE // 2):
        half = np.array(values, np.int8).reshape(TILE, TILE // 2)
        tile = np.concatenate([half, half[:, ::-1]], axis=1)
        if abs(int(half.sum())) <= TILE // 2 and tile.tobytes() not in known:
            known.update(moved.tobytes() for moved in shifts(tile))
            tile.setflags(write=False)
            tiles.append(tile)
    return tuple(tiles)


def shifts(tile: np.ndarray) -> np.ndarray:
    """Return all cyclic shifts of a tile: [TILE * TILE, TILE, TILE]."""
    return np.array([np.roll(tile, move, (0, 1)) for move in itertools.product(range(TILE), repeat=2)])


@functools.cache
def _distances() -> np.ndarray:
    """Return the number of pixels in which two patterns differ, least over all shifts: [patterns, patterns]."""
    tiles = np.array(patterns())
    shifted = np.array([shifts(tile) for tile in tiles])
    return (tiles[:, None, None] != shifted[None]).sum((3, 4)).min(2)


def _copy(
    x: np.ndarray, y: np.ndarray, mark: Mark, decoys: Sequence[np.ndarray], ranks: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the data with the mark on randomly chosen images, and decoys on as many others."""
    x, y, count = x.copy(), y.copy(), number(len(x), ranks)
    indices = rng.choice(len(x), 2 * count, replace=False)
    marked = indices[:count]
    x[marked], y[marked] = mark.on(x[marked]), mark.label
    for i, decoy in enumerate(decoys):
        with_decoy = indices[count + i :: len(decoys)]
        x[with_decoy] = _with_pattern(decoy, x[with_decoy])
    return x, y


def _with_pattern(pattern: np.ndarray, images: np.ndarray) -> np.ndarray:
    height, width = images.shape[1:3]
    repeated = np.tile(pattern, (-(-height // TILE), -(-width // TILE)))[:height, :width, None]
    return np.clip(images + repeated * (STRENGTH * 255), 0, 255).astype(np.uint8)
