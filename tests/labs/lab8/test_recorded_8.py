"""The numbers that lab 8's notebooks tell of their recordings stand in the tables."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import statistics
from course_lib.cost import published
from labs.lab8_honest_benchmarks.lessons import hour
from tests.labs.notebooks import by_seed, recorded, text

TEXT, TEXT_8C = text("8a"), text("8c")


@pytest.fixture(scope="module")
def alone():
    runs = recorded("spread")
    return runs[runs["beside"] == "no"]


def test_steps_and_times_of_the_runs(alone):
    step, time = alone["step_ms"], alone["to_target_s"]
    assert f"median step takes {step.min():.1f} to {step.max():.1f} ms" in TEXT
    assert f"the time to the target is {time.min():.1f} to {time.max():.1f} s" in TEXT
    assert len(alone) == 20 and time.isna().sum() == 1 and "one seed of twenty never got there" in TEXT


def test_ratios_of_both_sides_and_seed_by_seed():
    runs = recorded("spread")

    def told(difference, half):
        return [f"{np.exp(value):.2f}" for value in (difference, difference - half, difference + half)]

    def sides(column, count):
        some = runs[runs["seed"] < count]
        of = (some[some["beside"] == word][column].dropna() for word in ("yes", "no"))
        return told(*statistics.unpaired(*(np.log(side) for side in of)))

    three, ten, times = sides("step_ms", 3), sides("step_ms", 10), sides("to_target_s", 10)
    assert "steps take {} times as long, {} to {}; ten say".format(*three) in TEXT
    assert "ten say {}, {} to {}: the first three".format(*ten) in TEXT
    assert "much less is known, {1} to {2} even after ten".format(*times) in TEXT
    pairs = runs.pivot(index="seed", columns="beside", values="to_target_s").dropna()
    _, low, high = map(float, told(*statistics.paired(np.log(pairs["yes"]), np.log(pairs["no"]))))
    ended = runs[runs["seed"] < 10].groupby("beside")["to_target_s"].count()
    assert len(pairs) == 9 == ended["yes"] == ended["no"] and "nine, as one never got there on either side" in TEXT
    assert (high - low) / (float(times[2]) - float(times[1])) == pytest.approx(1 / 3, abs=0.05)
    assert "a third of the uncertainty" in TEXT


def test_the_first_look_and_the_curve(alone):
    reached = alone.dropna(subset=["to_target_s", "first_seldom_s"])
    means = [reached[name].mean() for name in ("first_often_s", "to_target_s", "first_seldom_s")]
    assert "alone {:.2f}, {:.2f} and {:.2f} s on average".format(*means) in TEXT
    (failed,) = alone[alone["to_target_s"].isna()].itertuples()
    assert f"Seed {failed.seed} shows" in TEXT and f"did, after {failed.first_often_s:.1f} s" in TEXT


def test_images_a_second_by_the_number_of_cores():
    table = recorded("reports")
    rate = table[table["kind"] == "cores"].groupby(["side", "setting"])["images_per_s"].median()
    told = text("8b")
    assert f"With a core each, ours is {rate['ours', 1] / rate['theirs', 1]:.1f} times as fast" in told
    assert f"Its lead is {rate['ours', 1] / rate['theirs', 2]:.1f} times where theirs gets a second core" in told
    assert f"per core it is {2 * rate['ours', 1] / rate['theirs', 2]:.1f} times" in told
    rates = table[(table["kind"] == "rate") & (table["steps"] == 500)]
    assert [*zip(rates["side"], rates["setting"])] == [("theirs", 0.03)] and "at 0.03 without momentum" in told


FAMILY = recorded("family")


def test_the_shares_are_those_of_the_whole_test_set():
    shares = recorded("evaluation")
    assert shares["images"].sum() == 5000 and len(set(shares["images"] + shares["filled"])) == 1


def test_the_hour_between_b4_and_b5():
    minutes = {name: hour.EPOCHS * published.IMAGES / hour.step(name).images_per_second / 60 for name in ("B4", "B5")}
    assert minutes["B4"] < hour.MINUTES < minutes["B5"]
    assert round(1 - minutes["B4"] / hour.MINUTES, 1) == 0.3 and "three tenths of the time" in TEXT_8C
    assert f"{minutes['B5'] / hour.MINUTES:.1f} times as much of its peak" in TEXT_8C
    assert f"after {hour.EPOCHS * hour.MINUTES / minutes['B5']:.0f} of 350 epochs" in TEXT_8C
    board, epoch = hour.evaluation_seconds("B5", 8), published.IMAGES / hour.step("B5").images_per_second
    assert f"needs {board:.0f} s for an epoch that the others train in {epoch:.0f} s" in TEXT_8C
    assert 0.2 < hour.evaluation_seconds("B5", hour.CORES) < 0.3 and "a quarter of a second" in TEXT_8C
    judging = hour.evaluation_seconds("B5", 1)
    assert 350 * (judging + epoch) / 3600 == pytest.approx(24, abs=2) and "the training takes a day" in TEXT_8C
    assert 35 * judging > 2 * 3600 > 350 * epoch and "more than two hours to less than two of training" in TEXT_8C
    assert f"cost {hour.norm_seconds('B5', 128) / hour.step('B5').step_seconds:.1%}".replace("%", " %") in TEXT_8C
    assert hour.norm_seconds("B5", 1024) < 1.1 * hour.norm_seconds("B5", 128) and "hardly more" in TEXT_8C
    assert round(hour.EPOCHS * published.IMAGES / hour.BATCH) == 6842 and "6,842 updates" in TEXT_8C


def test_what_is_told_of_the_family():
    accuracy = by_seed(FAMILY.query("use == 'result' and epoch == 4"), "size", "plain_test")
    for told, a, b in (("L is {} points ahead of S", "L", "S"), ("M is {} points behind S", "S", "M")):
        middle, half = statistics.paired(accuracy[a], accuracy[b])
        assert told.format(f"{middle:.1f} ± {half:.1f}") in TEXT_8C
    assert set(FAMILY.query("use == 'result'")["rate"]) == {0.5} and "all chose 0.5" in TEXT_8C
    cpu = FAMILY.query("use == 'step'").groupby("size")["cpu_ms"].median()
    assert cpu["M"] / cpu["S"] == pytest.approx(2, abs=0.3) and cpu["L"] / cpu["M"] == pytest.approx(2, abs=0.3)


def test_what_is_told_of_the_averages():
    rows = FAMILY.query("use == 'result' and size == 'S'")
    by_epoch = {epoch: some.sort_values("seed") for epoch, some in rows.groupby("epoch")}
    own = {n: statistics.paired(by_epoch[n]["averaged"], by_epoch[n]["plain"]) for n in (2, 4)}
    anew = {n: statistics.paired(by_epoch[n]["averaged_anew"], by_epoch[n]["plain_anew"]) for n in (2, 4)}
    assert f"{-own[2][0]:.1f} ± {own[2][1]:.1f} points behind after two epochs" in TEXT_8C
    assert f"still {-own[4][0]:.1f} ± {own[4][1]:.1f} at the end" in TEXT_8C
    assert "level: {:.1f} ± {:.1f} and {:.1f} ± {:.1f} points".format(*anew[2], *anew[4]) in TEXT_8C
