"""Lab 3's experiments on a slice of the data: what chooses a setting has not seen the test images."""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from course_lib import data
from course_lib.notebook import experiments, sweep

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


# What makes an experiment a matter of seconds, on 960 images; nothing else is changed.
TINY = {
    "steps_to_target": {
        "IMAGES": 960, "VALIDATION_IMAGES": 300, "BATCH_SIZES": (64, 256), "RATES": (0.05,), "TUNING_SEEDS": (101,),
        "SEEDS": (1, 2), "TARGET": 0.3, "EARLIER_TARGETS": (0.2, 0.25), "NOISE_RUNS": (64,), "NOISE_PARTS": (0, 1.0),
        "NOISE_SAMPLES": {16: 8, 240: 8},
    },
    "generalisation_gap": {"BATCHES": (64, 320), "EPOCHS": (1, 2), "RATES": (0.05,), "SEEDS": (1, 2)},
    "sharpness": {
        "HESSIAN_IMAGES": 60, "TRAINED": ((64, 1), (320, 1)), "RATES": (0.05, 0.1), "SEEDS": (1,), "STARTS": (1,),
        "ALPHAS": np.array([0.0, 1.0]), "WALK_IMAGES": 256, "BATCHES": (32, 256), "UPDATES": (1, 4, 16, 24, 32, 48),
    },
    "rate_scaling": {
        "IMAGES": 960, "EPOCHS": 4, "BATCHES": (64, 320), "BASE": 64, "LARGEST": 320, "RATES": (0.03,), "SEEDS": (1,),
        "LONGER_EPOCHS": (8,),
    },
    "batch_growth": {
        "IMAGES": 960, "METHODS": {"no change": (16, None), "decay": (16, 16), "growth": (16, 256)}, "RATES": (0.03,),
        "SEEDS": (1, 2),
    },
    "normalisation": {
        "REGIMES": {"few updates": (960, 320, 4), "overfitting": (640, 160, 4)}, "RATES": (0.1,), "DECAYS": (0.01,),
        "SEEDS": (1,), "RANK_SEEDS": (1,), "RANK_RUNS": {64: (0.1, 4)},
        "GHOSTS": {"few updates": (16,), "overfitting": ()},
    },
    "gradient_noise": {
        "REGIMES": {"few updates": (960, 320, 4), "overfitting": (640, 160, 4)}, "RATES": (0.1,), "SEEDS": (1,),
        "NOISE_BASES": {"few updates": (160,), "overfitting": (80,)}, "SIZES": (64, 128), "DRAWS": 4, "WARM_UP": 2,
        "EXAMPLES": 200,
    },
    "shoot_out": {
        "IMAGES": 960, "EPOCHS": 2, "BATCH_SIZES": (64, 320), "METHODS": ("SGD", "LARS"), "RATES": (0.1,),
        "SEEDS": (1,),
    },
    "equal_loss": {"IMAGES": 960, "EPOCHS": (2, 1), "SEEDS": (1,)},
    "adversarial": {
        "IMAGES": 960, "SETTINGS": ((320, 0.1, 2), (64, 0.1, 2), (64, 0.1, 1)), "SEEDS": (1, 2),
    },
    "base_warm_up": {"IMAGES": 960, "EPOCHS": 1, "WARM_UPS": (0, 4), "SEEDS": (1, 2)},
    "longer": {"IMAGES": 960, "SETTINGS": ((320, 4), (160, 2)), "RATES": (0.03,), "SEEDS": (1, 2)},
    "curvature": {
        "IMAGES": 960, "BATCH": 160, "EPOCHS": 2, "MEASURED": (0, 1, 4), "HESSIAN_IMAGES": 60, "WARM_UPS": (0, 2),
        "SEEDS": (1,), "OTHER_BATCHES": (80,),
    },
    "tricks": {
        "IMAGES": 960, "EPOCHS": 2, "SMALL": 64, "LARGE": 320, "RATES": (0.1,), "SEEDS": (1,),
    },
}  # fmt: skip


@pytest.mark.ranks
@pytest.mark.parametrize("name", TINY)
def test_an_experiment_runs_from_plan_to_figure(name, monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_SLICE", "1279")
    # One worker that has TensorFlow already; tests/notebook/test_sweep.py has workers that are processes.
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    main = runpy.run_path(str(experiments.find()[name]))["main"]
    assert main.__globals__.keys() >= TINY[name].keys()
    main.__globals__.update(TINY[name])
    main(tmp_path)
    recorded = experiments.find()[name].parent.parent / "recorded"
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in recorded.glob(f"{name}*")}
    table, before = (pd.read_csv(folder / f"{name}.csv", comment="#") for folder in (tmp_path, recorded))
    assert table.shape[1] == before.shape[1] and set(table) & set(before)
