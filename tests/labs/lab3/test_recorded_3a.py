"""What notebook 3a says of its recorded runs is what the tables say."""

from __future__ import annotations

import pandas as pd
import pytest

from course_lib import statistics
from course_lib.system.paths import ROOT
from labs.lab3_large_batch.lessons import critical_batch, figures_3a

FOLDER = ROOT / "labs/lab3_large_batch"
TEXT = " ".join((FOLDER / "3a_how_large.py").read_text(encoding="utf-8").replace("\n#", " ").split())


def read(name):
    return pd.read_csv(FOLDER / f"recorded/{name}.csv", comment="#")


def told(interval, digits=1):
    mean, half = interval
    return f"{mean:.{digits}f} ± {half:.{digits}f}".replace("-", "−")


@pytest.fixture(scope="module")
def gap():
    table = read("generalisation_gap")
    return table[table["use"] == "result"]


def test_the_gap_at_equal_updates_and_best_against_best(gap):
    accuracy = 100 * gap.pivot(index="seed", columns="method", values="test accuracy")
    loss = gap.pivot(index="seed", columns="method", values="test loss")
    long, short, best = "B = 1,280, 80 epochs", "B = 64, 4 epochs", "B = 64, 20 epochs"
    assert f"is not behind, {told(statistics.paired(accuracy[long], accuracy[short]))} points ahead" in TEXT
    assert f"and {told(statistics.paired(loss[long], loss[short]), 3)} higher in test loss" in TEXT
    behind = told(statistics.paired(accuracy[best], accuracy[long]))
    ours, theirs = accuracy[best].mean(), accuracy[long].mean()
    assert f"it has {ours:.1f} %: the large batch's {theirs:.1f} is {behind} points behind." in TEXT


def test_the_gap_at_equal_training_loss(gap):
    large = gap[(gap["batch"] == 1280) & (gap["method"] != "naive")]
    apart = figures_3a.at_equal_loss(read("equal_loss"), large)
    found = dict(list(apart.groupby("epochs")))
    assert {epochs: len(rows) for epochs, rows in found.items()} == {20: 4, 80: 5} and (found[80]["points"] < 0).all()
    early, early_loss = (statistics.mean(found[20][name]) for name in ("points", "test loss"))
    late, late_loss = (statistics.mean(found[80][name]) for name in ("points", "test loss"))
    assert (
        f"differ by {told(early)} points at the same training loss, and by {told(early_loss, 3)} in test loss" in TEXT
    )
    assert f"is {told((-late[0], late[1]))} points behind, and its test loss is {told(late_loss, 3)} higher" in TEXT


def test_the_same_rate_for_both_in_the_tuning_runs():
    table = read("generalisation_gap").query("use == 'tuning' and rate == 0.1").set_index("method")
    large, small = table.loc["B = 1,280, 80 epochs"], table.loc["B = 64, 20 epochs"]
    losses = f"{large['training loss']:.3f} and {small['training loss']:.3f} with 80 and 20 epochs"
    assert losses in TEXT
    assert f"{100 * large['validation accuracy']:.1f} and {100 * small['validation accuracy']:.1f} %." in TEXT


def test_the_bends_by_target():
    table = read("steps_to_target")
    rows = table[table["use"] == "result"]
    bends = []
    for column in ("to 75 %", "to 80 %", "updates"):
        median = rows.groupby("batch")[column].median()
        bends.append(f"{critical_batch.fit(median.index, median)[1]:.0f}")
    assert f"{', '.join(bends)} examples for 75, 80 and 82 %" in TEXT


def test_lambda_and_the_edge():
    table = read("sharpness")
    table["ratio"] = table["sharpness"] * table["rate"] / 3.8
    ratio = table.groupby(["batch", "epochs", "rate"])["ratio"].mean()
    assert ratio[64].between(0.15, 0.45).all()
    assert ratio[1280].loc[:, 0.2:].between(1.2, 2.6).all()
    small = table[table["batch"] == 64].groupby("rate")[["sharpness", "length of w"]].mean()
    assert f"gets {small['sharpness'][0.025] / small['sharpness'][0.1]:.1f} times flatter" in TEXT


def test_logarithm_and_power():
    table = read("sharpness_distance")
    found = {}
    for key, runs in table.groupby(["network", "rule", "batch"]):
        walk = runs.groupby("updates")["distance"].mean()
        for first in (4, 24):
            fits = figures_3a.fits(walk.index, walk, first)
            found[(*key, first)] = 100 * fits["by power"], 100 * fits["log"]
    quick = {key: fit for key, fit in found.items() if key[0] == "quick"}
    assert all(log > power for key, (power, log) in quick.items() if key[-1] == 4)
    same = [fit for key, fit in quick.items() if key[1] == "same" and key[-1] == 24]
    assert all(power > log for power, log in same)
    powers, logs = zip(*same)
    assert f"({min(powers):.1f} to {max(powers):.1f} % against {min(logs):.1f} to {max(logs):.1f} %)" in TEXT
    ahead = {key[2] for key, (power, log) in quick.items() if key[-1] == 24 and log > power}
    assert ahead == {512, 2048}
