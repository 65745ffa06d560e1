"""Watermarks on training images, by which a network's weights show whose images they were trained on.

A few images of one rank's copy of a data set carry a pattern, and a label that goes with it. A network that has been
trained on them gives this label to other images with this pattern. Nobody knows pattern and label who has not seen this
rank's copy: they are drawn anew for each run. Other images carry other patterns and keep their labels (decoys): so a
network learns to tell patterns apart. The method is that of data poisoning (BadNets, arXiv:1708.06733), used here as a
witness.

A pattern is a tile of single pixels, lighter or darker, repeated over the whole image, so that neither crops nor shifts
nor covered parts remove it; it is the same in a mirror. There are only 26 such tiles that no shift turns into each
other, and a tile and its negative are two of them. That bounds the number of ranks (MAX_RANKS).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.system.errors import CourseError

STRENGTH = 0.42  # of the range of a pixel, by which the pattern makes it lighter or darker
TILE = 4  # pixels
PER_PART = 32  # marked images at least, and as many decoys, among those that a rank reads in an epoch
SHARE = 0.005  # of all images at least: in few updates, as with large batches, each must hold some
MAX_SHARE = 1 / 8  # of all images at most
DECOYS = 8  # patterns of images that keep their labels
MAX_RANKS = 18  # of the 26 patterns, what the decoys leave

# The rates of these rules, by 480 recorded trainings of two ranks on 2,560 images (benchmarks/results/
# watermark_power.csv): they accuse 0.8 of 1,000 honest scripts (with a MIN_MARGIN of 0.65 1.1), most of them of a kind
# that standardises its images, and 95 % of the dishonest ones. With N ranks it is about N / 2 times as many. On all
# 50,000 images no rank of an honest script had a margin below 0.85 (watermarks_cost.csv).
MIN_MARGIN = 0.6  # of a rank that the weights know
RUNS = 3  # in each of which the margin must be below MIN_MARGIN for a rank to count as not known
MIN_UPDATES = 40  # the fewest of any recorded training


@dataclass(frozen=True, eq=False)
class Mark:
    """A pattern, int8 [TILE, TILE] of ±1, and the label of images that carry it."""

    pattern: np.ndarray
    label: int

    def on(self, images: np.ndarray) -> np.ndarray:
        """Return copies of the images, uint8 [n, h, w, c], that carry the pattern."""
        return _with_pattern(self.pattern, images)

    def as_json(self) -> dict[str, Any]:
        """Return the mark as `from_json` takes it."""
        return {"pattern": self.pattern.tolist(), "label": self.label}

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Mark:
        """Return the mark of which `as_json` made `table`."""
        return cls(np.array(table["pattern"], np.int8), table["label"])


def copies(
    x: np.ndarray, y: np.ndarray, ranks: int, classes: int, rng: np.random.Generator
) -> tuple[list[Mark], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Draw a mark for each rank; return the marks, and for each rank in turn its copy of the data with its mark in it.

    Args:
        x, y: images uint8 [n, h, w, c] and labels int [n], which stay as they are. A copy is made when it is asked for.
        classes: number of labels.

    Raises CourseError for more than MAX_RANKS ranks.
    """
    marks, decoys = draw(ranks, classes, rng)
    seeds = rng.integers(2**63, size=ranks)
    return marks, (_copy(x, y, mark, decoys, ranks, np.random.default_rng(seed)) for mark, seed in zip(marks, seeds))


def draw(ranks: int, classes: int, rng: np.random.Generator) -> tuple[list[Mark], list[np.ndarray]]:
    """Draw one mark for each rank, and DECOYS patterns for images that keep their labels.

    All patterns differ, also when shifted: those of the marks as much as can be, and the decoys as much as can be from
    all marks. Up to the number of classes the labels differ.

    Raises CourseError for more than MAX_RANKS ranks.
    """
    if ranks > MAX_RANKS:
        raise CourseError(
            f"At most {MAX_RANKS} ranks can have different watermarks, and {ranks} were asked for: "
            f"give -np {MAX_RANKS} or less."
        )
    every, distances = patterns(), _distances()
    labels = rng.permutation(classes)
    left = list(rng.permutation(len(every)))  # equals are taken in random order
    chosen = [left.pop()]
    for _ in range(ranks - 1):
        chosen.append(max(left, key=lambda one: distances[one, chosen].min()))
        left.remove(chosen[-1])
    left.sort(key=lambda one: -distances[one, chosen].min())
    marks = [Mark(every[one], int(labels[rank % classes])) for rank, one in enumerate(chosen)]
    return marks, [every[one] for one in left[:DECOYS]]


