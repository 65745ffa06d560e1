"""What notebook 3e says of its recorded runs is what the tables say."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import statistics
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3e")

SWITCHES, ALONE = ["warm-up", "exempt", "LARS"], ["ghost", "longer"]
TRICKS = recorded("tricks").query("use == 'result'")
DESIGN = TRICKS[(TRICKS["batch"] == 1_280) & (TRICKS[ALONE] == 0).all(axis=1)]


def points(values):
    """Mean and half width in points, as the text has them."""
    return plus_minus(statistics.mean(values), scale=100)


def at(tricks, batch=1_280, **on):
    wanted = {**dict.fromkeys([*SWITCHES, *ALONE], 0), **on, "batch": batch}
    return tricks[(tricks[list(wanted)] == pd.Series(wanted)).all(axis=1)].sort_values("seed")["test"].to_numpy()


def test_the_design_is_whole_and_every_rate_was_chosen_inside_the_grid():
    assert len(DESIGN.groupby(SWITCHES)) == 8 and (DESIGN.groupby(SWITCHES).size() == 5).all()
    table = recorded("tricks")
    tried = table[table["use"] == "tuning"].groupby(["batch", *SWITCHES, *ALONE])["rate"]
    assert (tried.nunique() == 7).all() and tried.ngroups == 13
    assert TRICKS["rate"].between(0.01, 1).all()


def test_the_effects_of_the_switches():
    gains = {}
    for switch in SWITCHES:
        means = DESIGN.groupby([switch, "seed"])["test"].mean()
        gains[switch] = (means[1] - means[0]).to_numpy()
    assert (
        f"**LARS** gains most, {points(gains['LARS'])} points on average, **warm-up** {points(gains['warm-up'])}."
        in TEXT
    )
    mean, half = statistics.paired(gains["exempt"], np.zeros(5))
    assert "nothing, to a fifth of a point" in TEXT and abs(mean) < half < 0.002


def test_the_interactions():
    for other, before in (("warm-up", "interact**, by "), ("exempt", "depend on that, ")):
        corner = DESIGN.groupby(["LARS", other, "seed"])["test"].mean()
        words = points((corner[1, 1] - corner[0, 1] - corner[1, 0] + corner[0, 0]).to_numpy())
        assert before + words.replace("−0.0", "0.0") in TEXT
    nothing, lars, warm = at(TRICKS), at(TRICKS, LARS=1), at(TRICKS, **{"warm-up": 1})
    both = at(TRICKS, LARS=1, **{"warm-up": 1})
    assert (
        f"gains {100 * (lars - nothing).mean():.1f} points without warm-up and {100 * (both - warm).mean():.1f}" in TEXT
    )
    assert f"warm-up gains {100 * (warm - nothing).mean():.1f} without LARS and nothing with it" in TEXT
    mean, half = statistics.paired(both, lars)
    assert abs(mean) < half


def test_the_tricks_alone():
    nothing = at(TRICKS)
    assert f"gains nothing either, {points(at(TRICKS, ghost=1) - nothing)}." in TEXT
    assert f"**Twice the epochs** gain {points(at(TRICKS, longer=1) - nothing)}" in TEXT
    every = at(TRICKS, **dict.fromkeys([*SWITCHES, *ALONE], 1))
    single = [at(TRICKS, **{name: 1}).mean() - nothing.mean() for name in [*SWITCHES, *ALONE]]
    assert f"gain {points(every - nothing)}. Added up, the single gains would be {100 * sum(single):.1f}." in TEXT
    longer = at(TRICKS, 64, **{"warm-up": 1, "longer": 1})
    assert f"by {points(longer - every)} points" in TEXT


SHOOT_OUT = recorded("shoot_out").fillna({"rule": ""})


def of(shoot_out, method, batch, rule=""):
    rows = shoot_out[(shoot_out["use"] == "result") & (shoot_out["method"] == method) & (shoot_out["batch"] == batch)]
    return rows[rows["rule"] == rule].sort_values("seed")["test"].to_numpy()


METHODS = ("SGD", "Adam", "LARS", "LARC", "LAMB", "NovoGrad")


def test_the_verdict_on_the_six_methods():
    against = {m: statistics.paired(of(SHOOT_OUT, m, 1_280), of(SHOOT_OUT, "SGD", 1_280)) for m in METHODS[1:]}
    ahead = {m for m, (mean, half) in against.items() if mean > half}
    behind = {m for m, (mean, half) in against.items() if mean < -half}
    assert (ahead, behind) == ({"LARS"}, {"LAMB", "NovoGrad"})
    mean, half = against["LARS"]
    assert TEXT.count(f"{100 * mean:.1f} ± {100 * half:.1f} points") == 2
    small, large = ({m: 100 * of(SHOOT_OUT, m, batch).mean() for m in METHODS} for batch in (64, 1_280))
    assert max(small.values()) - min(small.values()) < 0.55 and "all six are within 0.6 points" in TEXT
    lost = {m: small[m] - large[m] for m in METHODS}
    assert (
        f"LARS loses the least, {lost['LARS']:.1f} points, SGD {lost['SGD']:.1f}, and NovoGrad the most, over 10"
        in TEXT
    )
    assert min(lost, key=lost.get) == "LARS" and lost["NovoGrad"] == max(lost.values()) > 10
    common = [
        np.corrcoef(of(SHOOT_OUT, m, batch), of(SHOOT_OUT, "SGD", batch))[0, 1]
        for m in METHODS[1:]
        for batch in (64, 1_280)
    ]
    assert f"between {min(common):.1f} and {max(common):.1f}".replace("-", "−") in TEXT


def test_what_is_said_of_the_valleys_and_the_budgets():
    from labs.lab3_large_batch.lessons.tuning_budget import expected_best

    tuning = SHOOT_OUT[SHOOT_OUT["use"] == "tuning"].set_index("rate")
    valley = {
        (m, batch): tuning[(tuning["method"] == m) & (tuning["batch"] == batch)]["validation"].fillna(0.1)
        for m in METHODS for batch in (64, 1_280)
    }  # fmt: skip
    for batch, ends in ((64, (0.01, 1)), (1_280, (0.1, 0.3))):
        scores = valley["SGD", batch]
        near = scores[scores >= scores.max() - 0.015].index
        assert (near.min(), near.max()) == ends
    lowest = {m: valley[m, 1_280].min() for m in METHODS}
    assert lowest.pop("LARC") >= 0.70 and max(lowest.values()) <= 0.32
    best = [valley[m, 1_280].idxmax() for m in METHODS]
    assert round(max(best) / min(best)) == 33
    after = {n: {m: expected_best(valley[m, 1_280], n) for m in METHODS} for n in (1, 3, 4, 15)}
    assert [max(row, key=row.get) for row in after.values()] == ["LARC", "LARC", "LARS", "LARS"]
    assert round(100 * (after[1]["LARC"] - after[1]["SGD"])) == 7
    assert f"by {100 * (after[15]['LARS'] - after[15]['LARC']):.1f} points with fifteen" in TEXT
    fresh = [100 * of(SHOOT_OUT, m, 1_280) for m in ("LARS", "LARC")]
    assert f"with fresh seeds LARS is {fresh[0].mean() - fresh[1].mean():.1f} points ahead of LARC" in TEXT
    assert all(0.4 < seeds.std(ddof=1) < 0.55 for seeds in fresh)


def test_what_is_said_of_the_rules():
    lost = {m: 100 * (of(SHOOT_OUT, m, 1_280).mean() - of(SHOOT_OUT, m, 1_280, "√").mean()) for m in ("SGD", "LARS")}
    assert round(lost["SGD"]) == 6 and lost["LARS"] > 10
    for method in ("SGD", "LARS"):
        assert of(SHOOT_OUT, method, 1_280, "linear").mean() < 0.2


def test_what_the_earlier_table_said():
    earlier = recorded("shoot_out_earlier").groupby("method")["test"].mean()
    assert earlier.idxmax() == "SGD" and "with a batch of 1,280, no method beats SGD" in TEXT
    assert f"LARS was {100 * (earlier['SGD'] - earlier['LARS']):.1f} points *behind*" in TEXT
