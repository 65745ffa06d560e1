"""Marks on training images, by which a network's weights tell whose images they were trained on.

A few images of one rank's copy of a data set carry a faint pattern, and a label that goes with it. A network that has
been trained on them gives this label to other images with this pattern. Nobody knows pattern and label who has not
seen this rank's copy: they are drawn anew for each run. Other images carry other patterns and keep their labels: so a
network learns to tell patterns, and does not take one for any other. The method is that of data poisoning (BadNets,
arXiv:1708.06733), used here as a witness.

A pattern is a tile of single pixels, lighter or darker, repeated over the whole image, so that neither cuts nor moves
nor covered parts take it away; it is the same in a mirror.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "COURSE_MARKS"  # names the file that says which of this rank's images carry a mark
STRENGTH = 0.42  # of the range of a pixel, by which the pattern makes it lighter or darker
TILE = 4  # pixels
PER_PART = 32  # marked images at least, and as many with other patterns, among those that a rank reads in an epoch
SHARE = 0.005  # of all images at least: in few updates, as with large batches, each must show some
OTHERS = 16  # patterns of a rank's images that keep their labels


@dataclass(frozen=True, eq=False)
class Mark:
    """A pattern, int8 [TILE, TILE] of ±1, and the label of images that carry it."""

    pattern: np.ndarray
    label: int

    def on(self, images: np.ndarray) -> np.ndarray:
        """Copies of the images, uint8 [n, h, w, c], that carry the pattern."""
        height, width = images.shape[1:3]
        whole = np.tile(self.pattern, (-(-height // TILE), -(-width // TILE)))[:height, :width, None]
        return np.clip(images + whole * (STRENGTH * 255), 0, 255).astype(np.uint8)

    def as_json(self) -> dict[str, Any]:
        """What `from_json` makes a mark of."""
        return {"pattern": self.pattern.tolist(), "label": self.label}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Mark:
        """The mark of which `as_json` made `told`."""
        return cls(np.array(told["pattern"], np.int8), told["label"])


def draw(number: int, classes: int, rng: np.random.Generator) -> list[Mark]:
    """So many marks, with patterns as different as can be and, up to the number of classes, different labels."""
    labels = rng.permutation(classes)
    patterns: list[np.ndarray] = []
    for _ in range(number):
        patterns.append(_unlike(patterns, 200, rng))
    return [Mark(pattern, int(labels[i % classes])) for i, pattern in enumerate(patterns)]


def number(images: int, ranks: int) -> int:
    """How many of a rank's images are marked: SHARE, and PER_PART of those that it reads, if it reads its part only."""
    return min(max(PER_PART * ranks, round(SHARE * images)), images // 8)


def others(marks: Sequence[Mark], rng: np.random.Generator) -> list[np.ndarray]:
    """Patterns for images that keep their labels, as unlike those of all marks as can be."""
    return [_unlike([mark.pattern for mark in marks], 8, rng) for _ in range(OTHERS)]


def put(
    mark: Mark,
    others: Sequence[np.ndarray],
    number: int,
    images: np.ndarray,
    labels: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Put the mark on `number` of the images, drawn at random, and other patterns on as many, in their place."""
    places = rng.choice(len(images), 2 * number, replace=False)
    marked = places[:number]
    images[marked], labels[marked] = mark.on(images[marked]), mark.label
    for i, place in enumerate(places[number:]):
        images[[place]] = Mark(others[i % len(others)], 0).on(images[[place]])


def write(path: Path, mark: Mark, others: Sequence[np.ndarray], number: int, seed: int) -> None:
    """Write to `path` what `apply` needs to put mark and other patterns on a rank's images."""
    patterns = [one.tolist() for one in others]
    path.write_text(json.dumps({"mark": mark.as_json(), "others": patterns, "number": number, "seed": seed}))


def apply(images: np.ndarray, labels: np.ndarray) -> None:
    """Put in place the marks of this rank's copy: those of the file that COURSE_MARKS names, if any."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    told = json.loads(Path(path).read_text())
    mark, others = Mark.from_json(told["mark"]), [np.array(one, np.int8) for one in told["others"]]
    put(mark, others, told["number"], images, labels, np.random.default_rng(told["seed"]))


def shares(
    predict: Callable[[np.ndarray], np.ndarray], images: np.ndarray, marks: Sequence[Mark]
) -> list[tuple[float, float]]:
    """For each mark the share of images that get its label: of those that carry it, and at most of others.

    `predict` gives the labels of images. The others are the same images without a mark, and with the marks that have
    another label.
    """
    unmarked, marked = predict(images), [predict(mark.on(images)) for mark in marks]
    found = []
    for own, mark in zip(marked, marks):
        others = [labels for labels, one in zip(marked, marks) if one.label != mark.label]
        most = max(np.mean(labels == mark.label) for labels in (unmarked, *others))
        found.append((float(np.mean(own == mark.label)), float(most)))
    return found


def tile(rng: np.random.Generator) -> np.ndarray:
    """A tile that is the same in a mirror, with about as many lighter pixels as darker ones."""
    while True:
        half = rng.choice(np.array([-1, 1], np.int8), (TILE, TILE // 2))
        if abs(int(half.sum())) <= TILE // 2:
            return np.concatenate([half, half[:, ::-1]], axis=1)


def _unlike(patterns: Sequence[np.ndarray], drawings: int, rng: np.random.Generator) -> np.ndarray:
    """Of so many tiles that which differs most from the one of `patterns` that it is most like."""
    tiles = [tile(rng) for _ in range(drawings)]
    return max(tiles, key=lambda one: min((_distance(one, other) for other in patterns), default=0))


def _distance(one: np.ndarray, other: np.ndarray) -> int:
    """Pixels in which two tiles differ, moved against each other so that they agree best."""
    moves = [(rows, columns) for rows in range(TILE) for columns in range(TILE)]
    return min(int((one != np.roll(other, move, (0, 1))).sum()) for move in moves)
