"""The experiments of notebook 6c on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
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


def test_every_setting_has_every_seed_and_its_own_rate(send_less):
    chosen = [{**setting, "rate": number} for number, setting in enumerate(send_less["settings"]())]
    plan = pd.DataFrame(send_less["plan_of_results"](chosen))
    assert len(chosen) == 27 and not plan.duplicated().any()
    assert set(plan.groupby(["way", "amount"])["seed"].nunique()) == {5}
    assert set(plan.groupby(["way", "amount"])["rate"].nunique()) == {1}
    assert send_less["TUNING_SEED"] not in send_less["SEEDS"]


def test_the_experiment_runs_from_plan_to_figure(send_less, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    send_less["main"].__globals__.update({"RATES": (0.05,), "SEEDS": (1, 2)})
    send_less["main"](tmp_path)
    recorded = experiments.find()["send_less"].parent.parent / "recorded"
    assert {path.name for path in tmp_path.iterdir()} == {"send_less.csv", "send_less.png", "send_less_ladder.png"}
    table, before = (pd.read_csv(folder / "send_less.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(table) == list(before)
    assert set(map(tuple, table[["way", "amount"]].to_numpy())) == set(map(tuple, before[["way", "amount"]].to_numpy()))


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
