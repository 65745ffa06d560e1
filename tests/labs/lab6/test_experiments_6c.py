"""The experiments of notebook 6c on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments
from labs.lab6_beyond_synchronous.lessons import dense_training, horovod_wire


@pytest.fixture
def send_less(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    monkeypatch.setattr(dense_training, "UPDATES", 10)
    dense_training.fashion.cache_clear()
    yield runpy.run_path(str(experiments.find()["send_less"]))
    dense_training.fashion.cache_clear()


@pytest.mark.parametrize("use", ["tuning", "result"])
def test_test_images_are_seen_by_results_only(use, send_less, monkeypatch):
    seen, accuracy = [], dense_training.Training.accuracy

    def watched(self, part):
        seen.append(part)
        return accuracy(self, part)

    monkeypatch.setattr(dense_training.Training, "accuracy", watched)
    row = send_less["run"]("warm-up", 0.01, 0.05, 1, use)
    test = dense_training.fashion().test
    assert sum(np.array_equal(part.images, test.images) for part in seen) == (use == "result")
    assert ("test accuracy" in row) == (use == "result") and row["bytes"] > 8 * 174


def test_the_slower_rank_decides_how_long_a_step_takes():
    link = runpy.run_path(str(experiments.find()["send_less_seconds"]))
    seconds = {0: (0.1, 0.3), 1: (0.2, 0.2)}  # of rank 0 and of rank 1, in two steps
    by_rank = [
        [
            [
                {"name": name, "step": seconds[rank][step], "computing": 0.01, "exchanging": 0.05, "bytes": 1_000}
                for step in range(2)
                for name in horovod_wire.WAYS
            ],
            [1_100] * len(horovod_wire.WAYS),
        ]
        for rank in range(2)
    ]
    rows = link["rows_of"]("100 Mbit/s", by_rank)
    assert [row["name"] for row in rows] == list(horovod_wire.WAYS)
    assert {row["seconds per step"] for row in rows} == {0.25} and {row["compressing"] for row in rows} == {0.14}
    recorded = experiments.find()["send_less_seconds"].parent.parent / "recorded" / "send_less_seconds.csv"
    assert list(pd.DataFrame(rows)) == list(pd.read_csv(recorded, comment="#"))
    (axis,) = link["draw"](pd.DataFrame(rows), "here").axes
    assert axis.get_title(loc="left") == "100 Mbit/s"
