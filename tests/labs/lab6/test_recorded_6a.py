"""The numbers that notebook 6a tells stand in the recorded tables."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import statistics
from labs.lab6_beyond_synchronous.lessons import figures_6a
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("6a")


def size(interval, scale=100, digits=1):
    return plus_minus(interval, digits, scale, signed=False)


WORKERS = (2, 4, 8, 16, 32, 64, 128)
STALE = recorded("staleness")


def scores(table, *which):
    return figures_6a.scores_of(table, *which)


COLUMNS = (("asynchronous", 0.0, "asynchronous"), ("even", 0.0, "asynchronous"),
           ("synchronous", 0.9, "asynchronous"), ("long", 0.0, "long"))  # fmt: skip


@pytest.mark.parametrize("workers", WORKERS)
def test_the_table_of_losses(workers):
    cells = []
    for way, momentum, base in COLUMNS:
        rows = figures_6a.lost(STALE, way, momentum, base).set_index("workers")
        cells.append(size(rows.loc[workers]) if workers in rows.index else "–")
    assert f"| {workers} | {' | '.join(cells)} |" in TEXT


def test_there_is_no_threshold():
    lost = figures_6a.lost(STALE, "asynchronous").set_index("workers")
    assert lost["mean"].is_monotonic_increasing
    assert list(lost.index[lost["mean"] > lost["half"]]) == [4, 8, 16, 32, 64, 128]
    assert lost.index[lost["mean"] >= 0.01][0] == 8
    long = figures_6a.lost(STALE, "long", base="long").set_index("workers")
    assert f"32 workers lose {size(long.loc[32])} instead of {size(lost.loc[32])}" in TEXT
    assert f"{size(figures_6a.lost(STALE, 'even').set_index('workers').loc[32])} with 32" in TEXT


def test_what_is_said_of_synchronous_training():
    ahead = {
        workers: statistics.paired(scores(STALE, "synchronous", workers, 0.9), scores(STALE, "asynchronous", workers))
        for workers in WORKERS
    }
    assert f"ahead of asynchronous training by {size(ahead[8])}" in TEXT and ahead[8][0] > ahead[8][1]
    assert f"no difference, {size(ahead[32])}" in TEXT and abs(ahead[32][0]) < ahead[32][1]
    assert f"they lose {size(ahead[128])} more" in TEXT and ahead[128][0] < -ahead[128][1]
    plain = {
        workers: statistics.paired(scores(STALE, "asynchronous", workers), scores(STALE, "synchronous", workers))
        for workers in (8, 32)
    }
    assert f"by {size(plain[8])} with 8 workers and by {size(plain[32])} with 32" in TEXT
    assert all(mean > half for mean, half in plain.values())


def test_what_is_said_of_momentum_and_of_rates_by_staleness():
    gains = {
        workers: statistics.paired(scores(STALE, "asynchronous", workers, 0.9), scores(STALE, "asynchronous", workers))
        for workers in (1, *WORKERS)
    }
    assert all(mean <= half for mean, half in gains.values())
    assert f"With 32, momentum of .9 costs {size(gains[32])}" in TEXT
    behind = {
        workers: statistics.paired(scores(STALE, "asynchronous", workers), scores(STALE, "aware", workers))
        for workers in WORKERS
    }
    assert min(mean for mean, _ in behind.values()) > 0 and "has the lower mean for every N" in TEXT
    assert [workers for workers, (mean, half) in behind.items() if mean > half] == [2, 4, 16, 32, 128]
    assert f"beyond chance with all but 8 and 64 workers: with 32 by {size(behind[32])} hundredths" in TEXT
    assert figures_6a.better(STALE, 32, ("by staleness", "the same")) == "the same"
    assert set(figures_6a.best_rates(STALE, "aware")) == {0.16, 0.32}
    constant = figures_6a.best_rates(STALE, "asynchronous")
    assert (constant[1], constant[2], constant[128]) == (0.16, 0.16, 0.02)
    tuning = STALE.query("use == 'tuning' and workers == 128 and rate == .16 and momentum == 0")
    reached = tuning.groupby("way")["validation accuracy"].mean()
    constant, aware = (100 * reached[way] for way in ("asynchronous", "aware"))
    assert f"accuracy of {constant:.0f} %, that by staleness {aware:.0f} %" in TEXT


def test_what_is_said_of_the_best_momentum():
    table = recorded("implicit_momentum")
    best = figures_6a.best_momenta(table).set_index("workers")
    assert list(best["best"]) == [0.8, 0.7, 0.5, 0.0, -0.5]
    assert (table["momentum"].min(), table["momentum"].max()) == (-0.8, 0.95)
    assert "is .8, .7, .5, 0 and −.5 for 1, 2, 4, 8 and 16 workers" in TEXT
    theory = [figures_6a.explicit(workers, 0.8) for workers in (1, 2, 4)]
    assert theory == pytest.approx([0.8, 0.75, 0.5]) and "Equal age would be .8, .75 and .5" in TEXT
    assert np.isfinite(figures_6a.explicit(5, 0.8)) and np.isnan(figures_6a.explicit(6, 0.8))
    assert (best.loc[2, "low"], best.loc[2, "high"]) == (0.0, 0.8) and "With 2 workers that is 0 to .8" in TEXT
    assert (best.loc[16, "low"], best.loc[16, "high"]) == (-0.8, 0.8) and "With 16 it is −.8 to .8" in TEXT

    def losses(workers, momentum):
        rows = table.query("use == 'result' and workers == @workers and momentum == @momentum")
        return rows.sort_values("seed")["test loss"].to_numpy()

    behind = {one: statistics.paired(losses(16, one), losses(16, -0.5)) for one in set(table["momentum"]) - {-0.5}}
    assert sorted(one for one, (mean, half) in behind.items() if abs(mean) > half) == [0.7, 0.9, 0.95]
    assert "although .7 is worse than the best; so are .9 and .95, and nothing else can be told apart from it" in TEXT
    bumps = np.array([losses(2, 0.3), losses(2, 0.5)])  # by seed, from 1
    assert "seed 6, which nearly diverges at rates that two other seeds had chosen" in TEXT
    assert "its loss is {:.2f} or {:.2f}, that of the other seeds below 0.6".format(*bumps[:, 5]) in TEXT
    assert np.delete(bumps, 5, axis=1).max() < 0.6
    for workers, word in ((1, "one worker is better by"), (8, "that of 8 workers is worse by")):
        change = statistics.paired(losses(workers, 0.8), losses(workers, 0.0))
        assert f"{word} {size(change, 1, 3)}" in TEXT and abs(change[0]) > change[1]


def test_the_table_of_shared_weights():
    table = recorded("hogwild")
    ratios = figures_6a.speeds(table).set_index(["problem", "way"])
    rows = table[table["part"] == "speed"].sort_values("repeat")
    for problem in ("sparse", "ratings", "dense"):
        part = dict(iter(rows[rows["problem"] == problem].groupby("way")))
        speeds = [size(ratios.loc[(problem, way)], 1, 2) for way in ("locked", "lock-free")]
        lost = size(statistics.mean(part["lock-free"]["lost"]), 1_000)
        change = statistics.paired(part["lock-free"]["loss"].to_numpy(), part["alone"]["loss"].to_numpy())
        sign = "−" if change[0] < 0 else "+"
        assert f"| {problem} | {' | '.join(speeds)} | {lost} | {sign}{size(change, 1, 4)} |" in TEXT
        assert abs(change[0]) < change[1]
    assert (ratios["mean"] + ratios["half"]).xs("locked", level="way").max() < 1
    above = (ratios["mean"] - ratios["half"]).xs("lock-free", level="way")
    assert above["sparse"] > 1 and above["ratings"] > 1 and above["dense"] < 1
    alone = rows.query("way == 'alone' and problem == 'sparse'")["updates per second"].mean()
    assert f"takes {1e6 / alone:.0f} µs" in TEXT
    assert 0.6 < 1 / ratios.loc[("sparse", "locked"), "mean"] - 1 < 1  # "the lock adds nearly as much"
    dense = 1_000 * rows[(rows["problem"] == "dense") & (rows["way"] == "lock-free")]["lost"]
    assert f"from {dense.min():.0f} to {dense.max():.0f} of a thousand" in TEXT
    loss = rows[rows["problem"] == "dense"].pivot(index="repeat", columns="way", values="loss")
    rises = loss["lock-free"] - loss["alone"]
    assert f"in all seven repeats, by {rises.min():.4f} to {rises.max():.4f}, and most where" in TEXT
    assert len(rises) == 7 and rises.min() > 0 and rises.argmax() == np.argmax(dense.to_numpy())
    assert f"p = {2 * 0.5**7:.3f}" in TEXT


def test_what_is_lost_is_proportional_to_what_is_shared():
    assert f"share {8 / 500 + 8 / 300:.2f} weights on average" in TEXT
    overlap = recorded("hogwild").query("part == 'overlap'")
    means = overlap.groupby("problem", sort=False)[["common", "lost"]].mean()
    slopes = 100 * means["lost"] / means["common"]
    assert "1.9 updates in a hundred for each weight in common" in TEXT
    assert slopes.between(1.8, 2.05).all()
    assert means["common"].between(0.0095, 1.05).all()
    assert f"and {1_000 * means.loc['10 values', 'lost']:.0f} updates in a thousand are lost" in TEXT
