"""The experiments of the labs on a slice of the data, from their plans to their tables and figures."""

from __future__ import annotations

import pkgutil
import re
import runpy
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from course_lib import data
from course_lib.notebook import experiments, sweep
from course_lib.parallel import schedules
from tests.labs import figures
from tests.labs.notebooks import recorded

pytestmark = [pytest.mark.slow, pytest.mark.long]


@dataclass
class Small:
    """What makes an experiment a matter of seconds; nothing else is changed.

    constants: of the experiment; images: COURSE_SLICE; lessons: attributes of the lab's lessons; caches: functions of
    them whose results a slice makes invalid.
    """

    constants: dict[str, Any]
    images: int = 511
    lessons: dict[str, Any] = field(default_factory=dict)
    caches: tuple[str, ...] = ()


TWO = {"SEEDS": (1, 2)}
REGIMES = {"few updates": (960, 320, 4), "overfitting": (640, 160, 4)}  # of 3c: images, batch, epochs
LAB3 = {
    "steps_to_target": {
        "IMAGES": 960, "VALIDATION_IMAGES": 300, "BATCH_SIZES": (64, 256), "RATES": (0.05,), "TUNING_SEEDS": (101,),
        "SEEDS": (1, 2), "TARGET": 0.3, "EARLIER_TARGETS": (0.2, 0.25), "NOISE_RUNS": (64,), "NOISE_PARTS": (0, 1.0),
        "NOISE_SAMPLES": {16: 8, 240: 8},
    },
    "generalisation_gap": {"BATCHES": (64, 320), "EPOCHS": (1, 2), "RATES": (0.05,), **TWO},
    "sharpness": {
        "HESSIAN_IMAGES": 60, "TRAINED": ((64, 1), (320, 1)), "RATES": (0.05, 0.1), "SEEDS": (1,), "STARTS": (1,),
        "ALPHAS": np.array([0.0, 1.0]), "WALK_IMAGES": 256, "BATCHES": (32, 256), "UPDATES": (1, 4, 16, 24, 32, 48),
    },
    "rate_scaling": {
        "IMAGES": 960, "EPOCHS": 4, "BATCHES": (64, 320), "BASE": 64, "LARGEST": 320, "RATES": (0.03,),
        "TUNING_SEEDS": (101,), "SEEDS": (1,), "LONGER_EPOCHS": (8,),
    },
    "batch_growth": {
        "IMAGES": 960, "METHODS": {"no change": (16, None), "decay": (16, 16), "growth": (16, 256)}, "RATES": (0.03,),
        **TWO,
    },
    "normalisation": {
        "REGIMES": REGIMES, "RATES": (0.1,), "DECAYS": (0.01,), "TUNING_SEEDS": (0,), "SEEDS": (1,),
        "RANK_SEEDS": (1,),
        "RANK_RUNS": {64: (0.1, 4)}, "GHOSTS": {"few updates": (16,), "overfitting": ()},
    },
    "gradient_noise": {
        "REGIMES": REGIMES, "RATES": (0.1,), "SEEDS": (1,), "SIZES": (64, 128), "DRAWS": 4,
        "NOISE_BASES": {"few updates": (160,), "overfitting": (80,)}, "WARM_UP": 2, "EXAMPLES": 200,
    },
    "shoot_out": {
        "IMAGES": 960, "EPOCHS": 2, "BATCH_SIZES": (64, 320), "METHODS": ("SGD", "LARS"), "RATES": (0.1,),
        "SEEDS": (1,),
    },
    "equal_loss": {"IMAGES": 960, "EPOCHS": (2, 1), "SEEDS": (1,)},
    "adversarial": {"IMAGES": 960, "SETTINGS": ((320, 0.1, 2), (64, 0.1, 2), (64, 0.1, 1)), **TWO},
    "base_warm_up": {"IMAGES": 960, "EPOCHS": 1, "WARM_UPS": (0, 4), **TWO},
    "longer": {"IMAGES": 960, "SETTINGS": ((320, 4), (160, 2)), "RATES": (0.03,), **TWO},
    "curvature": {
        "IMAGES": 960, "BATCH": 160, "EPOCHS": 2, "MEASURED": (0, 1, 4), "HESSIAN_IMAGES": 60, "WARM_UPS": (0, 2),
        "SEEDS": (1,), "OTHER_BATCHES": (80,),
    },
    "tricks": {"IMAGES": 960, "EPOCHS": 2, "SMALL": 64, "LARGE": 320, "RATES": (0.1,), "SEEDS": (1,)},
}  # fmt: skip
PRUNING = {"lessons": {"pruning.EPOCHS": 1}, "caches": ("pruning.fashion", "pruning._first_half")}
OTHERS = {
    "number_formats": Small(
        {"WAYS": ("float32", "float16", "fp8 gradients"), "RATES": (0.05,), "POWERS": (-8, 24), **TWO},
        lessons={"formats_5a.BATCH": 32, "formats_5a.train.__kwdefaults__": {"batch": 32, "epochs": 3}},
    ),
    "mixed_lars": Small(
        {"WAYS": ("float32", "float16, scaled loss, norms too"), "RATES": (1.0,), **TWO},
        lessons={"mixed_lars.BATCH": 64, "mixed_lars.train.__kwdefaults__": {"batch": 64, "epochs": 3}},
    ),
    "gradient_bits": Small(
        {"REGIMES": {"64": (64, 1), "1,280": (320, 1)}, "RATES": (0.05,), "TUNING_SEEDS": (101,), "FORMS": ((3, 0),),
         **TWO},
        images=1279,
    ),
    "pruning": Small({"DENSITIES": (0.5, 0.1), "RATES": (0.1,), **TWO}, **PRUNING),
    "recurrent": Small(
        {"SETTINGS": {"8 units, dense": (8, 704), "16 units, pruned to 704": (16, 704)}, "RATES": (0.01,), **TWO},
        **PRUNING,
    ),
    "staleness": Small(
        {
            "UPDATES": 32, "LONG": 48, **TWO,
            "SETTINGS": [("asynchronous", 1, 0.0), ("asynchronous", 4, 0.0), ("asynchronous", 1, 0.9), ("even", 4, 0.0),
                         ("aware", 4, 0.0), ("synchronous", 4, 0.9), ("long", 1, 0.0), ("long", 4, 0.0)],
        },
        caches=("small_network.fashion",),
    ),
    "implicit_momentum": Small(
        {"UPDATES": 8, "WORKERS": (1, 2), "MOMENTA": (0.0, 0.5), "RATES": (0.1, 0.2), **TWO},
        caches=("small_network.fashion",),
    ),
    "hogwild": Small(  # real runs: tests/real_ranks
        {"REPEATS": (1, 2), "VALUES": (10, 30),
         "run": lambda *_: {"updates per second": 1000.0, "lost": 0.01, "loss": 0.5}},
    ),
    "fewer_meetings": Small(
        {"RATES": (0.05,), "LIMITS": dict.fromkeys((2, 4, 16, 32), 10), **TWO}, caches=("small_network.fashion",)
    ),
    "send_less": Small(
        {"RATES": (0.05,), **TWO}, lessons={"dense_training.UPDATES": 10}, caches=("dense_training.fashion",)
    ),
    "experts": Small(
        {"RATES": (0.1,), "SETTINGS": {"one expert": (1, 0.0), "alpha 0.1": (4, 0.1)}, **TWO},
        lessons={"balanced_gate.TRAIN": 256, "balanced_gate.VALIDATION": 100, "balanced_gate.EPOCHS": 1},
        caches=("balanced_gate.fashion",),
    ),
    "stale_pipeline": Small(
        {"RATES": (0.01, 0.02), "TUNING_SEEDS": (101,), "LONGER": 1, **TWO},
        images=512, lessons={"stale_pipeline.EPOCHS": 1}, caches=("stale_pipeline.fashion",),
    ),
    "layer_energy": Small({"WIDTH": 16, "BATCHES": (1, 4)}),
    "memory_hierarchy": Small({"SIZES": [8_192, 65_536], "TURNS": 2}),
    "blocked_product": Small(
        {"SIZE": 64, "TURNS": 2, "BLOCKS": [(-1, 64), (0, 64), (1, 64), (8, 64)]},
        lessons={"machine._flags": lambda: {"pni"}},
    ),
}  # fmt: skip
CASES = [
    *(
        pytest.param(name, Small(constants, 1279), id=name, marks=[pytest.mark.slow, pytest.mark.ranks])
        for name, constants in LAB3.items()
    ),
    *(pytest.param(name, small, id=name) for name, small in OTHERS.items()),
]


