"""The numbers that notebook 6b tells stand in the recorded tables."""

from __future__ import annotations

import pandas as pd
import pytest

from course_lib import statistics
from course_lib.notebook import sweep
from course_lib.system.paths import ROOT
from labs.lab6_beyond_synchronous.lessons import figures_6b

LAB = ROOT / "labs" / "lab6_beyond_synchronous"
TEXT = " ".join((LAB / "6b_fewer_meetings.py").read_text(encoding="utf-8").replace("\n# ", "\n").split())


@pytest.fixture(scope="module")
def wire():
    return pd.read_csv(LAB / "recorded" / "meetings_wire.csv", comment="#").set_index(["link", "period"])["seconds"]


def test_the_wire(wire):
    def ms(link, period):
        return f"{1e3 * wire[link, period]:.2f} ms"

    assert f"takes {ms('100 Mbit/s', 1)} with H = 1 and {ms('100 Mbit/s', 64)} with H = 64" in TEXT
    assert f"at 1 Gbit/s {ms('1 Gbit/s', 1)} and {ms('1 Gbit/s', 64)}" in TEXT
    meeting = {link: wire[link, 1] - wire[link, 64] for link in ("1 Gbit/s", "100 Mbit/s")}
    assert 1 < meeting["100 Mbit/s"] / meeting["1 Gbit/s"] < 5


@pytest.fixture(scope="module")
def runs():
    return pd.read_csv(LAB / "recorded" / "fewer_meetings.csv", comment="#")


@pytest.fixture(scope="module")
def found(runs):
    return figures_6b.summary(runs).set_index(figures_6b.BY)


def test_the_plan_is_told_as_it_was(runs):
    tuning, results = runs[runs["use"] == "tuning"], runs[runs["use"] == "result"]
    assert set(tuning.groupby(figures_6b.BY)["rate"].nunique()) == {8} and "out of the same eight" in TEXT
    assert set(results.groupby(figures_6b.BY)["seed"].nunique()) == {5} and 101 not in set(results["seed"])
    best = sweep.best(tuning, figures_6b.BY, "rate", "score").set_index(figures_6b.BY)["rate"]
    inside = (best > tuning["rate"].min()) & (best < tuning["rate"].max())
    assert list(best[~inside].index) == [("elastic, momentum", 16, False)]
    assert best["elastic, momentum", 16, False] == tuning["rate"].min() and "the smallest of the eight" in TEXT


@pytest.mark.parametrize("period", [1, 4, 16, 64])
def test_the_table(period, runs, found):
    row = found.loc[("local", period, False)]
    wire = pd.read_csv(LAB / "recorded" / "meetings_wire.csv", comment="#")
    seconds = figures_6b.seconds_to_target(runs, wire).loc[period]
    cells = f"{row['mean']:.0f} ± {row['half']:.0f} | {seconds['1 Gbit/s']:.2f} s | {seconds['100 Mbit/s']:.2f} s"
    assert f"| {period} | {cells} |" in TEXT


def test_the_sentences(runs, found):
    reached = found["reached"]
    assert [reached["local", period, True] for period in (1, 4, 16, 64)] == [5, 2, 0, 0]
    ends = [f"{found.loc[('local', period, True), 'accuracy']:.2f}" for period in (16, 64)]
    assert f"at the end is {ends[0]} and {ends[1]}" in TEXT
    told = [
        f"{found.loc[(way, 1, False), 'mean']:.0f} ± {found.loc[(way, 1, False), 'half']:.0f}"
        for way in ("ring", "random pairs")
    ]
    assert f"{told[0]} updates in the ring and {told[1]} with random pairs" in TEXT
    assert (reached["random pairs", 1, True], reached["ring", 1, True]) == (3, 0)
    assert (reached["elastic", 16, False], reached["elastic", 16, True]) == (4, 0)
    assert reached["elastic, momentum", 16, False] == 5

    def updates(way, period):
        rows = runs[(runs["use"] == "result") & (runs["way"] == way) & (runs["period"] == period)]
        return rows[~rows["own classes"].astype(bool)].sort_values("seed")["updates"].to_numpy()

    more, half = statistics.paired(updates("local", 64), updates("local", 1))
    assert more > half
    for way in ("ring", "random pairs"):
        more, half = statistics.paired(updates(way, 1), updates("local", 1))
        assert abs(more) <= half
