"""The experiments of notebook 6b on a slice of the data, from their plans to their figures."""

from __future__ import annotations

import runpy

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook import experiments
from labs.lab6_beyond_synchronous.lessons import figures_6b, local_sgd, small_network

RECORDED = experiments.find()["fewer_meetings"].parent.parent / "recorded"


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    small_network.fashion.cache_clear()
    yield runpy.run_path(str(experiments.find()["fewer_meetings"]))
    small_network.fashion.cache_clear()


@pytest.fixture
def wire():
    return runpy.run_path(str(experiments.find()["meetings_wire"]))


def test_a_training_sees_validation_images_only(fewer, monkeypatch):
    seen, accuracy = [], local_sgd.Training.accuracy
    monkeypatch.setattr(
        local_sgd.Training, "accuracy", lambda self, part: seen.append(part) or accuracy(self, part)
    )  # fmt: skip
    fewer["run"].__globals__["LIMITS"] = {4: 20}
    setting = dict(zip(figures_6b.BY, figures_6b.setting("ring", ranks=4)))
    row = fewer["run"](**setting, rate=0.05, seed=1, use="result")
    assert len(seen) == 2 and all(part is small_network.fashion().validation for part in seen)
    assert np.isnan(row["updates"] or np.nan) and row["score"] == row["validation accuracy"] > 0.1


def test_momenta_try_the_same_distances(fewer, monkeypatch):
    plain, heavy = (
        dict(zip(figures_6b.BY, figures_6b.setting("local", 16, momentum=momentum))) for momentum in (0.0, 0.9)
    )
    assert {**plain, "momentum": 0.9} == heavy
    rates = []

    class Noted(local_sgd.Training):
        def __init__(self, meet, rate, *arguments, **options):
            rates.append(rate)
            super().__init__(meet, rate, *arguments, **options)

    monkeypatch.setattr(local_sgd, "Training", Noted)
    fewer["run"].__globals__["LIMITS"] = {16: 1}
    for setting in (plain, heavy):
        fewer["run"](**setting, rate=0.4, seed=1, use="tuning")
    assert rates == pytest.approx([0.4, 0.04])


def test_the_wire_s_rows_have_the_recorded_columns_and_make_a_figure(wire):
    blocks = [
        {"period": period, "seconds": seconds / period, "computing": 1e-4}
        for period in wire["PERIODS"] for seconds in (1e-3, 2e-3, 4e-3)
    ]  # fmt: skip
    rows = pd.DataFrame(wire["rows_of"]("1 Gbit/s", blocks))
    assert rows.set_index("period")["seconds"][4] == pytest.approx(5e-4)
    assert list(rows) == list(pd.read_csv(RECORDED / "meetings_wire.csv", comment="#"))
    (axis,) = wire["draw"](rows, "here").axes
    assert "1 Gbit/s" in {text.get_text() for text in axis.texts}
