"""The numbers that notebook 7a tells stand in the recorded table, or follow from its exercises."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from course_lib import statistics
from course_lib.notebook import sweep
from course_lib.system.paths import ROOT
from labs.lab7_splitting_the_model.lessons import figures_7a

LAB = ROOT / "labs" / "lab7_splitting_the_model"
TEXT = " ".join((LAB / "7a_cut_the_layer.py").read_text(encoding="utf-8").replace("\n# ", "\n").split())


@pytest.fixture(scope="module")
def table():
    return pd.read_csv(LAB / "recorded" / "experts.csv", comment="#")


def told(interval, digits=1):
    mean, half = interval
    return f"{abs(mean):.{digits}f} ± {half:.{digits}f}"


def test_what_is_said_of_busy_experts(table):
    found = figures_7a.summary(table)
    for setting, digits in (("alpha 0", 1), ("alpha 0.1", 2)):
        row = found.loc[setting]
        assert f"{told(row['fullest'])} %" in TEXT
        assert f"{told(row['dropped'], digits)} %" in TEXT


def test_what_is_said_of_accuracy(table):
    gains = figures_7a.gains(table)
    assert (gains["mean"].abs() < gains["half"]).all()
    assert "no α is ahead of the single expert by more than chance" in TEXT
    assert f"ahead of the single expert by {told(gains.loc['alpha 0.1'], 2)} points" in TEXT
    assert f"short of it by {told(gains.loc['alpha 1'], 2)}" in TEXT and gains.loc["alpha 1", "mean"] < 0
    rows = table[table["use"] == "result"].sort_values("seed")
    scores = {setting: 100 * some["test accuracy"].to_numpy() for setting, some in rows.groupby("setting")}
    much = statistics.paired(scores["alpha 0.1"], scores["alpha 1"])
    assert f"$\\alpha = 1$ is {told(much, 2)} points behind $\\alpha = .1$" in TEXT and much[0] > much[1]
    none = statistics.paired(scores["alpha 0.1"], scores["alpha 0"])
    assert f"gain anything on $\\alpha = 0$, {told(none, 2)}" in TEXT and abs(none[0]) < none[1]


def test_every_setting_tried_the_same_rates_and_chose_one_inside_their_range(table):
    tuning = table[table["use"] == "tuning"]
    rates = sorted(tuning["rate"].unique())
    assert len(rates) == 6 and "the same six learning rates" in TEXT
    assert {tuple(sorted(some["rate"])) for _, some in tuning.groupby("setting")} == {tuple(rates)}
    chosen = sweep.best(tuning, ["setting"], "rate", "validation accuracy").set_index("setting")["rate"]
    assert chosen.between(rates[0], rates[-1], inclusive="neither").all()
    results = table[table["use"] == "result"]
    assert (results["rate"] == results["setting"].map(chosen)).all()
    assert results.groupby("setting")["seed"].nunique().eq(5).all() and "five seeds" in TEXT


def test_the_stated_minutes_are_those_of_the_recording():
    seconds = int(re.search(r"# seconds: (\d+)", (LAB / "recorded" / "experts.csv").read_text())[1])
    minutes = int(re.search(r"course reproduce experts`.*?in about (\d+) minutes", TEXT)[1])
    assert abs(minutes - seconds / 60) < 1.1
