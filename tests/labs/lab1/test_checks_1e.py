"""Notebook 1e: the extrapolation, and what its text says of the recorded tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from course_lib.system.paths import ROOT
from labs.lab1_gradient_descent.lessons import figures_1e
from labs.lab1_gradient_descent.lessons.checks_1e import check, points

NOTEBOOK = "1e_what_makes_it_work"
FIT = "np.polyfit(np.log(sizes), np.log(errors), 1)"
ASKED = "float(np.exp(height + slope * np.log(size)))"

# edits of the solution, the points of 10 that remain, a word of the reason
MISTAKES = {
    "no logarithms": ([(FIT, "np.polyfit(sizes, errors, 1)"), (ASKED, "height + slope * size")], 0, "straight line"),
    "sizes only": ([("np.log(errors)", "errors"), (ASKED, "height + slope * np.log(size)")], 0, "of the errors, too"),
    "errors only": (
        [("np.log(sizes)", "sizes"), (ASKED, "float(np.exp(height + slope * size))")],
        0,
        "of the sizes, too",
    ),
    "no exponential": ([(ASKED, "height + slope * np.log(size)")], 0, "take the exponential"),
    "the size itself": ([(ASKED, "np.exp(height + slope * size)")], 0, "not at n"),
    "a power of ten": ([(ASKED, ASKED.replace("np.exp(", "10 ** ("))], 0, "not a power of ten"),
    "the height as it is": ([(ASKED, "height * size**slope")], 0, "height of the line"),
    "axes exchanged": ([(FIT, "np.polyfit(np.log(errors), np.log(sizes), 1)")], 0, "exchanged"),
    "the last error": ([(ASKED, "errors[-1]")], 0, "beyond the sizes"),
    "two points": (
        [(FIT, "np.polyfit(np.log([sizes[0], sizes[-1]]), np.log([errors[0], errors[-1]]), 1)"),
         (ASKED, "errors[-1] * (size / sizes[-1]) ** slope")],
        7,
        "let all points count alike",
    ),
    "no return": ([(f"return {ASKED}", "pass")], 0, "`return`"),
    "arithmetic with lists": ([("np.log(sizes)", "np.log(1 / (1 / sizes))")], 8, "may be lists"),
}  # fmt: skip


def test_the_solution_gets_all_points(answer, capsys):
    assert points(answer(NOTEBOOK, "extrapolate"), 10) == 10
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("edits", "remain", "word"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_costs_points_and_is_named(answer, edits, remain, word):
    wrong = answer(NOTEBOOK, "extrapolate", *edits)
    assert points(wrong, 10) == pytest.approx(remain)
    assert word in str(check(wrong))


# What the text says of the tables


def recorded(name):
    return pd.read_csv(ROOT / "labs" / "lab1_gradient_descent" / "recorded" / f"{name}.csv", comment="#")


def text(notebook=NOTEBOOK):
    lines = (ROOT / "labs" / "lab1_gradient_descent" / f"{notebook}.py").read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:].strip() for line in lines if line.startswith("# "))


def test_batch_norm():
    runs = recorded("batch_norm")
    accuracy = runs[runs["use"] == "rate"].groupby(["batch norm", "rate"])["validation accuracy"].mean()
    trains = {normalised: rows.droplevel(0) for normalised, rows in accuracy[accuracy > 0.7].groupby("batch norm")}
    ends = [f"{trains[normalised].index[place]:g}" for normalised in (True, False) for place in (0, -1)]
    assert "trains at rates from {} to {}, without it from {} to {}".format(*ends) in text()
    best = [f"{100 * trains[normalised].max():.1f} %" for normalised in (True, False)]
    assert {rows.idxmax() for rows in trains.values()} == {0.03}
    assert "{} right after so few updates, without it {}".format(*best) in text()
    best = runs[(runs["use"] == "rate") & (runs["rate"] == 0.03)].sort_values("seed").groupby("batch norm")
    accuracy = {normalised: 100 * rows["validation accuracy"].to_numpy() for normalised, rows in best}
    assert "{:.1f} ± {:.1f} points".format(*statistics.paired(accuracy[True], accuracy[False])) in text()


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
    assert told.format(*numbers).replace("-", "−") in text()


def test_starts():
    runs, bends = recorded("starts"), recorded("starts_curvature")
    loss, accuracy = runs["training loss"], 100 * runs["validation accuracy"]
    assert f"({loss.min():.2f} to {loss.max():.2f})" in text()
    assert f"({accuracy.min():.1f} to {accuracy.max():.1f} %)" in text()
    chance = 100 * np.sqrt(runs["validation accuracy"].mean() * (1 - runs["validation accuracy"].mean()) / 2000)
    assert f"standard deviation of {chance:.1f} points" in text()
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
    assert said.format(*off.to_numpy().ravel()) in text()
    near = figures_1e.above_the_law(runs[runs["images"] <= 2_000], fitted=1_000)
    said = "by {:.0f} ± {:.0f} % (width 0.25), {:.0f} ± {:.0f} % (0.5) and {:.0f} ± {:.0f} % (1)"
    assert said.format(*near.to_numpy().ravel()) in text()
    ends = f"{off.iloc[:, 0].min():.0f} to {off.iloc[:, 0].max():.0f} % with eight times"
    assert f"{near.iloc[:, 0].mean():.0f} % less error with twice the data, {ends}" in text()
    assert (mean[0.25] > 1.1 * mean[1.0]).all()  # width pays at every size


def test_searches_gain_less_with_each_doubling():
    trials = recorded("search")["validation accuracy"].to_numpy()
    best = [figures_1e.found(trials, count).mean() for count in (1, 10, 20, 40)]
    gains = np.diff(best)
    assert gains[0] > 10 * gains[1] > 10 * gains[2] > 0


def test_time_to_target_in_1c():
    runs = recorded("batch_size").query("use == 'result'").groupby("batch size")["seconds"]
    assert f"lowest at {runs.median().idxmin()}, with {runs.median().min():.1f} s" in text("1c_a_realistic_network")
    said = (runs.median()[1024], runs.min()[1024], runs.max()[16], runs.max()[32])
    told = (
        "The median of 1,024, {:.1f} s, is well above the others; yet even there the fastest run ({:.1f} s) beat the "
    )
    told += "slowest with 16 ({:.1f} s) and with 32 ({:.1f} s)."
    assert told.format(*(seconds + 1e-9 for seconds in said)) in text("1c_a_realistic_network")


def test_accuracy_by_rate_in_1c():
    rows = recorded("landscape_networks").query("directions == 0 and depth == 40 and skip").sort_values("rate")
    apart = 100 * rows["validation accuracy"].diff().dropna()
    assert apart.iloc[0] > 1.5 and (apart.iloc[1:].round(1) == 0.5).all()
    assert "the further steps, half a point each" in text("1c_a_realistic_network")


def test_slices_at_equal_rates_in_1c():
    rows = recorded("landscape_networks").query("directions == 0 and depth == 40 and rate == 0.01").set_index("skip")
    shares = rows["share below guessing"]
    assert f"({shares[True]:.3f} and {shares[False]:.3f} of the square)" in text("1c_a_realistic_network")
    assert rows["highest loss"][False] > 100 * rows["highest loss"][True]


def test_steps_and_examples_in_1b():
    runs = recorded("softmax_to_target").groupby("batch_size")
    steps, examples = runs["steps"].median(), runs["examples"].median()
    floor = steps.loc[256:]
    told = f"{steps[1]:,.0f} steps with m = 1, {steps[64]:.0f} with 64; from 256 on, between "
    told += f"{floor.min():.0f} and {floor.max():.0f}."
    assert told in text("1b_stochastic_gradient_descent")
    eta = runs["eta"].first()
    assert (eta[256], eta[1024], eta[4096]) == (2, 2, 1)
    told = f"{examples[1]:,.0f} examples with m = 1, {examples[16]:,.0f} with 16, {examples[4096]:,.0f} with all."
    assert told in text("1b_stochastic_gradient_descent")
