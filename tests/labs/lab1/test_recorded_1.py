"""What lab 1's notebooks say of their recorded runs is what the tables say."""

from __future__ import annotations

import numpy as np

from course_lib import statistics
from course_lib.cost.memory import NETWORKS, cuts
from course_lib.notebook import experiments
from labs.lab1_gradient_descent.lessons import figures_1e
from tests.labs.notebooks import plus_minus, recorded, solved, text


def test_batch_norm():
    runs = recorded("batch_norm")
    accuracy = runs[runs["use"] == "rate"].groupby(["batch norm", "rate"])["validation accuracy"].mean()
    trains = {normalised: rows.droplevel(0) for normalised, rows in accuracy[accuracy > 0.7].groupby("batch norm")}
    ends = [f"{trains[normalised].index[place]:g}" for normalised in (True, False) for place in (0, -1)]
    assert "trains at rates from {} to {}, without it from {} to {}".format(*ends) in text("1e")
    assert {rows.idxmax() for rows in trains.values()} == {0.03}
    best = runs[(runs["use"] == "rate") & (runs["rate"] == 0.03)].sort_values("seed").groupby("batch norm")
    accuracy = {normalised: 100 * rows["validation accuracy"].to_numpy() for normalised, rows in best}
    assert plus_minus(statistics.paired(accuracy[True], accuracy[False])) + " points" in text("1e")


def test_a_step_with_batch_norm_takes_a_third_longer():
    steps = recorded("reports").query("kind == 'step'").pivot(index="run", columns="side", values="ms")
    assert f"about {(steps['theirs'] / steps['ours']).median():.2f} times as long with batch norm" in text("1e")
    assert round(150 * 1.33, -1) == 200


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
    told = "dropout changes the accuracy by {:.1f} ± {:.1f} points with batch norm and by {:.1f} ± {:.1f} without."
    numbers = statistics.mean(changed[True]) + statistics.mean(changed[False])
    assert told.format(*numbers).replace("-", "−") in text("1e")


def test_starts():
    runs, bends = recorded("starts"), recorded("starts_curvature")
    loss, accuracy = runs["training loss"], 100 * runs["validation accuracy"]
    assert f"a training loss of {loss.min():.2f} to {loss.max():.2f}" in text("1e")
    assert f"an accuracy of {accuracy.min():.1f} to {accuracy.max():.1f} %" in text("1e")
    related = loss.corr(accuracy)
    ends = np.tanh(np.arctanh(related) + np.array([-1.96, 1.96]) / np.sqrt(len(runs) - 3))  # Fisher's transformation
    told = "{:.2f} (95 % interval {:.2f} to {:.2f})".format(related, *ends)
    assert told.replace("-", "−") in text("1e")
    assert (bends[["smallest", "smallest, training"]] < 0).all(axis=None)


def test_the_limit_of_momentum():
    bends, limit = recorded("starts_curvature").set_index("updates"), 2 * (1 + 0.9) / 0.05
    assert f"which is {limit:.0f} at the largest rate" in text("1e")
    assert f"After ten updates the largest is {bends['largest'][10]}" in text("1e")
    assert bends["largest"][10] > 2 * limit and (bends["largest, training"] < limit).all()
    assert bends["loss"].is_monotonic_decreasing
    told = "{} at the start, {} after ten updates".format(*(f"{bends['largest, training'][at]:.1f}" for at in (0, 10)))
    assert told in text("1e")


def test_the_law_is_too_hopeful_and_a_test_shows_it():
    runs = recorded("data_size").query("use == 'result'")
    backtest = solved("1e")["backtest"]

    def above(largest, factor):
        known = runs[runs["images"] <= largest]
        tables = [rows.pivot(index="seed", columns="images", values="error") for _, rows in known.groupby("width")]
        return [statistics.mean(backtest(one.columns.to_numpy(), one.to_numpy(), factor)) for one in tables]

    test, near, far = above(1_000, 2), above(2_000, 2), above(8_000, 8)
    numbers = [f"{mean:.0f} ± {half:.0f} %" for mean, half in (*test, *near, *far)]
    assert "by {} (width 0.25), {} (0.5) and {} (1;".format(*numbers[:3]) in text("1e")
    assert [mean > half for mean, half in test] == [False, True, True]  # for two of three widths
    assert [mean > half for mean, half in near] == [True, False, True]  # again for two
    assert "At 2,000 images the error is above it by {}, {} and {}:".format(*numbers[3:6]) in text("1e")
    assert "is above the law by {}, {} and {}".format(*numbers[6:]) in text("1e")
    means = [mean for mean, _ in far]
    told = f"by {np.mean([mean for mean, _ in near]):.0f} % with twice the data, by {min(means):.0f} to "
    assert told + f"{max(means):.0f} % with eight times" in text("1e")
    mean = runs.groupby(["width", "images"])["error"].mean()
    assert (mean[0.25] > mean[0.5]).all() and (mean[0.5] > mean[1.0]).all()  # wider networks do better
    alpha = -np.polyfit(np.log(mean[1.0].index[-4:]), np.log(mean[1.0].iloc[-4:]), 1)[0]  # from 1,000 images on
    assert 0.4 < alpha / (1 / 3) < 0.6 and "Here α is only about half of that." in text("1e")