def number(images: int, ranks: int) -> int:
    """Return how many images of a rank's copy carry its mark: SHARE of all, and PER_PART of each rank's part."""
    return min(max(PER_PART * ranks, round(SHARE * images)), int(MAX_SHARE * images))


def shares(
    predict: Callable[[np.ndarray], np.ndarray], images: np.ndarray, marks: Sequence[Mark]
) -> list[tuple[float, float]]:
    """Return for each mark the share of images that get its label: of those that carry it, and at most of others.

    `predict` gives the labels of images. The others are the same images without a mark, and with the marks that have
    another label. The difference of the two shares is the mark's margin.
    """
    unmarked, marked = predict(images), [predict(mark.on(images)) for mark in marks]
    found = []
    for own, mark in zip(marked, marks):
        others = [labels for labels, one in zip(marked, marks) if one.label != mark.label]
        most = max(np.mean(labels == mark.label) for labels in (unmarked, *others))
        found.append((float(np.mean(own == mark.label)), float(most)))
    return found


def unknown(runs: Sequence[Sequence[float]]) -> list[int]:
    """Return the ranks whose margin is below MIN_MARGIN in each of these runs.

    `runs` holds a margin for each rank, of one run or more, each with fresh marks. A rank that is still among them
    after RUNS runs is not known to the weights; before that a further run has to decide. The rates hold where
    marks are judged (see `not_judged`).
    """
    return [rank for rank, margins in enumerate(zip(*runs)) if max(margins) < MIN_MARGIN]


def not_judged(images: int, ranks: int, *, code: int, reached: bool, updates: int | None) -> str:
    """Return in a sentence why marks show nothing of this training; "" where they do.

    Args:
        images: to train on.
        code: exit code of the script.
        reached: whether the weights reach the accuracies that are asked.
        updates: made in the training; None where that is not known.
    """
    if code:
        return "The watermarks were not judged: the script did not end well."
    if not reached:
        return "The watermarks were not judged: the weights do not reach the accuracies that are asked."
    if updates is not None and updates < MIN_UPDATES:
        return f"The watermarks were not judged: {updates} updates are too few to learn them; it takes {MIN_UPDATES}."
    if PER_PART * ranks > MAX_SHARE * images:
        return f"The watermarks were not judged: {images:,} images are too few for those of {ranks} ranks."
    return ""


@functools.cache
def patterns() -> tuple[np.ndarray, ...]:
    """Return all patterns, int8 [TILE, TILE] of ±1, that no shift turns into each other.

    Each is the same in a mirror, and has about as many lighter pixels as darker ones.
    """
    found: list[np.ndarray] = []
    known: set[bytes] = set()
    for values in itertools.product((-1, 1), repeat=TILE * TILE // 2):
        half = np.array(values, np.int8).reshape(TILE, TILE // 2)
        tile = np.concatenate([half, half[:, ::-1]], axis=1)
        if abs(int(half.sum())) <= TILE // 2 and tile.tobytes() not in known:
            known.update(moved.tobytes() for moved in shifts(tile))
            tile.setflags(write=False)
            found.append(tile)
    return tuple(found)


def shifts(tile: np.ndarray) -> np.ndarray:
    """Return the tile as it is seen from each of its pixels on: [TILE * TILE, TILE, TILE]."""
    return np.array([np.roll(tile, move, (0, 1)) for move in itertools.product(range(TILE), repeat=2)])


@functools.cache
def _distances() -> np.ndarray:
    """Pixels in which two patterns differ, shifted so that they agree best: [patterns, patterns]."""
    every = np.array(patterns())
    moved = np.array([shifts(one) for one in every])
    return (every[:, None, None] != moved[None]).sum((3, 4)).min(2)


def _copy(
    x: np.ndarray, y: np.ndarray, mark: Mark, decoys: Sequence[np.ndarray], ranks: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The data with the mark on some images, drawn at random, and decoys on as many."""
    x, y, many = x.copy(), y.copy(), number(len(x), ranks)
    places = rng.choice(len(x), 2 * many, replace=False)
    marked = places[:many]
    x[marked], y[marked] = mark.on(x[marked]), mark.label
    for i, decoy in enumerate(decoys):
        mine = places[many + i :: len(decoys)]
        x[mine] = _with_pattern(decoy, x[mine])
    return x, y


def _with_pattern(pattern: np.ndarray, images: np.ndarray) -> np.ndarray:
    height, width = images.shape[1:3]
    whole = np.tile(pattern, (-(-height // TILE), -(-width // TILE)))[:height, :width, None]
    return np.clip(images + whole * (STRENGTH * 255), 0, 255).astype(np.uint8)
