"""What notebook 3a says of its recorded runs is what the tables say."""

from __future__ import annotations

from course_lib import statistics
from labs.lab3_large_batch.lessons import critical_batch, figures_3a, matched
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3a")
GAP = recorded("generalisation_gap").query("use == 'result'")


def test_the_gap_at_equal_updates_and_best_against_best():
    accuracy = 100 * GAP.pivot(index="seed", columns="method", values="test accuracy")
    loss = GAP.pivot(index="seed", columns="method", values="test loss")
    long, short, best = "B = 1,280, 80 epochs", "B = 64, 4 epochs", "B = 64, 20 epochs"
    assert f"is not behind, {plus_minus(statistics.paired(accuracy[long], accuracy[short]))} points ahead" in TEXT
    assert f"and {plus_minus(statistics.paired(loss[long], loss[short]), 3)} higher in test loss" in TEXT
    behind = plus_minus(statistics.paired(accuracy[best], accuracy[long]))
    ours, theirs = accuracy[best].mean(), accuracy[long].mean()
    assert f"it has {ours:.1f} %: the large batch's {theirs:.1f} is {behind} points behind." in TEXT


def test_the_gap_at_equal_training_loss():
    large = GAP[(GAP["batch"] == 1280) & (GAP["method"] != "naive")]
    apart = matched.differences(large, recorded("equal_loss"), "training loss", ["test loss", "test accuracy"])
    apart["points"] = 100 * apart["test accuracy"]
    found = dict(list(apart.groupby("epochs")))
    assert {epochs: len(rows) for epochs, rows in found.items()} == {20: 4, 80: 5} and (found[80]["points"] < 0).all()
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
    assert f"Four times the batch, {median[16]:.0f} and {median[64]:.0f} updates" in TEXT
    assert f"the updates fall from {median[64]:.0f} to {median[512]:.0f}: by three" in TEXT
    assert f"needs about {median[4096]:.0f} updates and {median[4096] * 4.096:.0f} thousand" in TEXT
    assert (median.loc[16:64] * [16, 32, 64]).between(8_000, 10_000).all()
    apart = rows.groupby("batch")["updates"].max() / rows.groupby("batch")["updates"].min()
    assert f"differ by a factor of {apart.min():.1f} to {apart.max():.1f}." in TEXT
    floor, bend = critical_batch.fit(median.index, median)
    assert f"the floor at {floor:.0f} updates and the bend at {bend:.0f} examples" in TEXT
    assert f"the updates run from {rows['updates'].min():.0f} to {rows['updates'].max():.0f}" in TEXT
    assert f"in place of {len(table)} runs" in TEXT
    won = [median[64] / median[4096], median[64] / median[512], median[16] / median[128]]
    assert "are {:.1f} times as fast as one; 8 ranks are already {:.1f} times".format(*won) in TEXT
    assert f"8 ranks do {won[2]:.1f} times the speed of one" in TEXT


def test_the_noise_scale_on_the_way():
    found = figures_3a.noise_scales(recorded("steps_to_target_noise"))
    middle = found.groupby(["batch", "part"])["noise scale"].median()
    assert middle[:, 0.0].round(-1).eq(30).all() and f"{middle[256, 0.0]:.0f} is too small by seven times" in TEXT
    ends = f"{middle[16, 1.0]:.0f} along the runs with batches of 16, {middle[256, 1.0]:.0f}"
    assert "160 along the runs with batches of 16, 260 with 256, and 1,400 with 4,096" in TEXT
    assert [round(middle[size, 1.0], -1) for size in (16, 256)] == [160, 260], ends
    assert round(middle[4096, 1.0], -2) == 1400
    growth = middle[:, 1.0] / middle[:, 0.0]
    assert growth.between(5, 50).all()
    later = middle[256].loc[0.2:]
    assert sorted(later.between(230, 260)) == [False, True, True, True] and f"{later.max():.0f} at the fourth" in TEXT


def test_longer_is_not_always_better():
    means = GAP.groupby("method")[["training accuracy", "test loss", "test accuracy"]].mean()
    long, short = means.loc["B = 64, 80 epochs"], means.loc["B = 64, 4 epochs"]
    assert long["training accuracy"] == 1 and long["test accuracy"] < means.loc["B = 64, 20 epochs", "test accuracy"]
    assert f"its test loss is {long['test loss'] / short['test loss']:.1f} times that after 4 epochs" in TEXT


def test_the_bends_by_target():
    table = recorded("steps_to_target")
    rows = table[table["use"] == "result"]
    bends = []
    for column in ("to 75 %", "to 80 %", "updates"):
        median = rows.groupby("batch")[column].median()
        bends.append(f"{critical_batch.fit(median.index, median)[1]:.0f}")
    assert f"{', '.join(bends)} examples for 75, 80 and 82 %" in TEXT
