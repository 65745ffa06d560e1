"""The experiments of notebook 5d on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
from labs.lab5_precision_and_memory.lessons import pruning

RUNS = {
    "pruning": {"way": "gradual", "density": 0.1, "rate": 0.1},
    "recurrent": {"network": "32 units, pruned to 10 %", "rate": 0.01},
}
TINY = {
    "pruning": {"WAYS": ("at once", "gradual", "random", "rows", "filters"), "DENSITIES": (0.5, 0.1), "RATES": (0.1,),
                "SEEDS": (1, 2)},
    "recurrent": {"SETTINGS": {"8 units, dense": (8, 704), "16 units, pruned to 704": (16, 704)}, "RATES": (0.01,),
                  "SEEDS": (1, 2)},
}  # fmt: skip


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    monkeypatch.setattr(pruning, "EPOCHS", 1)
    for kept in (pruning.fashion, pruning._first_half):
        kept.cache_clear()
    yield
    for kept in (pruning.fashion, pruning._first_half):
        kept.cache_clear()


@pytest.mark.parametrize("use", ["tuning", "result"])
@pytest.mark.parametrize("name", RUNS)
def test_test_images_are_seen_by_results_only(name, use, monkeypatch):
    seen, accuracy = [], pruning.Network.accuracy

    def watched(self, part):
        seen.append(part)
        return accuracy(self, part)

    monkeypatch.setattr(pruning.Network, "accuracy", watched)
    row = runpy.run_path(str(experiments.find()[name]))["run"](seed=1, use=use, **RUNS[name])
    test = pruning.fashion().test
    assert sum(np.array_equal(part.images, test.images) for part in seen) == (use == "result")
    assert ("test accuracy" in row) == (use == "result")
    assert row["nonzeros"] == pytest.approx(2_304 if name == "pruning" else 589, abs=2)


def test_every_way_has_every_seed_and_its_own_rate():
    experiment = runpy.run_path(str(experiments.find()["pruning"]))
    rates = {way: number for number, way in enumerate(("dense", *experiment["WAYS"]))}
    plan = pd.DataFrame(experiment["plan_of_results"](rates))
    assert set(plan.groupby(["way", "density"])["seed"].nunique()) == {len(experiment["SEEDS"])}
    assert set(plan.groupby("way")["rate"].nunique()) == {1} and not plan.duplicated().any()
    assert experiment["TUNING_SEED"] not in experiment["SEEDS"]


@pytest.mark.parametrize("name", TINY)
def test_an_experiment_runs_from_plan_to_figure(name, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    main = runpy.run_path(str(experiments.find()[name]))["main"]
    assert main.__globals__.keys() >= TINY[name].keys()
    main.__globals__.update(TINY[name])
    main(tmp_path)
    recorded = experiments.find()[name].parent.parent / "recorded"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in recorded.glob(f"{name}*")}
    table, before = (pd.read_csv(folder / f"{name}.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(table) == list(before)
