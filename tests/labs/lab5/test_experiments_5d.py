"""The experiments of notebook 5d on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from course_lib.notebook import experiments
from labs.lab5_precision_and_memory.lessons import pruning

RUNS = {
    "pruning": {"way": "gradual", "density": 0.1, "rate": 0.1},
    "recurrent": {"network": "32 units, pruned to 10 %", "rate": 0.01},
}


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
