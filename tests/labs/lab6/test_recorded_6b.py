"""The numbers that notebook 6b tells stand in the recorded tables."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import statistics
from labs.lab6_beyond_synchronous.lessons import figures_6b, gossip
from labs.lab6_beyond_synchronous.lessons.figures_6b import setting
from tests.labs.notebooks import recorded, text

TEXT = text("6b")
PERIODS = (1, 4, 16, 64)
RUNS = recorded("fewer_meetings")
WIRE = recorded("meetings_wire")
FOUND = figures_6b.summary(RUNS).set_index(figures_6b.BY).sort_index()


def updates(row):
    """Updates with their interval, or how many runs reached the target."""
    return f"{row['mean']:.0f} ± {row['half']:.0f}" if row["reached"] == row["runs"] else f"{row['reached']:.0f} of 5"


def more(runs, ours, theirs):
    """Updates more, as told; beyond chance."""
    mean, half = figures_6b.more(runs, ours, theirs)
    assert abs(mean) > half
    return f"{abs(mean):.0f} ± {half:.0f}"


def test_the_wire():
    seconds = WIRE.set_index(["link", "period"])["seconds"]

    def ms(link, period):
        return f"{1e3 * seconds[link, period]:.2f} ms"

    assert f"takes {ms('100 Mbit/s', 1)} with H = 1 and {ms('100 Mbit/s', 64)} with H = 64" in TEXT
    assert f"at 1 Gbit/s {ms('1 Gbit/s', 1)} and {ms('1 Gbit/s', 64)}" in TEXT


@pytest.mark.parametrize("period", PERIODS)
def test_the_table_of_two_real_ranks(period):
    seconds = figures_6b.seconds_to_target(RUNS, WIRE).set_index(["link", "period"])
    cells = [updates(FOUND.loc[setting("local", period, ranks=2)])]
    for link in ("1 Gbit/s", "100 Mbit/s"):
        row = seconds.loc[(link, period)]
        cells.append(f"{1e3 * row['mean']:.0f} ± {1e3 * row['half']:.0f} ms")
    assert f"| {period} | {' | '.join(cells)} |" in TEXT


def test_what_is_said_of_two_real_ranks():
    change = more(RUNS, setting("local", 64, ranks=2), setting("local", ranks=2))
    assert f"with H = 64 {change} more than with H = 1" in TEXT
    seconds = figures_6b.seconds_to_target(RUNS, WIRE).set_index(["link", "period"])
    for link in ("1 Gbit/s", "100 Mbit/s"):
        often, rarely = seconds.loc[(link, 1)], seconds.loc[(link, 64)]
        assert often["mean"] - often["half"] > 2 * (rarely["mean"] + rarely["half"])
    by_link = WIRE.set_index(["link", "period"])["seconds"]
    meeting = {link: by_link[link, 1] - by_link[link, 64] for link in ("1 Gbit/s", "100 Mbit/s")}
    assert 1 < meeting["100 Mbit/s"] / meeting["1 Gbit/s"] < 5


@pytest.mark.parametrize("period", PERIODS)
def test_the_table_of_local_sgd(period):
    cells = [updates(FOUND.loc[setting("local", period, own=own)]) for own in (False, True)]
    assert f"| {period} | {' | '.join(cells)} |" in TEXT


@pytest.mark.parametrize("ranks", [4, 16, 32])
def test_the_table_of_gossip(ranks):
    cells = [updates(FOUND.loc[setting(way, ranks=ranks, own=True)]) for way in ("local", "random pairs", "ring")]
    assert f"| {ranks} | {' | '.join(cells)} |" in TEXT


def test_what_is_said_of_the_costs():
    once = setting("local")
    assert f"H = 4 needs {more(RUNS, setting('local', 4), once)} more than H = 1" in TEXT
    assert f"and H = 64 {more(RUNS, setting('local', 64), once)} more" in TEXT
    ends = [f"{FOUND.loc[setting('local', period, own=True), 'accuracy']:.2f}" for period in (16, 64)]
    assert f"at the end is {ends[0]} with H = 16 and {ends[1]} with H = 64" in TEXT
    assert f"it needs {more(RUNS, setting('elastic', pull=0.9), once)} updates more than the plain mean" in TEXT
    springs = [setting("elastic", 16, pull=pull, own=own) for pull, own in ((0.9, False), (0.3, False), (0.9, True))]
    assert [FOUND.loc[one, "reached"] for one in springs] == [4, 0, 0]
    local, elastic = setting("local", 16, momentum=0.9), setting("elastic", 16, momentum=0.9, pull=0.9)
    assert f"saves local SGD with H = 16 {more(RUNS, setting('local', 16), local)} updates" in TEXT
    assert f"then needs {more(RUNS, elastic, local)} more than local SGD with momentum" in TEXT
    assert figures_6b.more(RUNS, elastic, local)[0] > 0


def test_a_tie_decided_the_rate_at_h_1():
    tuning = RUNS[(RUNS["use"] == "tuning")]
    here = tuning[(tuning[figures_6b.BY] == list(setting("local"))).all(axis=1)]
    scores = here.groupby("rate")["score"].mean()
    assert list(scores.index[scores == scores.max()]) == [0.2, 0.4]
    plain, own = (FOUND.loc[setting("local", own=own)] for own in (False, True))
    assert (plain["rate"], own["rate"]) == (0.2, 0.4)
    assert f"own classes need fewer updates ({own['mean']:.0f} against {plain['mean']:.0f})" in TEXT
    assert "They chose the rate 0.4, all classes 0.2 by a tie with 0.4" in TEXT
    difference, half = statistics.unpaired(*(figures_6b.updates(RUNS, setting("local", own=x)) for x in (False, True)))
    assert difference > half


def test_what_is_said_of_gossip():
    pairs, ring = (setting(way, ranks=4, own=True) for way in ("random pairs", "ring"))
    assert f"and need {more(RUNS, pairs, ring)} updates fewer" in TEXT and FOUND.loc[ring, "mean"] < 300
    ends = [f"{FOUND.loc[setting('ring', ranks=ranks, own=True), 'accuracy']:.2f}" for ranks in (16, 32)]
    assert f"the mean accuracy in the ring is {ends[0]} and {ends[1]}" in TEXT
    for ranks in (4, 16):
        for way in ("ring", "random pairs"):
            mean, half = figures_6b.more(RUNS, setting(way, ranks=ranks), setting("local", ranks=ranks))
            assert abs(mean) <= half
    mean, half = figures_6b.more(RUNS, setting("random pairs", ranks=4), setting("local", ranks=4))
    assert f"random pairs: {mean:.0f} ± {half:.0f} updates" in TEXT
    late = {way: more(RUNS, setting(way, ranks=32), setting("local", ranks=32)) for way in ("ring", "random pairs")}
    assert f"the ring needs {late['ring']} updates more and random pairs {late['random pairs']} more" in TEXT
    assert FOUND.loc[setting("fixed pairs"), "reached"] == 5
    assert f"but need {more(RUNS, setting('fixed pairs'), setting('local'))} updates more" in TEXT


def test_the_eigenvalues_that_are_told():
    def pairs(ranks):
        return (0.5 - 0.5 / (ranks - 1)) ** 0.5

    def ring(ranks):
        return (1 + 2 * np.cos(2 * np.pi / ranks)) / 3

    for ranks in (4, 16, 32):
        values = np.sort(np.abs(np.linalg.eigvalsh(gossip.ring(ranks))))
        assert values[-2] == pytest.approx(ring(ranks))
    assert f"in the ring ({ring(4):.2f} a round) than in random pairs ({pairs(4):.2f})" in TEXT
    assert f"({ring(16):.2f} against {pairs(16):.2f}), and with 32 far more so ({ring(32):.2f} against" in TEXT
    assert f"against {pairs(32):.2f}): the mean accuracy" in TEXT
    assert np.log(1e-3) / np.log(ring(32)) > 500 and 6 < np.log(1e-3) / np.log(ring(4)) < 7
