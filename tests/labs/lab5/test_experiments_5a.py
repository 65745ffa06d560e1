"""The experiment of notebook 5a on a slice of the data, from its plan to its figures."""

from __future__ import annotations

import runpy

import pytest

from course_lib.notebook import experiments
from labs.lab5_precision_and_memory.lessons import formats_5a, mixed_lars


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


@pytest.fixture
def mixed(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    monkeypatch.setattr(mixed_lars, "BATCH", 64)
    monkeypatch.setattr(mixed_lars.train, "__kwdefaults__", {"batch": 64, "epochs": 3})
    return runpy.run_path(str(experiments.find()["mixed_lars"]))


def test_ways_of_the_experiment_with_lars_are_those_of_its_module(mixed):
    assert mixed["WAYS"] == tuple(mixed_lars.WAYS)
