"""The experiments of notebook 6a on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
from labs.lab6_beyond_synchronous.lessons import hogwild, small_network

RUNS = {
    "staleness": {"way": "aware", "workers": 4, "momentum": 0.0, "rate": 0.1},
    "implicit_momentum": {"workers": 4, "momentum": 0.5, "rate": 0.1},
}
TINY = {
    "staleness": {
        "UPDATES": 32, "LONG": 48, "SEEDS": (1, 2),
        "SETTINGS": [("asynchronous", 1, 0.0), ("asynchronous", 4, 0.0), ("asynchronous", 1, 0.9), ("even", 4, 0.0),
                     ("aware", 4, 0.0), ("synchronous", 4, 0.9), ("long", 1, 0.0), ("long", 4, 0.0)],
    },
    "implicit_momentum": {"UPDATES": 8, "SEEDS": (1, 2), "WORKERS": (1, 2), "MOMENTA": (0.0, 0.5), "RATES": (0.1, 0.2)},
    "hogwild": {"REPEATS": (1, 2), "VALUES": (10, 30)},
}  # fmt: skip


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    small_network.fashion.cache_clear()
    yield
    small_network.fashion.cache_clear()


@pytest.mark.parametrize("use", ["tuning", "result"])
@pytest.mark.parametrize("name", RUNS)
def test_test_images_are_seen_by_results_only(name, use, monkeypatch):
    seen = []
    for score in ("accuracy", "loss"):
        whole = getattr(small_network, score)
        monkeypatch.setattr(
            small_network, score, lambda weights, part, whole=whole: seen.append(part) or whole(weights, part)
        )
    run = runpy.run_path(str(experiments.find()[name]))["run"]
    run.__globals__.update({key: TINY[name][key] for key in ("UPDATES",)})
    row = run(seed=1, use=use, **RUNS[name])
    test = small_network.fashion().test
    assert sum(np.array_equal(part.images, test.images) for part in seen) == (use == "result")
    assert any(key.startswith("test ") for key in row) == (use == "result")


def test_every_setting_tries_seven_rates():
    experiment = runpy.run_path(str(experiments.find()["staleness"]))
    plan = pd.DataFrame(experiment["plan_of_tuning"]())
    assert set(plan.groupby(["way", "workers", "momentum"])["rate"].nunique()) == {7} and not plan.duplicated().any()
    assert not set(experiment["TUNING_SEEDS"]) & set(experiment["SEEDS"])


@pytest.mark.parametrize("name", TINY)
def test_an_experiment_runs_from_plan_to_figure(name, monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    outcome = hogwild.Outcome(np.zeros(1), 1000.0, 0.01)
    monkeypatch.setattr(hogwild, "run", lambda way, draw, settings, epochs: outcome)  # real ones: tests/real_ranks
    main = runpy.run_path(str(experiments.find()[name]))["main"]
    assert main.__globals__.keys() >= TINY[name].keys()
    main.__globals__.update(TINY[name])
    if name == "hogwild":
        main.__globals__["run"] = lambda *_: {"updates per second": 1000.0, "lost": 0.01, "loss": 0.5}
    main(tmp_path)
    recorded = experiments.find()[name].parent.parent / "recorded"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in recorded.glob(f"{name}.*")}
    table, before = (pd.read_csv(folder / f"{name}.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(table) == list(before)
