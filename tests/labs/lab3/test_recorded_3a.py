"""What notebook 3a says of its recorded runs is what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import statistics
from labs.lab3_large_batch.lessons import critical_batch, figures_3a, matched
from tests.labs.notebooks import master, plus_minus, recorded, text

TEXT = text("3a")
GAP = recorded("generalisation_gap").query("use == 'result'")


def test_the_gap_at_equal_updates():
    accuracy = 100 * GAP.pivot(index="seed", columns="method", values="test accuracy")
    loss = GAP.pivot(index="seed", columns="method", values="test loss")
    long, short = "B = 1,280, 80 epochs", "B = 64, 4 epochs"
    assert f"is not behind, {plus_minus(statistics.paired(accuracy[long], accuracy[short]))} points ahead" in TEXT
    assert f"and {plus_minus(statistics.paired(loss[long], loss[short]), 3)} higher in test loss" in TEXT


def test_best_against_best():
    table = recorded("equal_loss")
    ours = GAP[GAP["method"] == "B = 1,280, 80 epochs"].set_index("seed")
    means = table.groupby("epochs")[["test accuracy"]].mean()
    assert (
        means["test accuracy"].idxmax() == 12
        and means["test accuracy"].max() > GAP["test accuracy"][GAP["batch"] == 64].groupby(GAP["method"]).mean().max()
    )
    assert (table["rate"] == 0.1).all()
    best = table[table["epochs"] == 12].set_index("seed")
    behind = statistics.paired(100 * best["test accuracy"], 100 * ours["test accuracy"])
    means = f"{100 * best['test accuracy'].mean():.1f} %, the large batch {100 * ours['test accuracy'].mean():.1f}"
    assert f"With 12 epochs it has {means}: {plus_minus(behind)} points less" in TEXT
    higher = statistics.paired(ours["test loss"], best["test loss"])
    assert f"test loss is also higher, by {plus_minus(higher, 3)}" in TEXT
    other = GAP[GAP["method"] == "B = 64, 20 epochs"].set_index("seed")
    assert (other["rate"] == 0.2).all()
    behind = statistics.paired(100 * other["test accuracy"], 100 * ours["test accuracy"])
    lower = statistics.paired(other["test loss"], ours["test loss"])
    assert f"the large batch is {plus_minus(behind)} points behind in accuracy" in TEXT
    assert f"is *lower*, by {plus_minus(lower, 3)}, in each of five seeds" in TEXT
    assert (other["test loss"] > ours["test loss"]).all()
    fits = [f"{runs['training loss'].mean():.2f}" for runs in (other, ours)]
    assert "training loss {} against {}".format(*fits) in TEXT


def test_the_gap_at_equal_training_loss():
    large = GAP[(GAP["batch"] == 1280) & (GAP["method"] != "naive")]
    apart = matched.differences(large, recorded("equal_loss"), "training loss", ["test loss", "test accuracy"])
    apart["points"] = 100 * apart["test accuracy"]
    found = dict(list(apart.groupby("epochs")))
    assert {epochs: len(rows) for epochs, rows in found.items()} == {20: 4, 80: 5} and (found[80]["points"] < 0).all()
    assert (found[80]["test loss"] > 0).all()
    early, early_loss = (statistics.mean(found[20][name]) for name in ("points", "test loss"))
    late, late_loss = (statistics.mean(found[80][name]) for name in ("points", "test loss"))
    assert (
        f"differ by {plus_minus(early)} points at the same training loss, "
        f"and by {plus_minus(early_loss, 3)} in test loss" in TEXT
    )
    behind = plus_minus((-late[0], late[1]))
    assert f"is {behind} points behind, and its test loss is {plus_minus(late_loss, 3)} higher" in TEXT


def test_the_same_rate_for_both():
    table = recorded("adversarial")
    same = table[(table["batch"] == 1280) & (table["rate"] == 0.1) & (table["epochs"] == 80)]
    apart = matched.differences(same, table[table["batch"] == 64], "training loss", ["test accuracy"])
    mean, half = statistics.mean(100 * apart["test accuracy"])
    assert f"the large batch is {plus_minus((-mean, half))} points behind at the same training loss" in TEXT
    assert len(apart) == table["seed"].nunique() and mean + half < 0


def test_the_stretches_of_the_curve_and_what_ranks_win():
    table = recorded("steps_to_target")
    rows = table[table["use"] == "result"]
    median = rows.groupby("batch")["updates"].median()
    assert f"four times the batch, {median[16]:.0f} and {median[64]:.0f} updates" in TEXT
    assert f"the updates fall from {median[64]:.0f} to {median[512]:.0f}, by a factor of three for eight" in TEXT
    assert f"needs about {median[4096]:.0f} updates and {median[4096] * 4.096:.0f} thousand" in TEXT
    assert (median.loc[16:64] * [16, 32, 64]).between(8_000, 10_000).all()
    apart = rows.groupby("batch")["updates"].max() / rows.groupby("batch")["updates"].min()
    assert f"differ by a factor of {apart.min():.1f} to {apart.max():.1f}:" in TEXT
    floor, bend = critical_batch.fit(median.index, median)
    assert f"the floor at {floor:.0f} updates and the bend at {bend:.0f} examples" in TEXT
    assert f"the updates run from {rows['updates'].min():.0f} to {rows['updates'].max():.0f}" in TEXT
    assert f"in place of {len(table)} runs" in TEXT
    won = [median[64] / median[4096], median[64] / median[512], median[16] / median[128]]
    assert "are {:.1f} times as fast as one; 8 ranks are already {:.1f} times".format(*won) in TEXT
    assert f"8 ranks reach {won[2]:.1f} times the speed of one" in TEXT


def test_the_noise_scale_on_the_way():
    found = figures_3a.noise_scales(recorded("steps_to_target_noise"))
    middle = found.groupby(["batch", "part"])["noise scale"].median()
    assert middle[:, 0.0].round(-1).eq(30).all() and f"{middle[256, 0.0]:.0f} is too small by seven times" in TEXT
    assert "160 in the runs with batches of 16, 260 with 256, and 1,400 with 4,096" in TEXT
    assert [round(middle[size, 1.0], -1) for size in (16, 256)] == [160, 260]
    assert round(middle[4096, 1.0], -2) == 1400
    growth = middle[:, 1.0] / middle[:, 0.0]
    assert growth.between(5, 50).all()
    assert "medians are {:.0f} to {:.0f} with batches of 16.".format(*middle[16].loc[0.2:].agg(["min", "max"])) in TEXT
    later = middle[256].loc[0.2:]
    assert sorted(later.between(230, 260)) == [False, True, True, True] and f"{later.max():.0f} at the fourth" in TEXT


def test_longer_is_not_always_better():
    means = GAP.groupby("method")[["training accuracy", "test loss", "test accuracy"]].mean()
    long, short = means.loc["B = 64, 80 epochs"], means.loc["B = 64, 4 epochs"]
    assert long["training accuracy"] == 1 and long["test accuracy"] < means.loc["B = 64, 20 epochs", "test accuracy"]
    assert f"the test loss is {long['test loss'] / short['test loss']:.1f} times that after 4 epochs" in TEXT


def test_the_bends_by_target():
    table = recorded("steps_to_target")
    rows = table[table["use"] == "result"]
    bends = []
    for column in ("to 75 %", "to 80 %", "updates"):
        median = rows.groupby("batch")[column].median()
        bends.append(f"{critical_batch.fit(median.index, median)[1]:.0f}")
    assert f"{', '.join(bends)} examples for 75, 80 and 82 %" in TEXT

    (cell,) = [cell.source for cell in master("3a").cells if "def bends(" in cell.source]
    names = {"np": np, "pd": pd, "results": rows, "floor_and_bend": critical_batch.fit}
    exec(cell.replace("\nby_target()", ""), names)
    _, second, third = names["by_target"]()["bend over that for 75 % (95 %)"]
    assert f"The bend for 82 % is {third} times that for 75 %" in TEXT
    assert float(second.split()[0]) <= 1 < float(third.split()[0])