def test_the_minutes_of_1e_are_those_of_the_recordings():
    names = ("batch_norm", "starts", "data_size", "search")
    minutes = [int(experiments.provenance(experiments.find()[name])["seconds"].split()[0]) / 60 for name in names]
    assert f"took {min(minutes):.0f} to {max(minutes):.0f} minutes" in text("1e")


def test_searches_gain_less_with_each_doubling():
    accuracies = recorded("search")["validation accuracy"].to_numpy()
    best = [figures_1e.found(accuracies, count) for count in (1, 10, 20, 40)]
    gains = np.diff(best)
    assert gains[0] > 10 * gains[1] and gains[1] > gains[2] > 0
    told = "from ten to twenty trials {:.1f} points (95 % interval {:.1f} to {:.1f}"
    assert told.format(*(100 * value for value in figures_1e.gain(accuracies, 10, 20))) in text("1e")
    chance = 100 * np.sqrt(best[-1] * (1 - best[-1]) / 2_000)
    assert f"a standard deviation of {chance:.1f} points" in text("1e")


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


def test_steps_fall_ever_more_slowly_in_1c():
    steps = recorded("batch_size").query("use == 'result'").groupby("batch size")["steps"].median()
    assert f"from 512 to 1,024 the steps only fall from {steps[512]:.0f} to {steps[1024]:.0f}" in text("1c")
    assert steps[64] / steps[128] > 1.9 and steps[128] / steps[256] < 1.5


def test_what_differs_in_1c():
    rows = recorded("landscape_networks")
    drawn = rows[rows["best rate"] & (rows["directions"] == 0) & (rows["depth"] == 40)].set_index("skip")
    losses = drawn["loss at the centre"]
    assert f"ends at a higher loss ({losses[False]:.2f} instead of {losses[True]:.2f})" in text("1c")
    assert f"with skip connections it is {drawn['highest loss'][True]:.0f} at most" in text("1c")
    accuracy = 100 * drawn["validation accuracy"]
    assert f"rose from {accuracy[False]:.0f} to {accuracy[True]:.0f} %" in text("1c")
    tried = rows.query("depth == 40").groupby("skip")["rate"].agg(["min", "max"])
    assert (drawn["rate"][True], drawn["rate"][False]) == (tried["max"][True], tried["min"][False])  # the edges
    shares = rows.query("depth == 40 and `best rate`").groupby("skip")["share below guessing"].agg(["min", "max"])
    with_skips, without = shares.loc[True], shares.loc[False]
    told = "{:.2f} to {:.2f} with, {:.2f} to {:.2f} without skip connections"
    assert told.format(*with_skips, *without) in text("1c")


def test_numbers_at_the_cuts_in_1d():
    for name in ("ResNet-50", "AlexNet"):
        one, two, three = cuts(NETWORKS[name], 4)
        assert f"{one:,}, {two:,} and {three:,}" in text("1d")


def test_slices_at_equal_rates_in_1c():
    rows = recorded("landscape_networks").query("directions == 0 and depth == 40 and rate == 0.01").set_index("skip")
    shares = rows["share below guessing"]
    assert f"({shares[True]:.3f} and {shares[False]:.3f} of the square)" in text("1c")
    assert rows["highest loss"][False] > 100 * rows["highest loss"][True]


def test_steps_and_examples_in_1f():
    runs = recorded("softmax_to_target").groupby("batch_size")
    steps, examples = runs["steps"].median(), runs["examples"].median()
    floor = steps.loc[256:]
    told = f"{steps[1]:,.0f} steps with m = 1, {steps[64]:.0f} with 64; from 256 on, between "
    told += f"{floor.min():.0f} and {floor.max():.0f}."
    assert told in text("1f")
    eta = runs["eta"].first()
    assert (eta[256], eta[1024], eta[4096]) == (2, 2, 1)
    told = f"{examples[1]:,.0f} examples with m = 1, {examples[16]:,.0f} with 16, {examples[4096]:,.0f} with all."
    assert told in text("1f")
