"""The numbers that notebook 5d tells stand in the recorded tables."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from course_lib.notebook import sweep
from course_lib.system.paths import ROOT
from labs.lab5_precision_and_memory.lessons import figures_5d

LAB = ROOT / "labs" / "lab5_precision_and_memory"
TEXT = " ".join((LAB / "5d_sparsity.py").read_text(encoding="utf-8").replace("\n# ", "\n").split())
WAYS = ("not retrained", "at once", "gradual", "rows", "filters")
DENSITIES = (0.5, 0.2, 0.1, 0.05, 0.02)


def recorded(name):
    return pd.read_csv(LAB / "recorded" / f"{name}.csv", comment="#")


@pytest.fixture(scope="module")
def pruned():
    rows = recorded("pruning").query("use == 'result'").sort_values("seed")
    return {key: part["test accuracy"].to_numpy() for key, part in rows.groupby(["way", "density"])}


@pytest.fixture(scope="module")
def networks():
    rows = recorded("recurrent").query("use == 'result'")
    return {name: part["test accuracy"].to_numpy() for name, part in rows.groupby("network")}


def told(interval, digits=1):
    """Hundredths."""
    mean, half = (100 * value for value in interval)
    return f"{abs(mean):.{digits}f} ± {half:.{digits}f}"


@pytest.mark.parametrize("density", DENSITIES)
def test_the_table_of_losses(pruned, density):
    losses = [statistics.paired(pruned["dense", 1.0], pruned[way, density]) for way in WAYS]
    assert all(mean > 0 for mean, _ in losses)
    assert f"| {str(density)[1:]} | {' | '.join(map(told, losses))} |" in TEXT


def test_what_is_said_of_pruning(pruned):
    dense, chance = pruned["dense", 1.0], statistics.paired(pruned["at once", 0.1], pruned["random", 0.1])
    assert f"can go for {told(statistics.paired(dense, pruned['gradual', 0.1]))} hundredths" in TEXT
    assert f"they cost {told(statistics.paired(dense, pruned['not retrained', 0.1]))}" in TEXT
    gains = {
        density: statistics.paired(pruned["gradual", density], pruned["at once", density]) for density in DENSITIES
    }
    assert f"by {told(gains[0.1])}, at a fiftieth by {told(gains[0.02])}" in TEXT
    assert all(gains[density][0] > gains[density][1] for density in (0.1, 0.02))
    assert f"random mask costs {told(statistics.paired(dense, pruned['random', 0.1]))} at a tenth" in TEXT
    assert f"ahead of it by {told(chance)}, which may be chance" in TEXT and 0 < chance[0] < chance[1]


def test_what_is_said_of_grains(pruned):
    rows = {density: statistics.paired(pruned["at once", density], pruned["rows", density]) for density in DENSITIES}
    assert [density for density, (mean, half) in rows.items() if abs(mean) > half] == [0.1]
    assert f"the difference, {told(rows[0.1], 2)} hundredths" in TEXT
    filters = [statistics.paired(pruned["at once", density], pruned["filters", density]) for density in (0.2, 0.1)]
    assert f"{told(filters[0])} hundredths at a fifth, {told(filters[1])} at a tenth" in TEXT
    small = figures_5d.matching_bytes(recorded("pruning"), "filters", 0.2) / 1_000
    assert f"as well with {small:.1f} kilobytes" in TEXT
    assert f"as filters with {figures_5d.kept_bytes('filters', 0.2) / 1_000:.1f}" in TEXT
    by_grain = [figures_5d.kept_bytes(way, 0.05) / 1_000 for way in ("rows", "at once")]
    assert "{:.1f} instead of {:.1f} kilobytes at a density of .05".format(*by_grain) in TEXT


def test_what_is_said_of_the_recurrent_networks(networks):
    small, large = networks["32 units, dense"], networks["128 units, dense"]
    pruned, tenth = networks["128 units, pruned to 5,888"], networks["32 units, pruned to 10 %"]
    assert f"is better by {told(statistics.unpaired(large, small))} hundredths" in TEXT
    assert f"loses {told(statistics.unpaired(large, pruned))} of that" in TEXT
    none = statistics.unpaired(pruned, small)
    assert f"no difference, {told(none)}" in TEXT and abs(none[0]) < none[1]
    assert f"loses {100 * (1 - tenth.mean() / small.mean()):.1f} % of its accuracy" in TEXT


@pytest.mark.parametrize(("name", "by"), [("pruning", "way"), ("recurrent", "network")])
def test_every_way_tried_the_same_rates_and_chose_one_inside_their_range(name, by):
    tuning = recorded(name).query("use == 'tuning'")
    rates = np.sort(tuning["rate"].unique())
    assert {tuple(sorted(part["rate"])) for _, part in tuning.groupby(by)} == {tuple(rates)}
    chosen = sweep.best(tuning, [by], "rate", "validation accuracy").set_index(by)["rate"]
    assert chosen.between(rates[0], rates[-1], inclusive="neither").all()
    results = recorded(name).query("use == 'result' and rate > 0")
    assert (results["rate"] == results[by].map(chosen)).all()
    assert results.groupby([column for column in (by, "density") if column in results])["seed"].nunique().eq(3).all()


def test_the_stated_minutes_are_those_of_the_recording():
    for name in ("pruning", "recurrent"):
        seconds = int(re.search(r"# seconds: (\d+)", (LAB / "recorded" / f"{name}.csv").read_text())[1])
        minutes = int(re.search(rf"course reproduce {name}`.*?in about (\d+) minutes", TEXT)[1])
        assert abs(minutes - seconds / 60) < 1.1