@pytest.fixture
def black_tests(monkeypatch):
    """All test images are black, of one class: any network's accuracy is 0 or 1 on them, and on no other images."""
    load = data.load

    def black(*names, **how):
        whole = load(*names, **how)
        return replace(whole, x_test=np.zeros_like(whole.x_test), y_test=np.full_like(whole.y_test, 7))

    monkeypatch.setattr(data, "load", black)


@pytest.mark.parametrize(("name", "small"), CASES)
def test_an_experiment_runs_from_plan_to_table_and_figure(name, small, monkeypatch, black_tests, tmp_path):
    path = experiments.find()[name]
    lessons = f"labs.{path.parent.parent.name}.lessons."
    if name in ("memory_hierarchy", "blocked_product") and not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("COURSE_SLICE", str(small.images))
    for attribute, value in small.lessons.items():
        monkeypatch.setattr(lessons + attribute, value)
    # One worker that has TensorFlow already; tests/notebook/test_sweep.py has workers that are processes.
    monkeypatch.setattr(sweep, "_workers", lambda count: ThreadPoolExecutor(1))
    monkeypatch.setattr(sweep, "print_row", lambda row, done, total: None)
    caches = [pkgutil.resolve_name(lessons + function) for function in small.caches]
    main = runpy.run_path(str(path))["main"]
    assert main.__globals__.keys() >= small.constants.keys()
    main.__globals__.update(small.constants)
    try:
        for cache in caches:
            cache.cache_clear()
        main().write(tmp_path, name, seconds=1)
    finally:
        for cache in caches:
            cache.cache_clear()

    before = path.parent.parent / "recorded"
    made = {file.name for file in tmp_path.iterdir()}
    assert made <= {file.name for file in before.iterdir()}
    assert made >= {f"{name}.csv", f"{name}.png"} and all((tmp_path / file).stat().st_size > 50 for file in made)
    for file in (file for file in made if file.endswith(".csv")):
        table, earlier = (pd.read_csv(folder / file, comment="#") for folder in (tmp_path, before))
        # A short run has other numbers in its columns' names: "loss at 3".
        columns, earlier_columns = ({re.sub(r"[\d.]+", "#", name) for name in rows} for rows in (table, earlier))
        assert len(table) > 1 and columns == earlier_columns
        if "use" in table:
            results_alone_see_test_images(table)


