"""The experiments of notebook 5b on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
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


def test_every_setting_has_every_seed_and_the_rate_of_its_regime(bits):
    plan = pd.DataFrame(bits["plan_of_results"]({regime: number for number, regime in enumerate(bits["REGIMES"])}))
    assert set(plan.groupby("regime")["rate"].nunique()) == {1}
    assert set(plan["seed"]) == set(bits["SEEDS"]) and not set(bits["SEEDS"]) & set(bits["TUNING_SEEDS"])
    keys = ["part", "regime", "exponent", "mantissa", "scale", "way"]
    assert set(plan.groupby(keys, dropna=False)["seed"].nunique()) == {len(bits["SEEDS"])}
    assert not plan.duplicated().any()


def test_the_map_runs_from_plan_to_figure(bits, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    monkeypatch.setattr(training, "fashion", lru_cache(training.fashion))
    regimes = {"64": (64, 1), "1,280": (320, 1)}
    tiny = {"REGIMES": regimes, "RATES": (0.05,), "TUNING_SEEDS": (101,), "SEEDS": (1, 2), "FORMS": ((3, 0),)}
    bits["main"].__globals__.update(tiny)
    bits["main"](tmp_path)
    recorded = experiments.find()["gradient_bits"].parent.parent / "recorded"
    table, before = (pd.read_csv(folder / "gradient_bits.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(table) == list(before)
    assert (tmp_path / "gradient_bits.png").exists()


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
