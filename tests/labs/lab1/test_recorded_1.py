"""What lab 1's notebooks say of their recorded runs is what the tables say."""

from __future__ import annotations

import numpy as np

from course_lib import statistics
from labs.lab1_gradient_descent.lessons import figures_1e
from tests.labs.notebooks import recorded, text


def test_batch_norm():
    runs = recorded("batch_norm")
    accuracy = runs[runs["use"] == "rate"].groupby(["batch norm", "rate"])["validation accuracy"].mean()
    trains = {normalised: rows.droplevel(0) for normalised, rows in accuracy[accuracy > 0.7].groupby("batch norm")}
    ends = [f"{trains[normalised].index[place]:g}" for normalised in (True, False) for place in (0, -1)]
    assert "trains at rates from {} to {}, without it from {} to {}".format(*ends) in text("1e")
    best = [f"{100 * trains[normalised].max():.1f} %" for normalised in (True, False)]
    assert {rows.idxmax() for rows in trains.values()} == {0.03}
    assert "{} right after so few updates, without it {}".format(*best) in text("1e")
    best = runs[(runs["use"] == "rate") & (runs["rate"] == 0.03)].sort_values("seed").groupby("batch norm")
    accuracy = {normalised: 100 * rows["validation accuracy"].to_numpy() for normalised, rows in best}
    assert "{:.1f} ± {:.1f} points".format(*statistics.paired(accuracy[True], accuracy[False])) in text("1e")


def test_dropout_changes_less_than_five_seeds_could_show():
    runs = recorded("batch_norm").query("use == 'dropout'")
    for _, rows in runs.groupby("batch norm"):
        mean, half = (
            rows.groupby("dropout")["validation accuracy"].agg(how)
            for how in ("mean", lambda seeds: 2.776 * seeds.std() / np.sqrt(5))
        )
        assert abs(mean[0.3] - mean[0.0]) < half.sum()
    runs = 100 * runs.pivot(index="seed", columns=["batch norm", "dropout"], values="validation accuracy")
    changed = {normalised: runs[normalised, 0.3] - runs[normalised, 0.0] for normalised in (True, False)}
    told = "dropout changes {:.1f} ± {:.1f} points with batch norm, {:.1f} ± {:.1f} without; that it is needed less "
    told += "with batch norm would be {:.1f} ± {:.1f}."
    numbers = statistics.mean(changed[True]) + statistics.mean(changed[False])
    numbers += statistics.paired(changed[True], changed[False])
    assert told.format(*numbers).replace("-", "−") in text("1e")


def test_starts():
    runs, bends = recorded("starts"), recorded("starts_curvature")
    loss, accuracy = runs["training loss"], 100 * runs["validation accuracy"]
    assert f"({loss.min():.2f} to {loss.max():.2f})" in text("1e")
    assert f"({accuracy.min():.1f} to {accuracy.max():.1f} %)" in text("1e")
    chance = 100 * np.sqrt(runs["validation accuracy"].mean() * (1 - runs["validation accuracy"].mean()) / 2000)
    assert f"standard deviation of {chance:.1f} points" in text("1e")
    assert (bends["smallest"] < 0).all() and (bends["largest"] > 0).all()


def test_the_law_is_too_hopeful_beyond_what_it_was_fitted_to():
    runs = recorded("data_size").query("use == 'result'")
    mean = runs.groupby(["width", "images"])["error"].mean()
    for _, errors in mean.groupby("width"):
        errors = errors.droplevel("width")
        small = errors[errors.index <= 1_000]
        exponent, factor = figures_1e.fit(small.index, small)
        assert np.allclose(small, factor * small.index.to_numpy(float) ** -exponent, rtol=0.06)
    off = figures_1e.above_the_law(runs, fitted=1_000)
    said = "at 8,000 images by {:.0f} ± {:.0f} %, {:.0f} ± {:.0f} % and {:.0f} ± {:.0f} %"
    assert said.format(*off.to_numpy().ravel()) in text("1e")
    near = figures_1e.above_the_law(runs[runs["images"] <= 2_000], fitted=1_000)
    said = "by {:.0f} ± {:.0f} % (width 0.25), {:.0f} ± {:.0f} % (0.5) and {:.0f} ± {:.0f} % (1)"
    assert said.format(*near.to_numpy().ravel()) in text("1e")
    ends = f"{off.iloc[:, 0].min():.0f} to {off.iloc[:, 0].max():.0f} % with eight times"
    assert f"{near.iloc[:, 0].mean():.0f} % less error with twice the data, {ends}" in text("1e")
    assert (mean[0.25] > 1.1 * mean[1.0]).all()  # width pays at every size


def test_searches_gain_less_with_each_doubling():
    trials = recorded("search")["validation accuracy"].to_numpy()
    best = [figures_1e.found(trials, count).mean() for count in (1, 10, 20, 40)]
    gains = np.diff(best)
    assert gains[0] > 10 * gains[1] > 10 * gains[2] > 0


def test_time_to_target_in_1c():
    runs = recorded("batch_size").query("use == 'result'").groupby("batch size")["seconds"]
    assert f"lowest at {runs.median().idxmin()}, with {runs.median().min():.1f} s" in text("1c")
    said = (runs.median()[1024], runs.min()[1024], runs.max()[16], runs.max()[32])
    told = (
        "The median of 1,024, {:.1f} s, is well above the others; yet even there the fastest run ({:.1f} s) beat the "
    )
    told += "slowest with 16 ({:.1f} s) and with 32 ({:.1f} s)."
    assert told.format(*(seconds + 1e-9 for seconds in said)) in text("1c")


def test_accuracy_by_rate_in_1c():
    rows = recorded("landscape_networks").query("directions == 0 and depth == 40 and skip").sort_values("rate")
    apart = 100 * rows["validation accuracy"].diff().dropna()
    assert apart.iloc[0] > 1.5 and (apart.iloc[1:].round(1) == 0.5).all()
    assert "the further steps, half a point each" in text("1c")


def test_slices_at_equal_rates_in_1c():
    rows = recorded("landscape_networks").query("directions == 0 and depth == 40 and rate == 0.01").set_index("skip")
    shares = rows["share below guessing"]
    assert f"({shares[True]:.3f} and {shares[False]:.3f} of the square)" in text("1c")
    assert rows["highest loss"][False] > 100 * rows["highest loss"][True]


def test_steps_and_examples_in_1b():
    runs = recorded("softmax_to_target").groupby("batch_size")
    steps, examples = runs["steps"].median(), runs["examples"].median()
    floor = steps.loc[256:]
    told = f"{steps[1]:,.0f} steps with m = 1, {steps[64]:.0f} with 64; from 256 on, between "
    told += f"{floor.min():.0f} and {floor.max():.0f}."
    assert told in text("1b")
    eta = runs["eta"].first()
    assert (eta[256], eta[1024], eta[4096]) == (2, 2, 1)
    told = f"{examples[1]:,.0f} examples with m = 1, {examples[16]:,.0f} with 16, {examples[4096]:,.0f} with all."
    assert told in text("1b")
