"""The experiments of notebook 7b on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
from course_lib.parallel import schedules
from labs.lab7_splitting_the_model.lessons import stale_pipeline


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "512")
    stale_pipeline.fashion.cache_clear()
    yield
    stale_pipeline.fashion.cache_clear()


def load(name):
    return runpy.run_path(str(experiments.find()[name]))


@pytest.mark.parametrize("use", ["tuning", "result"])
def test_test_images_are_seen_by_results_only(use, monkeypatch):
    seen, accuracy = [], stale_pipeline.accuracy
    monkeypatch.setattr(stale_pipeline, "accuracy", lambda layers, part: seen.append(part) or accuracy(layers, part))
    row = load("stale_pipeline")["run"]("stashed", 4, 0.05, 1, use)
    problem = stale_pipeline.fashion()
    assert len(seen) == 1 and seen[0] is (problem.test if use == "result" else problem.validation)
    assert list(row) == ["test accuracy" if use == "result" else "validation accuracy"]


def test_every_way_has_every_seed_and_its_own_rate():
    experiment = load("stale_pipeline")
    rates = {way: 0.01 * number for number, way in enumerate(experiment["WAYS"], 1)}
    plan = pd.DataFrame(experiment["plan_of_results"](rates))
    own = plan[plan["use"] == "result"]
    assert {key: part["rate"].iloc[0] for key, part in own.groupby(["way", "stages"])} == pytest.approx(rates)
    assert set(plan.groupby(["use", "way", "stages"])["seed"].nunique()) == {5}
    assert set(plan.loc[plan["use"] == "same rate", "rate"]) == {0.01}
    assert not plan.duplicated().any() and not set(experiment["TUNING_SEEDS"]) & set(experiment["SEEDS"])


def test_the_sweep_runs_from_plan_to_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    monkeypatch.setattr(stale_pipeline, "EPOCHS", 1)
    main = load("stale_pipeline")["main"]
    main.__globals__.update(RATES=(0.01, 0.02), SEEDS=(1, 2), TUNING_SEEDS=(101,), LONGER=1)
    main(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"stale_pipeline.csv", "stale_pipeline.png"}
    recorded = experiments.find()["stale_pipeline"].parent.parent / "recorded"
    table, before = (pd.read_csv(folder / "stale_pipeline.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(table) == list(before) and set(table["use"]) == set(before["use"])


def test_the_table_of_the_bubble_is_made_of_what_both_ranks_measured():
    experiment = load("bubble")
    rows = experiment["rows"]
    rows.__globals__.update(MICRO=(1, 2))

    def measured(make, micro, stage):
        run = schedules.run(make(2, micro), 1, 2)
        spans = [(s.kind, s.micro, 100 + s.start, 100 + s.end) for s in run.spans if s.stage == stage]
        return [spans] * 4

    def rank(stage):
        found = {
            (name, micro): measured(make, micro, stage)
            for name, make in experiment["SCHEDULES"].items()
            for micro in (1, 2)
        }
        messages = {10: {"socket": 0.001, "all-to-all": 0.002}}
        return {**found, "serial": [9.0, 9.0, 3.0, 3.0] if stage == 0 else [], "messages": messages}

    table = rows(rank(0), rank(1)).set_index(["what", "micro"])
    assert table.loc[("serial", 1), "seconds"] == 3
    assert table.loc[("message by socket", 10), "seconds"] == 0.001
    for name in experiment["SCHEDULES"]:
        assert table.loc[(name, 2), "seconds"] == pytest.approx(9)
        assert table.loc[(name, 2), "computing"] == pytest.approx(12)
        for column in ("idle", "predicted", "from its tasks"):
            assert np.allclose(table.loc[[(name, 1), (name, 2)], column], [1 / 2, 1 / 3])
