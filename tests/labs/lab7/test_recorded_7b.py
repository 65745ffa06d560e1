"""The numbers that notebook 7b tells stand in the recorded tables, or follow from a simulation."""

from __future__ import annotations

from functools import partial

import pytest

from course_lib import collectives, statistics
from course_lib.notebook import experiments
from course_lib.parallel import schedules
from labs.lab7_splitting_the_model.lessons import figures_7b
from labs.lab7_splitting_the_model.lessons.checks_7b import counted_delay
from tests.labs.notebooks import by_seed, plus_minus, recorded, text

TEXT = text("7b")
hundredths = partial(plus_minus, scale=100)
BUBBLE = recorded("bubble").set_index(["what", "micro"])
STALE = recorded("stale_pipeline")
SCORES = by_seed(STALE.query("use != 'tuning'"), ["way", "stages", "use"])


def short(number):
    return f"{number:.2f}"[1:]


def test_what_is_said_of_the_bubble():
    gpipe = BUBBLE.loc["GPipe"]
    shares = "{}, {} and {}".format(*(short(gpipe.loc[m, "idle"]) for m in (1, 2, 4)))
    assert f"GPipe's is {shares}, where the formula has .50, .33 and .20" in TEXT
    assert [round(gpipe.loc[m, "predicted"], 2) for m in (1, 2, 4, 32)] == [0.5, 0.33, 0.2, 0.03]
    assert f"At 32 it is {short(gpipe.loc[32, 'idle'])} in place of .03" in TEXT
    serial = BUBBLE.loc[("serial", 1), "seconds"]
    assert f"One rank takes {1e3 * serial:.0f} ms for the step" in TEXT
    assert f"the two ranks compute for {1e3 * gpipe.loc[32, 'computing']:.0f} ms, together" in TEXT
    each = [f"{1e3 * gpipe.loc[micro, 'seconds']:.0f}" for micro in (4, 8, 16, 32)]
    assert "with 4, 8 and 16 micro-batches ({}, {} and {} ms), and longer with 32 ({} ms)".format(*each) in TEXT
    fastest = BUBBLE[BUBBLE["predicted"].notna()]["seconds"]
    assert fastest.idxmin() == ("one forward, one backward", 4)
    assert f"The best speed-up is about {serial / fastest.min():.1f}, with four micro-batches" in TEXT


def test_what_is_said_of_messages():
    socket, together = (BUBBLE.loc[(f"message by {way}", 1_000), "seconds"] for way in ("socket", "all-to-all"))
    assert f"takes {short(1e3 * socket)} ms by the socket and {1e3 * together:.2f} ms by `alltoall`" in TEXT
    assert f"{together / socket:.0f} times as long" in TEXT


def test_seconds_of_the_recordings():
    seconds = {
        name: int(experiments.provenance(experiments.find()[name])["seconds"]) for name in ("bubble", "stale_pipeline")
    }
    assert seconds["bubble"] == pytest.approx(40, abs=5) and "again in about 40 seconds" in TEXT
    assert round(seconds["stale_pipeline"] / 60) == 7 and "that took 7 minutes" in TEXT


def test_the_table_of_losses():
    lost = figures_7b.losses(STALE).set_index(["way", "stages"])
    rate = figures_7b.summary(STALE).set_index(["way", "stages"])["rate"]
    assert rate["flush", 1] == 0.1 and "(the flush: .1)" in TEXT
    for stages in (2, 4, 8):
        cells = [
            f"{hundredths(lost.loc[(way, stages)])}, η = {f'{rate[way, stages]:g}'[1:]}"
            for way in ("current", "stashed")
        ]
        assert f"| {stages} | {counted_delay(stages, 0, ticks=True)} | {' | '.join(cells)} |" in TEXT


def test_what_is_said_of_stale_weights():
    lost = figures_7b.losses(STALE).set_index(["way", "stages"])
    none = {key for key, (mean, half) in lost.iterrows() if abs(mean) <= half}
    assert none == {("current", 2), ("stashed", 2), ("longer", 8)}
    same = figures_7b.losses(STALE, "same rate").set_index(["way", "stages"])
    assert f"two stages lose {hundredths(same.loc[('current', 2)])}." in TEXT
    fails = {stages: int((SCORES["current", stages, "same rate"] == 0.1).sum()) for stages in (2, 4, 8)}
    assert fails == {2: 0, 4: 3, 8: 5} and "three of the five trainings fail; with eight, all five do" in TEXT
    ahead = {
        stages: statistics.paired(SCORES["stashed", stages, "result"], SCORES["current", stages, "result"])
        for stages in (4, 8)
    }
    assert f"by {hundredths(ahead[4])} with four stages and by {hundredths(ahead[8])} with eight" in TEXT
    assert all(mean > half for mean, half in ahead.values())
    assert 2 * 7 + 1 == 15 and "keeps 15 versions" in TEXT


def test_what_is_said_of_equal_time():
    assert (4 + 8 - 1) / 4 == 2.75 and round(3 * 2.75) == 8
    own, half = SCORES["longer", 8, "result"], SCORES["longer", 8, "half rate"]
    rates = STALE[STALE["way"] == "longer"].query("use != 'tuning'").groupby("use")["rate"].first()
    assert rates["result"] == 0.025 and rates["half rate"] == 0.0125 and "and got .025" in TEXT
    assert (own == 0.1).sum() == 2 and "two of the five trainings failed" in TEXT
    assert f"all five reach .{1e3 * half.min():.0f} to .{1e3 * half.max():.0f}" in TEXT
    difference = statistics.paired(half, SCORES["flush", 1, "result"])
    assert (
        f"ahead of the flush by {hundredths(difference)}: no difference" in TEXT and 0 < difference[0] < difference[1]
    )
    tuning = STALE.query("way == 'longer' and use == 'tuning'").groupby("rate")["validation accuracy"].min()
    assert tuning[tuning > 0.15].index.max() == 0.025


def test_what_is_said_of_the_tie():
    tuning = STALE.query("use == 'tuning' and way == 'current' and stages == 8")
    means = tuning.groupby("rate")["validation accuracy"].mean().round(6)
    assert set(means[means == means.max()].index) == {0.0125, 0.025} and ".0125 and .025 tied with the two" in TEXT
    tied = SCORES["current", 8, "tied rate"]
    assert STALE.query("use == 'tied rate'")["rate"].eq(0.025).all() and len(tied) == 5
    assert (
        tied == 0.1
    ).sum() == 2 and "At .025, which we ran when we had seen the tie, two of five trainings fail" in TEXT


def test_what_is_said_of_slow_messages_and_of_rounds():
    gpipe = [schedules.run(schedules.gpipe(8, 32), 1, 2, message).seconds for message in (0, 0.3)]
    assert gpipe[1] - gpipe[0] == pytest.approx(14 * 0.3) and "14 messages in all" in TEXT
    rounds = [
        collectives.trace(plan(n, 64)).rounds for plan in (collectives.ring, collectives.halving) for n in (16, 4)
    ]
    assert "30 become 6 with the ring, 8 become 4" in TEXT and rounds == [30, 6, 8, 4]
