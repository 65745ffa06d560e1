"""The experiments of notebook 7c, small, from their plans to their figures."""

from __future__ import annotations

import runpy
import shutil

import pandas as pd
import pytest

from course_lib.notebook import experiments
from labs.lab7_splitting_the_model.lessons import machine

TINY = {
    "layer_energy": {"WIDTH": 16, "BATCHES": (1, 4)},
    "memory_hierarchy": {"SIZES": [8_192, 65_536], "TURNS": 2},
    "blocked_product": {"SIZE": 64, "TURNS": 2, "BLOCKS": [(-1, 64), (0, 64), (1, 64), (8, 64)]},
}


@pytest.mark.parametrize("name", TINY)
def test_an_experiment_runs_from_plan_to_figure(name, monkeypatch, tmp_path):
    if name != "layer_energy" and not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(machine, "_flags", lambda: {"pni"})
    main = runpy.run_path(str(experiments.find()[name]))["main"]
    assert main.__globals__.keys() >= TINY[name].keys()
    main.__globals__.update(TINY[name])
    main(tmp_path)
    recorded = experiments.find()[name].parent.parent / "recorded"
    made, kept = (pd.read_csv(folder / f"{name}.csv", comment="#") for folder in (tmp_path, recorded))
    assert list(made) == list(kept) and len(made) > 1
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
