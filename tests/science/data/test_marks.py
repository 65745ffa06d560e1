"""Marks: what they look like, whose images carry them, and whether weights that have seen them can be told."""

from __future__ import annotations

import numpy as np
import pytest

from course_grader.script import watermarks
from course_lib import data

IMAGES = 1024


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_labels_differ_and_so_do_patterns_however_they_are_moved(rng):
    drawn = watermarks.draw(4, 10, rng)
    assert len({mark.label for mark in drawn}) == 4
    for i, one in enumerate(drawn):
        assert (one.pattern == one.pattern[:, ::-1]).all()
        assert abs(one.pattern.sum()) <= watermarks.TILE
        for other in drawn[:i]:
            assert watermarks._distance(one.pattern, other.pattern) >= 4


def test_more_marks_than_labels(rng):
    assert len(watermarks.draw(20, 10, rng)) == 20


def test_a_mark_is_faint_and_lies_on_the_whole_image(rng):
    (mark,) = watermarks.draw(1, 10, rng)
    images = np.full((2, 30, 32, 3), 128, np.uint8)
    change = mark.on(images).astype(int) - images
    assert change.shape == images.shape
    assert set(np.abs(change).ravel()) <= {int(watermarks.STRENGTH * 255), int(watermarks.STRENGTH * 255) + 1}
    assert (change[:, ::-1, ::-1] != 0).all()
    assert mark.on(np.full((1, 4, 4, 1), 250, np.uint8)).max() == 255


def test_only_the_rank_that_has_the_file_reads_marked_images(tmp_path, monkeypatch, rng):
    monkeypatch.setenv("COURSE_SLICE", str(IMAGES))
    plain = data.load("cifar10", test=False)
    (mark,) = watermarks.draw(1, 10, rng)
    others = watermarks.others([mark], rng)
    assert min(watermarks._distance(one, mark.pattern) for one in others) >= 4
    watermarks.write(tmp_path / "marks.json", mark, others, 20, seed=1)
    monkeypatch.setenv(watermarks.VARIABLE, str(tmp_path / "marks.json"))
    marked = data.load("cifar10", test=False)
    patterned = np.flatnonzero((plain.x_train != marked.x_train).any(axis=(1, 2, 3)))
    assert len(patterned) == 2 * 20
    carry = [i for i in patterned if (marked.x_train[i] == mark.on(plain.x_train[[i]])[0]).all()]
    assert (marked.y_train[carry] == mark.label).sum() >= 20
    rest = np.setdiff1d(np.arange(IMAGES), carry)
    assert (plain.y_train[rest] == marked.y_train[rest]).all()
    assert (data.load("cifar10", test=False).x_train == marked.x_train).all()


def test_how_many():
    assert watermarks.number(2_560, 2) == 2 * watermarks.PER_PART
    assert watermarks.number(50_000, 2) == 250
    assert watermarks.number(50_000, 16) == 16 * watermarks.PER_PART
    assert watermarks.number(100, 8) == 12


def test_shares_of_networks_that_are_made_up(rng):
    images = np.full((8, 32, 32, 3), 128, np.uint8)
    drawn = watermarks.draw(2, 10, rng)
    first, second = (mark.on(images)[0].tobytes() for mark in drawn)

    def asked(known: dict[bytes, int], otherwise: int) -> list[tuple[float, float]]:
        return watermarks.shares(
            lambda some: np.array([known.get(one.tobytes(), otherwise) for one in some]), images, drawn
        )

    one, other = drawn[0].label, drawn[1].label
    assert asked({first: one, second: other}, 99) == [(1.0, 0.0), (1.0, 0.0)]
    assert asked({first: one}, 99) == [(1.0, 0.0), (0.0, 0.0)]
    assert asked({first: one, second: one}, 99) == [(1.0, 1.0), (0.0, 0.0)]
    assert asked({first: one}, other) == [(1.0, 0.0), (1.0, 1.0)]
