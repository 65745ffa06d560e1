"""The numbers that notebook 4c tells of systems that the model has not seen stand in the recorded table."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from course_lib.cost import systems
from course_lib.system.paths import ROOT

LAB = ROOT / "labs" / "lab4_communication"
TEXT = re.sub(r"\s+#\s+", " ", (LAB / "4c_predict_the_supercomputer.py").read_text())


@pytest.fixture(scope="module")
def unseen():
    return pd.read_csv(LAB / "recorded" / "leave_one_out.csv", comment="#")


def test_errors_in_all(unseen):
    errors = unseen["error"].abs()
    assert f"Here are {len(unseen)} published efficiencies of six systems" in TEXT and unseen["system"].nunique() == 6
    assert f"Half of the errors are below {errors.median():.1f} points" in TEXT
    assert f"the largest is {errors.max():.0f}." in TEXT


def test_errors_of_some(unseen):
    one = unseen[unseen["system"] == "DLPerf"]
    assert f"published {one['published'].min():.0f} to {one['published'].max():.0f} %" in TEXT
    assert {f"{value:.0f}" for value in one["predicted"]} == {"92"} and "it says 92 for all" in TEXT
    most = unseen[unseen["system"] == "TensorFlow on a DGX-1"]["error"].max()
    assert f"is up to {most:.0f} points too good" in TEXT
    least = unseen[unseen["system"] == "Jia et al. 2018"]["error"].min()
    assert f"expects up to {-least:.0f} points less" in TEXT
    bare = unseen[unseen["network"] == "VGG-16"]["error of the bare fit"].min()
    assert f"would come out {-bare:.0f} points too low" in TEXT


def test_errors_without_what_was_chosen_later(unseen):
    errors = unseen["error with one share"].abs()
    assert f"half of the errors are below {errors.median():.1f} points and the largest is {errors.max():.0f}." in TEXT


def test_latencies_at_an_end_of_those_tried(unseen):
    at_an_end = unseen[unseen["latency"].isin([min(systems.LATENCIES), max(systems.LATENCIES)])]
    assert at_an_end["system"].nunique() == 2 and "Two of the chosen latencies" in TEXT


def test_the_table_is_that_of_the_lines(unseen):
    published = [round(100 * line.efficiency, 1) for line in systems.LINES]
    assert list(unseen["published"]) == published
    assert list(unseen["network"]) == [line.network for line in systems.LINES]
