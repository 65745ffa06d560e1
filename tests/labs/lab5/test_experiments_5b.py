"""The experiments of notebook 5b on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments
from labs.lab5_precision_and_memory.lessons import narrow_training as training


@pytest.fixture
def bits(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "1279")
    return runpy.run_path(str(experiments.find()["gradient_bits"]))


@pytest.mark.parametrize("use", ["tuning", "result"])
def test_test_images_are_seen_by_results_only(use, bits, monkeypatch):
    seen, accuracy = [], training.Training.accuracy

    def watched(self, part):
        seen.append(part)
        return accuracy(self, part)

    monkeypatch.setattr(training.Training, "accuracy", watched)
    bits["run"].__globals__["REGIMES"] = {"64": (64, 1)}
    row = bits["run"]("64", 0.05, 1, use, exponent=3, mantissa=1, scale="each")
    test = training.fashion().test
    assert sum(np.array_equal(part.images, test.images) for part in seen) == (use == "result")
    assert ("test accuracy" in row) == (use == "result")
    assert row["updates"] == 15 and 0 < row["sent as 0"] < 1


def test_the_slower_rank_decides_how_long_a_step_takes(titles):
    link = runpy.run_path(str(experiments.find()["slow_link"]))
    seconds = {0: (0.1, 0.3), 1: (0.2, 0.2)}  # of rank 0 and of rank 1, in two steps
    by_rank = [
        [
            [
                {"form": form, "step": seconds[rank][step], "computing": 0.01, "bytes": 1_000_000}
                for step in range(2)
                for form in link["FORMS"]
            ],
            [1_100_000] * len(link["FORMS"]),
        ]
        for rank in range(2)
    ]
    rows = link["rows_of"]("100 Mbit/s", "100mbit", by_rank)
    assert [row["bits"] for row in rows] == [32, 16, 8, 4]
    assert {row["seconds per step"] for row in rows} == {0.25}
    assert rows[0]["cable alone"] == 0.08 and rows[0]["bytes of the card"] == 1_100_000
    assert link["rows_of"]("no limit", None, by_rank)[0]["cable alone"] == 0
    assert titles(link["draw"](pd.DataFrame(rows), "here")) == ["100 Mbit/s"]