def results_alone_see_test_images(table):
    """What chooses a setting was scored on other images. A network that is not finite counts as guessing."""
    if "part" in table:
        table = table[table["part"] != "ranks"]  # they read the images by themselves
    tuning = table[table["use"] == "tuning"]
    for column in table:
        if column.startswith("test"):
            assert tuning[column].isna().all() and table[column].notna().any()
        if column in ("test accuracy", "test"):
            assert set(table[column].dropna()) <= {0, 0.1, 1}
        if column in ("validation accuracy", "validation"):
            scores = table[column].dropna()
            assert len(scores) and ((scores > 0) & (scores < 1)).all()


def module(name):
    return runpy.run_path(str(experiments.find()[name]))


@pytest.mark.parametrize(
    ("name", "key", "arguments"), [("slow_link", "form", ("100mbit",)), ("send_less_seconds", "name", ())]
)
def test_the_slower_rank_decides_how_long_a_step_takes(name, key, arguments):
    link = module(name)
    ways = link["FORMS"] if key == "form" else link["horovod_wire"].WAYS
    seconds = {0: (0.1, 0.3), 1: (0.2, 0.2)}  # of rank 0 and of rank 1, in two steps
    step = {"computing": 0.01, "exchanging": 0.05, "bytes": 1_000_000}
    by_rank = [
        [[{**step, key: way, "step": seconds[rank][number]} for number in range(2) for way in ways],
         [1_100_000] * len(ways)]
        for rank in range(2)
    ]  # fmt: skip
    rows = pd.DataFrame(link["rows_of"]("100 Mbit/s", *arguments, by_rank))
    assert list(rows) == list(recorded(name)) and len(rows) == len(ways)
    assert set(rows["seconds per step"]) == {0.25} and set(rows["bytes of the card"]) == {1_100_000}
    if name == "slow_link":
        assert list(rows["bits"]) == [32, 16, 8, 4] and rows["cable alone"][0] == 0.08
        assert link["rows_of"]("no limit", None, by_rank)[0]["cable alone"] == 0
    else:
        assert set(rows["compressing"]) == {0.14}
    assert "100 Mbit/s" in figures.said(link["draw"](rows, "here"))


