"""Lab 3's experiments on a slice of the data: what chooses a setting has not seen the test images."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from course_lib import data
from course_lib.notebook import experiments

pytestmark = [pytest.mark.slow]

# name → settings of its `run`; batches that a slice of 960 images can fill
RUNS = {
    "generalisation_gap": {"method": "B = 64", "batch": 64, "epochs": 2, "rate": 0.1},
    "rate_scaling": {"rule": "linear", "batch": 256, "eta": 0.1, "warm_up": 2, "epochs": 8},
    "batch_growth": {"method": "growth to 256, then decay", "eta": 0.05},
    "normalisation": {"regime": "overfitting", "batch": 640, "ghost": 16, "rate": 0.1},
    "gradient_noise": {"regime": "overfitting", "batch": 640, "base": 128, "rate": 0.1},
    "shoot_out": {"method": "LARS", "batch": 320, "rate": 1.0},
    "tricks": {
        "batch": 320,
        "rate": 1.0,
        **dict.fromkeys(("warm-up", "exempt", "LARS", "ghost", "longer"), 1),
    },
}


@pytest.fixture
def judged(monkeypatch):
    """The first images of the parts that a run is scored on."""
    from labs.lab3_large_batch.lessons import short_runs

    monkeypatch.setenv("COURSE_SLICE", "1279")
    score, seen = short_runs.score, []

    def watched(model, part):
        seen.append(part.images[0])
        return score(model, part)

    monkeypatch.setattr(short_runs, "score", watched)
    return seen


@pytest.mark.parametrize("use", ["tuning", "result"])
@pytest.mark.parametrize("name", RUNS)
def test_test_images_are_seen_by_results_only_and_once(name, use, judged):
    row = runpy.run_path(str(experiments.find()[name]))["run"](use=use, seed=1, **RUNS[name])
    test = data.load("fashion_mnist").x_test[0]
    assert sum(np.array_equal(image, test) for image in judged) == (use == "result")
    assert len(judged) > (use == "result")
    scores = [value for key, value in row.items() if "accuracy" in key or key in ("validation", "test")]
    assert [score for score in scores if score is not None] and all(
        score is None or 0 <= score <= 1 for score in scores
    )


def test_updates_to_a_target_end_at_the_target_or_at_the_limit(judged):
    experiment = runpy.run_path(str(experiments.find()["steps_to_target"]))
    from labs.lab3_large_batch.lessons import short_runs

    problem = short_runs.fashion()
    tried = experiment["train_to_target"](problem, batch=64, rate=0.05, seed=1, max_updates=30)
    assert tried["updates"] is None and tried["accuracy"] < experiment["TARGET"]


def test_distances_grow_from_the_start(judged):
    experiment = runpy.run_path(str(experiments.find()["sharpness"]))
    walked = experiment["walk"]("quick", batch=32, rate=0.02, seed=1)
    assert walked["updates"] == list(experiment["UPDATES"])
    assert 0 < walked["distance"][0] < walked["distance"][-1]
