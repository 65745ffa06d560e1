"""The experiment of notebook 7a on a slice of the data, from its plan to its figure."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments, sweep
from labs.lab7_splitting_the_model.lessons import balanced_gate


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    """Few images, which train and validation share."""
    monkeypatch.setenv("COURSE_SLICE", "511")
    for name, value in {"TRAIN": 256, "VALIDATION": 100, "EPOCHS": 1}.items():
        monkeypatch.setattr(balanced_gate, name, value)
    balanced_gate.fashion.cache_clear()
    yield
    balanced_gate.fashion.cache_clear()


@pytest.mark.parametrize("use", ["tuning", "result"])
def test_test_images_are_seen_by_results_only(use, monkeypatch):
    seen, accuracy = [], balanced_gate.Network.accuracy

    def watched(self, x, y):
        seen.append(x)
        return accuracy(self, x, y)

    monkeypatch.setattr(balanced_gate.Network, "accuracy", watched)
    row = runpy.run_path(str(experiments.find()["experts"]))["run"]("alpha 0.1", 0.1, 1, use)
    test, _ = balanced_gate.fashion()["test"]
    assert sum(x is test for x in seen) == (use == "result")
    assert ("test accuracy" in row) == (use == "result")
    assert 0 <= row["dropped"] < 1 and 0.25 <= row["fullest"] <= 1


def test_the_experiment_runs_from_plan_to_figure(monkeypatch, tmp_path):
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "say", lambda row, done, total: None)
    main = runpy.run_path(str(experiments.find()["experts"]))["main"]
    small = {"RATES": (0.1,), "SEEDS": (1, 2), "SETTINGS": {"one expert": (1, 0.0), "alpha 0.1": (4, 0.1)}}
    assert main.__globals__.keys() >= small.keys()
    main.__globals__.update(small)
    main(tmp_path)
    recorded = experiments.find()["experts"].parent.parent / "recorded"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in recorded.glob("experts*")}
    table, before = (pd.read_csv(folder / "experts.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(table) == list(before)


def test_images_are_divided_without_overlap():
    parts = balanced_gate.fashion()
    assert [len(parts[name][0]) for name in ("train", "validation")] == [256, 100]
    assert np.abs(parts["train"][0]).max() <= 2.5  # brightness, about 0 and of size 1


def test_a_single_expert_takes_every_image():
    _, row = balanced_gate.train(1, 0.0, 0.1, 1)
    assert row == {"dropped": 0.0, "fullest": 1.0}