def test_the_wire_s_rows_are_medians_by_period():
    wire = module("meetings_wire")
    blocks = [
        {"period": period, "seconds": seconds / period, "computing": 1e-4}
        for period in wire["PERIODS"] for seconds in (1e-3, 2e-3, 4e-3)
    ]  # fmt: skip
    rows = pd.DataFrame(wire["rows_of"]("1 Gbit/s", blocks))
    assert rows.set_index("period")["seconds"][4] == pytest.approx(5e-4)
    assert list(rows) == list(recorded("meetings_wire"))
    assert "1 Gbit/s" in figures.said(wire["draw"](rows, "here"))


def test_the_table_of_the_bubble_is_made_of_what_both_ranks_measured():
    bubble = module("bubble")
    bubble["rows"].__globals__.update(MICRO=(1, 2))

    def measured(make, micro, stage):
        run = schedules.run(make(2, micro), 1, 2)
        return [[(s.kind, s.micro, 100 + s.start, 100 + s.end) for s in run.spans if s.stage == stage]] * 4

    def rank(stage):
        spans = {(name, m): measured(make, m, stage) for name, make in bubble["SCHEDULES"].items() for m in (1, 2)}
        messages = {10: {"socket": 0.001, "all-to-all": 0.002}}
        return {**spans, "serial": [9.0, 9.0, 3.0, 3.0] if stage == 0 else [], "messages": messages}

    table = bubble["rows"](rank(0), rank(1)).set_index(["what", "micro"])
    assert table.loc[("serial", 1), "seconds"] == 3
    assert table.loc[("message by socket", 10), "seconds"] == 0.001
    for name in bubble["SCHEDULES"]:
        assert table.loc[(name, 2), ["seconds", "computing"]].tolist() == pytest.approx([9, 12])
        for column in ("idle", "predicted", "from its tasks"):
            assert np.allclose(table.loc[[(name, 1), (name, 2)], column], [1 / 2, 1 / 3])


def test_trainings_end_at_a_target_or_at_the_limit_and_go_away_from_the_start(monkeypatch):
    from labs.lab3_large_batch.lessons import short_runs

    monkeypatch.setenv("COURSE_SLICE", "1279")
    target, sharpness = module("steps_to_target"), module("sharpness")
    tried = target["train_to_target"](short_runs.fashion(), batch=64, rate=0.05, seed=1, max_updates=30)
    assert tried["updates"] is None and tried["accuracy"] < target["TARGET"]
    walked = sharpness["walk"]("quick", batch=32, rate=0.02, seed=1)
    assert walked["updates"] == list(sharpness["UPDATES"]) and 0 < walked["distance"][0] < walked["distance"][-1]


def test_a_rate_with_momentum_takes_as_long_steps_as_without(monkeypatch):
    """In 6b momenta are compared at the same rate / (1 − β)."""
    from labs.lab6_beyond_synchronous.lessons import figures_6b, local_sgd

    rates = []

    class Stopped(Exception):
        pass

    def training(meet, rate, *arguments, **options):
        rates.append(rate)
        raise Stopped

    monkeypatch.setattr(local_sgd, "Training", training)
    for momentum in (0.0, 0.9):
        setting = dict(zip(figures_6b.BY, figures_6b.setting("local", 16, momentum=momentum)))
        with pytest.raises(Stopped):
            module("fewer_meetings")["run"](**setting, rate=0.4, seed=1, use="tuning")
    assert rates == pytest.approx([0.4, 0.04])
