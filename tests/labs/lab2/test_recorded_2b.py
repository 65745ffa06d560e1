"""The numbers that notebook 2b tells of the omissions stand in the recorded table."""

from __future__ import annotations

import re

import pytest

from course_lib import statistics
from tests.labs.notebooks import recorded, text

TEXT = text("2b")
UNHARMED = ("nothing left out", "2 one GPU each", "7 one rank saves", "8 average metrics")


@pytest.fixture(scope="module")
def runs():
    table = recorded("omissions")
    table["accuracy"] = 100 * table[["accuracy of rank 0", "accuracy of rank 1"]].mean(axis=1)
    return table


def test_the_runs_whose_training_is_the_same(runs):
    same = runs[runs["left out"].isin(UNHARMED)]["accuracy"]
    assert len(same) == 40
    assert f"{same.mean():.1f} % on average, with a standard deviation of {same.std():.1f} points" in TEXT


def test_the_table_of_differences(runs):
    same = runs[runs["left out"].isin(UNHARMED)]["accuracy"]
    rows = re.findall(r"\| (\d [a-z ]+) \| (\S+) ± (\S+) \| (may be chance|worse|better)", TEXT)
    assert len(rows) == 4
    for name, difference, half, verdict in rows:
        expected = statistics.unpaired(runs[runs["left out"] == name]["accuracy"], same)
        assert (difference, half) == (f"{expected[0]:+.1f}".replace("-", "−"), f"{expected[1]:.1f}"), name
        chance = abs(expected[0]) < expected[1]
        assert verdict == ("may be chance" if chance else "better" if expected[0] > 0 else "worse"), name


def test_which_omissions_are_seen_where(runs):
    outcomes = runs.groupby("left out")["outcome"].unique().map(list)
    assert outcomes["6 equal batches"] == ["hangs"] and outcomes["1 initialise"] == ["stops"]
    differing = set(runs.loc[runs["weights differ by"] > 0, "left out"])
    assert differing == {"4 average gradients", "5 same first weights"}


def test_how_often_the_ranks_report_different_numbers(runs):
    metrics = runs[runs["left out"] == "8 average metrics"]
    different = sum(metrics["accuracy of rank 0"] != metrics["accuracy of rank 1"])
    assert f"different numbers for one and the same network in {different} of {len(metrics)} runs" in TEXT


def test_the_runs_without_averaged_metrics_shift_the_reference_little(runs):
    same = runs[runs["left out"].isin(UNHARMED)]
    apart = same["left out"] == "8 average metrics"
    those, others = same[apart]["accuracy"], same[~apart]["accuracy"]
    mean, half = statistics.unpaired(those, others)
    assert (
        f"are {those.mean():.1f} % on average, the other thirty {others.mean():.1f} %: a difference of −{-mean:.1f} ± "
        f"{half:.1f}." in TEXT
    )
    assert f"would be higher by {others.mean() - same['accuracy'].mean():.1f}, each difference lower by 0.2" in TEXT
    for name in ("3 scale the rate", "4 average gradients", "5 same first weights", "6 share out the data"):
        omitted = runs[runs["left out"] == name]["accuracy"]
        with_all, without = (statistics.unpaired(omitted, reference) for reference in (same["accuracy"], others))
        assert abs(without[0]) > without[1] and with_all[0] * without[0] > 0
