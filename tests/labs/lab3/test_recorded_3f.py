"""What notebook 3f says of its recorded runs is what the tables say."""

from __future__ import annotations

import pytest

from labs.lab3_large_batch.lessons import figures_3f
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3f")


def test_lambda_and_the_edge():
    table = recorded("sharpness")
    table["ratio"] = table["sharpness"] * table["rate"] / 3.8
    ratio = table.groupby(["batch", "epochs", "rate"])["ratio"].mean()
    assert ratio[64].between(0.15, 0.45).all()
    assert "With B = 1,280 many λ are above the edge" in TEXT and (ratio[1280] > 1).sum() == 6
    small = table[table["batch"] == 64].groupby("rate")[["sharpness", "length of w"]].mean()
    assert f"gets {small['sharpness'][0.025] / small['sharpness'][0.1]:.1f} times flatter" in TEXT


def test_sharpness_by_rate_and_by_length():
    table = recorded("sharpness")
    median = table.groupby(["batch", "epochs", "rate"])[["sharpness", "length of w"]].median()
    small, large = median.loc[64, 4], median.loc[1280, 20]
    assert (large["sharpness"] > small["sharpness"]).all()
    loss = table.groupby(["batch", "epochs", "rate"])["training loss"].median()
    assert (loss[1_280, 20] > loss[64, 4]).all() and (loss[1_280, 4] > loss[64, 4]).all()
    means = table.groupby(["batch", "epochs", "rate"])[["sharpness", "test accuracy"]].mean()
    cautious, longer = means.loc[(64, 4, 0.025)], means.loc[(1_280, 20, 0.1)]
    assert 0.8 < cautious["sharpness"] / longer["sharpness"] < 1
    assert cautious["test accuracy"] > longer["test accuracy"]
    for _, rates in means.groupby(["batch", "epochs"]):
        assert rates["sharpness"].idxmin()[-1] == rates["test accuracy"].idxmin()[-1] == 0.4
    assert 3.5 < large["sharpness"][0.1] / small["sharpness"][0.1] < 4.5
    assert small["length of w"][0.4] / small["length of w"][0.025] > 3
    table["scaled"] = table["sharpness"] * table["length of w"] ** 2
    scaled = table[table["batch"] == 64].groupby("rate")["scaled"].median()
    assert scaled[0.1] / scaled[0.025] == pytest.approx(0.5, abs=0.05)
    assert scaled[0.4] / scaled[0.1] == pytest.approx(3, abs=0.2)
    lengths = f"{large['length of w'][0.1]:.0f} against {small['length of w'][0.1]:.0f}"
    assert f"large-batch weights are shorter ({lengths})" in TEXT


def test_the_barrier_between_two_small_batches_is_not_lower():
    losses = recorded("sharpness_between").pivot(index=["start", "to"], columns="alpha", values="training loss")
    highest = losses.loc[:, 0.125:0.875].max(axis=1)
    above = (highest - losses[[0.0, 1.0]].max(axis=1)).unstack()
    assert (above["small"] > above["large"]).all() and len(above) == 5
    assert f"in 5 of 5 starts, {above['small'].mean():.2f} against {above['large'].mean():.2f} on average" in TEXT
    beyond = ((losses[1.5] - losses[1.0]) - (losses[-0.5] - losses[0.0])).unstack()
    assert (beyond["large"] > 0).all()


def test_logarithm_and_power():
    table = recorded("sharpness_distance")
    found = {}
    for key, runs in table.groupby(["network", "rule", "batch"]):
        walk = runs.groupby("updates")["distance"].mean()
        for first in (4, 24):
            fits = figures_3f.fits(walk.index, walk, first)
            found[(*key, first)] = 100 * fits["by power"], 100 * fits["log"]
    quick = {key: fit for key, fit in found.items() if key[0] == "quick"}
    assert all(log > power for key, (power, log) in quick.items() if key[-1] == 4)
    same = [fit for key, fit in quick.items() if key[1] == "same" and key[-1] == 24]
    assert all(power > log for power, log in same)
    powers, logs = zip(*same)
    assert f"({min(powers):.1f} to {max(powers):.1f} % against {min(logs):.1f} to {max(logs):.1f} %)" in TEXT
    ahead = {key[2] for key, (power, log) in quick.items() if key[-1] == 24 and log > power}
    assert ahead == {512, 2048}
    last = table[table["updates"] == 256].groupby(["network", "rule", "batch"])["distance"].mean()
    assert last["quick", "same"].idxmax() == 32 and last["quick", "sqrt"].is_monotonic_increasing
    assert last["quick", "same", 2_048] / last["quick", "same", 512] == pytest.approx(1, abs=0.03)
    power, log = found["convex", "same", 2_048, 24]
    assert power > log


ADVERSARIAL = recorded("adversarial")


def behind(table, at, rate, epochs):
    """Points by which the large batch is behind with ε = 4: as the text has them, and whether that is sure."""
    rows = figures_3f.against_small(table, at).query("rate == @rate and epochs == @epochs and epsilon == 4")
    points, half = rows["points"].item(), rows["half"].item()
    return plus_minus((-points, half)), points + half < 0


def test_large_batches_are_fooled_more_often_at_equal_accuracy_and_at_equal_loss():
    runs = (0.1, 20), (0.1, 80), (0.025, 80)
    (short, same, own), sure = zip(*(behind(ADVERSARIAL, "test accuracy", *run) for run in runs))
    assert all(sure)
    assert f"the large batch is {short} points behind after 20 epochs, and after 80 epochs {same} points" in TEXT
    assert f"with the small batch's η, {own} with its own." in TEXT
    (short, same, own), sure = zip(*(behind(ADVERSARIAL, "training loss", *run) for run in runs))
    assert all(sure) and f"At equal *training loss* it is {short}, {same} and {own} points behind." in TEXT
    compared = [
        figures_3f.against_small(ADVERSARIAL, at).query("epochs == 20 and epsilon == 4")["seeds"].item()
        for at in ("test accuracy", "training loss")
    ]
    assert compared == [3, 4] and "three of five runs can be compared in accuracy, and four in loss" in TEXT


def test_training_longer_makes_networks_easier_to_fool():
    means = 100 * ADVERSARIAL.groupby(["batch", "rate", "epochs"]).mean(numeric_only=True)
    small, large = means.loc[64, 0.1], means.loc[1280, 0.1]
    attacked = small["attacked, ε = 4"]
    assert f"from 4 epochs to 24 they fall from {attacked[4]:.1f} to {attacked[24]:.1f} %" in TEXT
    assert f"grows from {small['test accuracy'][4]:.1f} to {small['test accuracy'][24]:.1f} %" in TEXT
    assert f"{large['attacked, ε = 4'][20]:.1f} against {attacked[24]:.1f} %" in TEXT
    updates = ADVERSARIAL.groupby(["batch", "rate", "epochs"])["updates"].first()
    assert updates[1280, 0.1, 80] == updates[64, 0.1, 4] == 400
    assert updates[64, 0.1, 24] == 24 * updates[1280, 0.1, 20]
    assert f"recognises {large['attacked, ε = 4'][80]:.1f} against {attacked[4]:.1f} %" in TEXT
