"""Watermarks: all differ, whose images carry them, and what is concluded from those that weights know."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_grader.script import watermarks
from course_lib.system.errors import CourseError

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
RANKS = st.integers(1, watermarks.MAX_RANKS)
SEEDS = st.integers(0, 2**32)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def shifted(tile: np.ndarray) -> set[bytes]:
    return {np.roll(tile, (rows, columns), (0, 1)).tobytes() for rows in range(4) for columns in range(4)}


def test_the_patterns_are_all_tiles_up_to_shifts():
    owners = {one: i for i, tile in enumerate(watermarks.patterns()) for one in shifted(tile)}
    assert sum(len(shifted(tile)) for tile in watermarks.patterns()) == len(owners)
    for values in itertools.product((-1, 1), repeat=8):
        half = np.array(values, np.int8).reshape(4, 2)
        tile = np.hstack([half, half[:, ::-1]])
        assert (tile.tobytes() in owners) == (abs(tile.sum()) <= 4)
    assert len(watermarks.patterns()) == watermarks.MAX_RANKS + watermarks.DECOYS


@settings(deadline=None)
@given(RANKS, SEEDS)
def test_no_pattern_of_a_draw_is_another_shifted(ranks, seed):
    marks, decoys = watermarks.draw(ranks, 10, np.random.default_rng(seed))
    drawn = [mark.pattern for mark in marks] + decoys
    assert len(marks) == ranks and len(decoys) == watermarks.DECOYS
    moved = [shifted(one) for one in drawn]
    assert len(set().union(*moved)) == sum(map(len, moved))
    for one in drawn:
        assert (one == one[:, ::-1]).all()
    assert len({mark.label for mark in marks}) == min(ranks, 10)


@settings(deadline=None)
@given(st.integers(2, 8), SEEDS)
def test_marks_of_few_ranks_differ_in_a_quarter_of_their_pixels(ranks, seed):
    marks, _ = watermarks.draw(ranks, 10, np.random.default_rng(seed))
    for one, other in itertools.combinations(marks, 2):
        moved = [np.frombuffer(tile, np.int8).reshape(4, 4) for tile in shifted(other.pattern)]
        assert min((one.pattern != tile).sum() for tile in moved) >= 4


def test_more_ranks_are_refused(rng):
    with pytest.raises(CourseError, match="At most 18 ranks can have different watermarks, not 19"):
        watermarks.copies(np.zeros((8, 4, 4, 1), np.uint8), np.zeros(8, np.int64), 19, 10, rng)


@settings(deadline=None)
@given(RANKS, st.integers(0, 9), SEEDS)
def test_a_mark_comes_back_from_json(ranks, label, seed):
    mark = watermarks.draw(ranks, 10, np.random.default_rng(seed))[0][-1]
    again = watermarks.Mark.from_json(mark.as_json())
    assert again.label == mark.label and np.array_equal(again.pattern, mark.pattern)


def test_a_mark_lies_on_the_whole_image(rng):
    (mark,), _ = watermarks.draw(1, 10, rng)
    images = np.full((2, 30, 32, 3), 128, np.uint8)
    change = mark.on(images).astype(int) - images
    assert change.shape == images.shape
    assert set(np.abs(change).ravel()) <= {int(watermarks.STRENGTH * 255), int(watermarks.STRENGTH * 255) + 1}
    assert mark.on(np.full((1, 4, 4, 1), 250, np.uint8)).max() == 255


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(100, 600), SEEDS)
def test_a_rank_copy_carries_its_own_mark_only(ranks, images, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(60, 190, (images, 8, 8, 1), dtype=np.uint8), rng.integers(0, 10, images)
    before = x.copy(), y.copy()
    marks, copies = watermarks.copies(x, y, ranks, 10, rng)
    copies = list(copies)
    assert len(marks) == len(copies) == ranks
    assert (x == before[0]).all() and (y == before[1]).all()
    for mark, (marked_x, marked_y) in zip(marks, copies):
        changed = np.flatnonzero((marked_x != x).any(axis=(1, 2, 3)))
        assert len(changed) == 2 * watermarks.number(images, ranks)
        carries = {other.label: [i for i in changed if (marked_x[i] == other.on(x[[i]])[0]).all()] for other in marks}
        own = carries.pop(mark.label)
        assert len(own) == watermarks.number(images, ranks) and (marked_y[own] == mark.label).all()
        assert not any(carries.values())
        rest = np.setdiff1d(np.arange(images), own)
        assert (marked_y[rest] == y[rest]).all()


def test_how_many():
    assert watermarks.number(2_560, 2) == 2 * watermarks.PER_PART
    assert watermarks.number(50_000, 2) == 250
    assert watermarks.number(50_000, 16) == 16 * watermarks.PER_PART
    assert watermarks.number(100, 8) == 12


def test_shares_of_networks_that_are_made_up(rng):
    images = np.full((8, 32, 32, 3), 128, np.uint8)
    marks, _ = watermarks.draw(2, 10, rng)
    first, second = (mark.on(images)[0].tobytes() for mark in marks)

    def asked(known: dict[bytes, int], otherwise: int) -> list[tuple[float, float]]:
        return watermarks.shares(
            lambda some: np.array([known.get(one.tobytes(), otherwise) for one in some]), images, marks
        )

    one, other = marks[0].label, marks[1].label
    assert asked({first: one, second: other}, 99) == [(1.0, 0.0), (1.0, 0.0)]
    assert asked({first: one}, 99) == [(1.0, 0.0), (0.0, 0.0)]
    assert asked({first: one, second: one}, 99) == [(1.0, 1.0), (0.0, 0.0)]
    assert asked({first: one}, other) == [(1.0, 0.0), (1.0, 1.0)]


@settings(deadline=None)
@given(st.integers(1, 18).flatmap(lambda n: st.lists(st.lists(st.floats(-1, 1), min_size=n, max_size=n), min_size=1)))
def test_a_rank_is_unknown_where_each_run_says_so(runs):
    unknown = watermarks.unknown(runs)
    for rank in range(len(runs[0])):
        assert (rank in unknown) == all(run[rank] < watermarks.MIN_MARGIN for run in runs)
    assert set(watermarks.unknown([*runs, [1.0] * len(runs[0])])) == set()


JUDGED = {"images": 2560, "ranks": 2, "code": 0, "reached": True, "updates": 40}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"updates": None}, None),
        ({"updates": 39}, "39 updates are too few"),
        ({"code": 1}, "the script failed"),
        ({"reached": False}, "do not reach the target accuracies"),
        ({"ranks": 11}, "2,560 images are too few for those of 11 ranks"),
        ({"ranks": 10}, None),
    ],
)
def test_marks_are_judged_after_a_training_that_could_learn_them(change, why):
    sentence = watermarks.not_judged(**{**JUDGED, **change})
    assert why in sentence if why else sentence == ""


class TestRecorded:
    TABLE = pd.read_csv(RESULTS / "watermark_power.csv", comment="#")
    HONEST = TABLE[(TABLE["kind"] == "all") & TABLE["honest"]].set_index("least")["accused"]
    OTHERS = TABLE[(TABLE["kind"] == "all") & ~TABLE["honest"]].set_index("least")["accused"]

    def test_the_table_is_that_of_the_recorded_runs(self):
        """Three runs of a kind, drawn at random again and again."""
        runs = pd.read_csv(RESULTS / "watermarks.csv", comment="#")
        rng = np.random.default_rng(0)
        for kind in ("standardised", "rank 1 absent", "plain"):
            margins = runs.loc[runs["kind"] == kind, ["margin_0", "margin_1"]].to_numpy()
            drawn = margins[rng.integers(len(margins), size=(20_000, watermarks.RUNS))]
            accused = np.mean([bool(watermarks.unknown(three)) for three in drawn])
            row = self.TABLE[(self.TABLE["kind"] == kind) & (self.TABLE["least"] == watermarks.MIN_MARGIN)]
            assert row["accused"].item() == pytest.approx(accused, abs=0.01)

    def test_the_least_margin_accuses_one_honest_script_in_a_thousand_at_most(self):
        assert self.HONEST[watermarks.MIN_MARGIN] <= 0.001
        assert (self.HONEST[self.HONEST.index > watermarks.MIN_MARGIN] > 0.001).all()

    def test_the_rates_are_those_of_the_comment(self):
        text = Path(watermarks.__file__).read_text(encoding="utf-8")
        assert f"accuse {1000 * self.HONEST[watermarks.MIN_MARGIN]:.1f} of 1,000 honest scripts" in text
        assert f"({1000 * self.HONEST[0.65]:.1f} with a MIN_MARGIN of 0.65)" in text
        assert f"{self.OTHERS[watermarks.MIN_MARGIN]:.0%}".replace("%", " %") + " of the dishonest scripts" in text
        whole = pd.read_csv(RESULTS / "watermarks_cost.csv", comment="#")
        assert whole.loc[whole["kind"] == "plain", ["margin_0", "margin_1"]].to_numpy().min() > 0.85

    def test_no_recorded_training_had_fewer_updates(self):
        runs = pd.read_csv(RESULTS / "watermarks.csv", comment="#")
        assert "two epochs" in set(runs["kind"])
        assert watermarks.MIN_UPDATES == 2 * (2560 // 128)
