"""The experiments of notebook 6a on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from course_lib.notebook import experiments
from labs.lab6_beyond_synchronous.lessons import small_network

RUNS = {
    "staleness": {"way": "aware", "workers": 4, "momentum": 0.0, "rate": 0.1},
    "implicit_momentum": {"workers": 4, "momentum": 0.5, "rate": 0.1},
}


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
    run.__globals__["UPDATES"] = 32
    row = run(seed=1, use=use, **RUNS[name])
    test = small_network.fashion().test
    assert sum(np.array_equal(part.images, test.images) for part in seen) == (use == "result")
    assert any(key.startswith("test ") for key in row) == (use == "result")
