"""The experiments of notebook 7b on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from course_lib.notebook import experiments
from course_lib.parallel import schedules
from labs.lab7_splitting_the_model.lessons import stale_pipeline


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "512")
    stale_pipeline.fashion.cache_clear()
    yield
    stale_pipeline.fashion.cache_clear()


def load(name):
    return runpy.run_path(str(experiments.find()[name]))


@pytest.mark.parametrize("use", ["tuning", "result"])
def test_test_images_are_seen_by_results_only(use, monkeypatch):
    seen, accuracy = [], stale_pipeline.accuracy
    monkeypatch.setattr(stale_pipeline, "accuracy", lambda layers, part: seen.append(part) or accuracy(layers, part))
    row = load("stale_pipeline")["run"]("stashed", 4, 0.05, 1, use)
    problem = stale_pipeline.fashion()
    assert len(seen) == 1 and seen[0] is (problem.test if use == "result" else problem.validation)
    assert list(row) == ["test accuracy" if use == "result" else "validation accuracy"]


def test_the_table_of_the_bubble_is_made_of_what_both_ranks_measured():
    experiment = load("bubble")
    rows = experiment["rows"]
    rows.__globals__.update(MICRO=(1, 2))

    def measured(make, micro, stage):
        run = schedules.run(make(2, micro), 1, 2)
        spans = [(s.kind, s.micro, 100 + s.start, 100 + s.end) for s in run.spans if s.stage == stage]
        return [spans] * 4

    def rank(stage):
        found = {
            (name, micro): measured(make, micro, stage)
            for name, make in experiment["SCHEDULES"].items()
            for micro in (1, 2)
        }
        messages = {10: {"socket": 0.001, "all-to-all": 0.002}}
        return {**found, "serial": [9.0, 9.0, 3.0, 3.0] if stage == 0 else [], "messages": messages}

    table = rows(rank(0), rank(1)).set_index(["what", "micro"])
    assert table.loc[("serial", 1), "seconds"] == 3
    assert table.loc[("message by socket", 10), "seconds"] == 0.001
    for name in experiment["SCHEDULES"]:
        assert table.loc[(name, 2), "seconds"] == pytest.approx(9)
        assert table.loc[(name, 2), "computing"] == pytest.approx(12)
        for column in ("idle", "predicted", "from its tasks"):
            assert np.allclose(table.loc[[(name, 1), (name, 2)], column], [1 / 2, 1 / 3])
