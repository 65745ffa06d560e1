"""The numbers that notebook 5a tells stand in its recorded table."""

from __future__ import annotations

import numpy as np

from labs.lab5_precision_and_memory.lessons import figures_5a, formats_5a
from tests.labs.notebooks import recorded, text

TEXT = text("5a")
TABLE = recorded("number_formats")
AGAINST = figures_5a.against_float32(TABLE) * 100
MEANS = figures_5a.window_means(TABLE).set_index(["way", "power"])["mean"]


def test_the_plan_is_told_as_it_was():
    assert set(TABLE.loc[TABLE["use"] == "result", "way"]) == set(formats_5a.WAYS) and len(formats_5a.WAYS) == 9
    assert "trains the network in nine ways" in TEXT
    assert set(TABLE.loc[TABLE["use"] == "result", "rate"]) == {0.05}
    assert "Every way is best at a rate of 0.05" in TEXT


def test_differences():
    others = AGAINST.drop("float32")
    sure = others[others["difference"].abs() > others["difference half"]]
    assert list(sure.index) == ["no master weights"] and len(others) == 8
    assert "Of the eight differences from float32, taken seed by seed, one excludes 0" in TEXT
    for way, sentence in {
        "no master weights": "the network loses {:.2f} ± {:.2f} points",
        "no master weights, by chance": "rounded by chance differ by {:.2f} ± {:.2f} points",
        "float16": "its difference is {:.2f} ± {:.2f} points",
    }.items():
        row = AGAINST.loc[way]
        assert sentence.format(abs(row["difference"]), row["difference half"]) in TEXT
    assert (
        AGAINST.loc["no master weights", "difference"] < 0 < AGAINST.loc["no master weights, by chance", "difference"]
    )


def test_without_master_weights_the_loss_departs_from_the_others():
    results = TABLE[TABLE["use"] == "result"].set_index(["way", "seed"])
    names = [f"loss at {epoch}" for epoch in (3, 6, 9, 12, 15)]
    behind = (results.loc["no master weights", names] - results.loc["float32", names]).mean()
    assert behind.is_monotonic_increasing and behind.iloc[0] > 0


def test_the_plateau():
    whole = {
        way: [power for power in MEANS[way].index if MEANS[way][power] > 0.815] for way in ("float16", "fp8 gradients")
    }
    assert whole == {"float16": [-8, -4, 0, 4, 8, 12], "fp8 gradients": [0, 4, 8, 12]}
    assert "2¹² is fine for both formats" in TEXT
    assert "reaches down to 2⁻⁸, fp8 with two only to 1" in TEXT
    low, fine = MEANS["fp8 gradients"][-4], MEANS["fp8 gradients"][0]
    assert f"at 2⁻⁴ it reaches an accuracy of {low:.2f} in place of {fine:.2f}" in TEXT


def test_most_steps_are_left_out_above_the_plateau():
    high = TABLE[(TABLE["use"] == "window") & (TABLE["power"] == 20)]
    assert high["left out"].min() == 150 and "at 2²⁰ every step is left out" in TEXT
    edge = TABLE[(TABLE["use"] == "window") & (TABLE["power"] == 16)]
    for _, runs in edge.groupby("way"):
        left_out = sorted(runs["left out"])
        assert left_out[:2] == [0, 0] and 150 - left_out[2] < 20 and left_out[3] < 150 == left_out[4]
    assert edge["way"].nunique() == 2
    assert "At 2¹⁶ two seeds of five make fewer than 20 of 150 updates, a third makes none" in TEXT


def test_a_dynamic_scale_went_beyond_the_upper_end_of_a_constant_one():
    dynamic = TABLE[(TABLE["use"] == "result") & TABLE["way"].str.endswith("scaled loss")]
    assert dynamic["left out"].max() == 0 and set(dynamic["last scale"]) == {2.0**17}
    assert "began at 2¹⁵, doubled to 2¹⁶ and to 2¹⁷, and no step was left out" in TEXT
    constant = TABLE[(TABLE["use"] == "window") & (TABLE["power"] == 16)]
    fails = constant.groupby("way")["left out"].agg(lambda runs: (runs > 0).sum())
    assert set(fails) == {3} and "2¹⁶ all the time fails with three of five seeds" in TEXT


def test_the_dips_at_epoch_3_are_few_seeds():
    losses = TABLE[TABLE["use"] == "result"].pivot(index="seed", columns="way", values="loss at 3")
    behind = losses.sub(losses["float32"], axis=0)
    dips = behind.columns[behind.mean() < -0.01]
    seeds = (behind[dips] < -0.05).sum()
    assert sorted(seeds) == [1, 2, 2] and set(seeds.index[seeds == 2].str[:3]) == {"fp8"}
    assert (behind[dips].where(behind[dips] >= -0.05).mean().abs() < 0.01).all()
    assert "the dip of the two fp8 curves comes from two seeds of five, that of rounding by chance from one" in TEXT


def test_where_float32_stops():
    weight = 1.9
    for _ in range(1_500):
        weight = float(np.float32(weight - 0.01 * (weight - 1)))
    assert f"{1e6 * (weight - 1):.0f} · 10⁻⁶" in TEXT
    assert float(np.float32(weight - 0.01 * (weight - 1))) == weight


def test_where_squares_leave_float16():
    with np.errstate(over="ignore"):
        squares = np.float16(np.float32([255.9, 256, 2.0**-12.5, 1.001 * 2.0**-12.5]) ** 2)
    assert np.isfinite(squares[0]) and np.isinf(squares[1]) and squares[2] == 0 < squares[3]
    assert "from 256 on is infinite and that of anything up to 2⁻¹²·⁵ is 0" in TEXT


MIXED = recorded("mixed_lars")


def test_differences_with_lars():
    against = 100 * figures_5a.against_float32(MIXED)
    for way, sentence in {
        "bfloat16": "bfloat16 differs from it by {:.2f} ± {:.2f} points",
        "float16": "float16 by {:.2f} ± {:.2f}, and",
        "float16, scaled loss": "float16 with a scaled loss by {:.2f} ± {:.2f}. The last",
        "float16, norms too": "as long as the loss is not scaled: {:.2f} ± {:.2f} points",
        "float16, scaled loss, norms too": "{:.1f} ± {:.1f} points are lost",
    }.items():
        row = against.loc[way]
        assert sentence.format(-row["difference"], row["difference half"]) in TEXT
    others = against.drop(["float32", "float16, scaled loss, norms too"])
    assert list(others.index[others["difference"].abs() > others["difference half"]]) == ["float16, scaled loss"]
    still = MIXED[(MIXED["use"] == "result") & (MIXED["way"] == "float16, scaled loss, norms too")]
    assert f"reaches {100 * still['test accuracy'].mean():.1f} % with kernels as they were drawn" in TEXT
    assert sorted(still["left out"]) == [0, 1, 1, 1, 1]
    assert "in four of five runs one step of 150 is left out, in the fifth none" in TEXT
    losses = still[[name for name in still if name.startswith("loss at")]].mean()
    assert losses.is_monotonic_decreasing and "The loss falls" in TEXT
