"""The numbers that lab 8's notebooks tell of their recordings stand in the tables."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from course_lib.system.paths import ROOT

LAB = ROOT / "labs" / "lab8_honest_benchmarks"
TEXT = re.sub(r"\s+# ", " ", (LAB / "8a_measure.py").read_text())


@pytest.fixture(scope="module")
def alone():
    runs = pd.read_csv(LAB / "recorded" / "spread.csv", comment="#")
    return runs[runs["beside"] == "no"]


def test_steps_and_times_of_the_runs(alone):
    step, time = alone["step_ms"], alone["to_target_s"]
    assert f"median step takes {step.min():.1f} to {step.max():.1f} ms" in TEXT
    assert f"the time to the target is {time.min():.1f} to {time.max():.1f} s" in TEXT
    assert len(alone) == 20 and time.isna().sum() == 1 and "one seed of twenty never got there" in TEXT


def test_the_first_look_and_the_curve(alone):
    reached = alone.dropna(subset=["to_target_s", "first_seldom_s"])
    means = [reached[name].mean() for name in ("first_often_s", "to_target_s", "first_seldom_s")]
    assert "alone {:.2f}, {:.2f} and {:.2f} s on average".format(*means) in TEXT
    (failed,) = alone[alone["to_target_s"].isna()].itertuples()
    assert f"Seed {failed.seed} shows" in TEXT and f"did, after {failed.first_often_s:.1f} s" in TEXT
