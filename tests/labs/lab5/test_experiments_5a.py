"""The experiment of notebook 5a on a slice of the data, from its plan to its figures."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
from labs.lab5_precision_and_memory.lessons import formats_5a, mixed_lars

TINY = {"WAYS": ("float32", "float16", "fp8 gradients"), "RATES": (0.05,), "POWERS": (-8, 24), "SEEDS": (1, 2)}


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    monkeypatch.setattr(formats_5a, "BATCH", 32)
    monkeypatch.setattr(formats_5a.train, "__kwdefaults__", {"batch": 32, "epochs": 3})
    return runpy.run_path(str(experiments.find()["number_formats"]))


@pytest.mark.parametrize("use", ["tuning", "result", "window"])
def test_tuning_sees_no_test_images(experiment, use):
    row = experiment["run"]("float16", 0.05, 1, use, 8 if use == "window" else float("nan"))
    assert ("test accuracy" in row) == (use != "tuning")
    assert ("loss at 3" in row) == (use == "result")
    assert row["last scale"] == (256 if use == "window" else 1)


def test_every_way_has_every_seed_and_its_own_rate(experiment):
    rates = {way: number for number, way in enumerate(experiment["WAYS"])}
    plan = pd.DataFrame(experiment["plan_of_results"](rates))
    assert set(plan.groupby(["way", "use", "power"], dropna=False)["seed"].nunique()) == {len(experiment["SEEDS"])}
    assert set(plan.groupby("way")["rate"].nunique()) == {1} and not plan.duplicated().any()
    assert set(plan["way"]) == set(formats_5a.WAYS)
    assert experiment["TUNING_SEED"] not in experiment["SEEDS"]


def test_it_runs_from_plan_to_figures(experiment, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    main = experiment["main"]
    assert main.__globals__.keys() >= TINY.keys()
    main.__globals__.update(TINY)
    main(tmp_path)
    recorded = experiments.find()["number_formats"].parent.parent / "recorded"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in recorded.glob("number_formats*")}
    table, before = (pd.read_csv(folder / "number_formats.csv", comment="#") for folder in (tmp_path, recorded))
    assert set(table) <= set(before)
    assert np.isfinite(table["validation accuracy"]).all()


@pytest.fixture
def mixed(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    monkeypatch.setattr(mixed_lars, "BATCH", 64)
    monkeypatch.setattr(mixed_lars.train, "__kwdefaults__", {"batch": 64, "epochs": 3})
    return runpy.run_path(str(experiments.find()["mixed_lars"]))


def test_ways_of_the_experiment_with_lars_are_those_of_its_module(mixed):
    assert mixed["WAYS"] == tuple(mixed_lars.WAYS)


def test_the_experiment_with_lars_runs_from_plan_to_figure(mixed, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    main = mixed["main"]
    tiny = {"WAYS": ("float32", "float16, scaled loss, norms too"), "RATES": (1.0,), "SEEDS": (1, 2)}
    assert main.__globals__.keys() >= tiny.keys()
    main.__globals__.update(tiny)
    main(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mixed_lars.csv", "mixed_lars.png"}
    table = pd.read_csv(tmp_path / "mixed_lars.csv", comment="#")
    assert table["validation accuracy"].between(0, 1).all()
    assert table.loc[table["use"] == "tuning", "test accuracy"].isna().all()
    assert table.loc[table["use"] == "result", "test accuracy"].notna().all()
