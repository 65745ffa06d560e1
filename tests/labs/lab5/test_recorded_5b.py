"""The numbers that notebook 5b tells stand in its recorded tables."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import statistics
from labs.lab5_precision_and_memory.lessons import figures_5b, narrow_training
from tests.labs.notebooks import recorded, text

TEXT = text("5b")
RUNS = recorded("gradient_bits", dtype={"regime": str})
COST = figures_5b.against_float32(RUNS).set_index(["regime", "exponent", "mantissa", "scale", "way"]).sort_index()
LINK = recorded("slow_link").set_index(["link", "bits"])


def lost(row):
    """As points that are lost, with their interval."""
    return f"{-row['difference']:.1f} ± {row['half']:.1f}"


@pytest.mark.parametrize(
    "sentence, setting",
    [
        ("in (3, 0) a batch of 64 loses {} points", ("64", 3, 0, "none", "ring")),
        ("one of 1,280 loses {}.", ("1,280", 3, 0, "none", "ring")),
        ("With a factor for each tensor, the batch of 64 loses {} points", ("64", 3, 0, "each", "ring")),
        ("and that of 1,280 loses {}. With a factor", ("1,280", 3, 0, "each", "ring")),
        ("each number rounded twice, it loses {} points", ("64", 3, 0, "each", "twice")),
        ("with it the batch of 64 loses {} points, which is more", ("64", 3, 0, "all", "ring")),
    ],
)
def test_what_a_setting_loses(sentence, setting):
    assert sentence.format(lost(COST.loc[setting])) in TEXT


def test_which_differences_are_beyond_chance():
    def sure(regime, scale, way):
        row = COST.loc[(regime, 3, 0, scale, way)]
        return abs(row["difference"]) > row["half"]

    assert not sure("1,280", "each", "ring") and sure("64", "each", "ring") and sure("64", "each", "twice")
    more, half = figures_5b.loses_more(RUNS, (3, 0), "each", "ring")
    rows = RUNS.query("use == 'result' and exponent == 3 and mantissa == 0 and scale == 'each'")
    plain = RUNS.query("use == 'result' and part == 'float32'").set_index(["regime", "seed"])["test accuracy"]
    ring = rows[rows["way"] == "ring"].set_index(["regime", "seed"])["test accuracy"]
    points = 100 * (plain - ring).dropna()
    middle, in_pairs = statistics.paired(points["64"].sort_index(), points["1,280"].sort_index())
    assert middle == pytest.approx(more) and half < more < in_pairs
    assert f"the small batch that loses more, by {more:.1f} points" in TEXT
    assert f"± {half:.1f}, Welch's" in TEXT and f"± {in_pairs:.1f} in pairs" in TEXT
    small, large = (COST.loc[(regime, 3, 0, "each", "ring"), "difference"] for regime in ("64", "1,280"))
    assert more == pytest.approx(large - small)
    plain = COST.loc[("64", 3, 0, "none", "ring")]
    together = COST.loc[("64", 3, 0, "all", "ring")]
    assert together["difference"] + together["half"] < plain["difference"] - plain["half"]


def test_with_four_exponent_bits_nothing_is_lost():
    wide = COST[COST.index.get_level_values("exponent") >= 4]
    assert f"Of these {len(wide)} differences" in TEXT
    assert f"no setting loses more than {-wide['difference'].min():.1f} points" in TEXT
    sure = wide[wide["difference"].abs() > wide["half"]]
    assert len(sure) == 2 and "two exclude 0" in TEXT
    assert sure["difference"].abs().max() <= 0.2 and "both are 0.2 points or less" in TEXT


def test_what_rounding_twice_changes_besides():
    largest, ends = np.float32([0.3]), np.array([0, 1])
    ring, twice = (narrow_training.factors(largest, ends, (3, 0), ranks) for ranks in (8, 1))
    assert twice / ring == 8 and "its factors are eight times as large" in TEXT


def test_what_is_sent_as_0():
    plain = [COST.loc[(regime, 3, 0, "none", "ring"), "sent as 0"] for regime in ("64", "1,280")]
    assert f"The batch of 64 sends {100 * plain[0]:.1f} % of its numbers as 0" in TEXT
    assert plain[1] > 0.999 and "that of 1,280 sends more than 99.9 %" in TEXT
    for regime in ("64", "1,280"):
        lost = COST.loc[(regime, 2, 1, "each", "ring")]
        assert lost["sent as 0"] == 1 and lost["accuracy"] < 0.11


def test_the_plan_is_told_as_it_was():
    results = RUNS[RUNS["use"] == "result"]
    assert f"has {len(COST) + results['regime'].nunique()} settings with five seeds each" in TEXT
    assert set(COST["seeds"]) == {5}
    tuning = RUNS[RUNS["use"] == "tuning"]
    assert set(tuning.groupby(["regime", "rate"]).size()) == {3}
    assert results.groupby("regime")["updates"].max().to_dict() == {"64": 1600, "1,280": 80}


def test_how_much_seeds_differ():
    plain = RUNS[(RUNS["part"] == "float32") & (RUNS["regime"] == "1,280")]["test accuracy"]
    assert 100 * np.std(plain, ddof=1) == pytest.approx(1, abs=0.2)


def test_the_slow_link():
    computing = 1e3 * LINK["computing"].median()
    assert f"Computing a gradient takes about {computing:.0f} ms" in TEXT
    slow = 1e3 * LINK.loc["100 Mbit/s", "seconds per step"]
    ratio = slow[32] / slow[4]
    assert (
        f"a step takes {slow[4]:.0f} ms in four bits and {slow[32]:.0f} ms in float32, {ratio:.1f} times as long"
        in TEXT
    )
    free = 1e3 * LINK.loc["no limit", "seconds per step"]
    assert f"{free[32]:.0f} ms in float32 and {free[4]:.0f} ms in four bits" in TEXT
    assert list(LINK.loc["100 Mbit/s", "bytes"]) == list(LINK.loc["no limit", "bytes"])
