"""The experiment of notebook 7a on a slice of the data, from its plan to its figure."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from course_lib.notebook import experiments
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


def test_images_are_divided_without_overlap():
    parts = balanced_gate.fashion()
    assert [len(parts[name][0]) for name in ("train", "validation")] == [256, 100]
    assert np.abs(parts["train"][0]).max() <= 2.5  # brightness, about 0 and of size 1


def test_a_single_expert_takes_every_image():
    _, row = balanced_gate.train(1, 0.0, 0.1, 1)
    assert row == {"dropped": 0.0, "fullest": 1.0}
