"""The numbers that notebook 6c tells stand in the recorded tables."""

from __future__ import annotations

import pytest

from labs.lab6_beyond_synchronous.lessons import dense_training, figures_6c
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("6c")
DENSE = ("dense", 1.0)
RATIOS = (0.1, 0.01, 0.001)
RUNS = recorded("send_less")
LINK = recorded("send_less_seconds").set_index(["link", "name"])


def size(interval):
    """Hundredths, without their sign."""
    return plus_minus(interval, signed=False)


def signed(interval):
    sign = "" if abs(interval[0]) < 0.05 else "+" if interval[0] > 0 else "−"
    return sign + size(interval)


@pytest.mark.parametrize("way", figures_6c.LADDER)
def test_the_table_of_the_ladder(way):
    cells = [signed(figures_6c.ahead(RUNS, (way, ratio), DENSE)) for ratio in RATIOS]
    assert f"| {figures_6c.LADDER[way]} | {' | '.join(cells)} |" in TEXT


def test_what_the_ladder_s_sentences_say():
    gains = {r: figures_6c.ahead(RUNS, ("memory", r), ("nothing kept", r)) for r in RATIOS}
    assert f"1 of 100 and 1 of 1,000: {size(gains[0.01])} and {size(gains[0.001])}" in TEXT
    steps = list(figures_6c.LADDER)
    for ratio in (0.01, 0.001):
        others = [figures_6c.ahead(RUNS, (b, ratio), (a, ratio))[0] for a, b in zip(steps[1:], steps[2:])]
        assert gains[ratio][0] > max(others)
    for ratio in RATIOS:
        difference, half = figures_6c.ahead(RUNS, ("momentum before", ratio), ("memory", ratio))
        assert abs(difference) < half
    rates = figures_6c.summary(RUNS).set_index(["way", "amount"])["rate"]
    assert rates["memory", 0.001] == pytest.approx(rates["momentum before", 0.001] / 2, rel=0.02)
    whole = [size(figures_6c.ahead(RUNS, ("warm-up", r), ("memory", r))) for r in (0.01, 0.001)]
    assert f"gains {whole[0]} over memory with momentum after at 1 of 100, and {whole[1]} at 1 of 1,000" in TEXT
    assert (
        abs(figures_6c.ahead(RUNS, ("warm-up", 0.01), DENSE)[0]) < figures_6c.ahead(RUNS, ("warm-up", 0.01), DENSE)[1]
    )
    assert f"With 1 of 1,000 it loses {size(figures_6c.ahead(RUNS, ('warm-up', 0.001), DENSE))}" in TEXT
    better = [step for step in steps if (gain := figures_6c.ahead(RUNS, (step, 0.1), DENSE))[0] > gain[1]]
    assert better == ["masking", "clipping", "warm-up"] and "is so from masking on" in TEXT
    later = round((1 - dense_training.WARM_UP) * dense_training.UPDATES)
    size_of_one = 4 + 4  # bytes of a number and of its position
    numbers = int(figures_6c.summary(RUNS).set_index(["way", "amount"]).loc[("memory", 0.001), "bytes"] / size_of_one)
    weights = figures_6c.summary(RUNS).set_index(["way", "amount"]).loc[DENSE, "bytes"] / 4
    assert f"sends {numbers} numbers in an update, {later * numbers:,} in the other {later}, fewer than half" in TEXT
    assert later * numbers < weights / 2


def test_signs():
    before, after = "signs, momentum before", "signs"
    worse = figures_6c.ahead(RUNS, (after, 1), (f"{after}, nothing kept", 1))
    assert worse[0] < -worse[1] and f"makes signs *worse*: {size(worse)}" in TEXT
    for kept in ("", ", nothing kept"):
        gain, half = figures_6c.ahead(RUNS, (before + kept, 1), (after + kept, 1))
        assert gain > half
    good = figures_6c.ahead(RUNS, (f"{before}, nothing kept", 1), DENSE)
    assert good[0] + good[1] > 0 and f"as good as dense training ({signed(good)})" in TEXT
    worse = figures_6c.ahead(RUNS, (before, 1), (f"{before}, nothing kept", 1))
    assert f"With a memory they are worse by {size(worse)}" in TEXT


def test_low_rank():
    four, one = (figures_6c.ahead(RUNS, ("low rank", rank), DENSE) for rank in (4, 1))
    assert abs(four[0]) < four[1] and f"nothing beyond chance, {size(four)}," in TEXT
    bare = figures_6c.ahead(RUNS, ("low rank, nothing kept", 1), DENSE)
    assert f"With r = 1 it loses {size(one)}; without a memory {size(bare)}" in TEXT


def test_bytes():
    found = figures_6c.summary(RUNS).set_index(["way", "amount"])["bytes"].map("{:,.0f}".format)
    assert f"{found['warm-up', 0.001]} bytes in an update on average, not {found['memory', 0.001]}" in TEXT
    assert f"needs {found['warm-up', 0.01]} bytes in an update (warm-up included), signs" in TEXT
    signs = "signs, momentum before, nothing kept"
    assert f"and no memory {found[signs, 1]}: both lose nothing against {found[DENSE]}" in TEXT
    for way in (("warm-up", 0.01), (signs, 1)):
        ahead, half = figures_6c.ahead(RUNS, way, DENSE)
        assert ahead + half > 0
    assert f"with {found['signs', 1]} bytes in place of {found[DENSE]}" in TEXT
    assert f"with {found['low rank', 4]} bytes" in TEXT


def test_the_slow_link():
    def ms(name, where="100 Mbit/s"):
        return f"{1e3 * LINK.loc[(where, name), 'seconds per step']:.0f} ms"

    assert f"{ms('dense')} become {ms('largest 1/100')} with 1 of 100" in TEXT
    assert f"with 1 of 1,000 a step takes {ms('largest 1/1,000')}" in TEXT
    assert f"Low rank with four columns takes {ms('low rank, 4')}" in TEXT
    row = LINK.loc[("100 Mbit/s", "largest 1/1,000")]
    assert f"counts {row['bytes of the card']:,.0f} bytes for the {row['bytes']:,.0f} that" in TEXT
    assert LINK.loc["no limit", "seconds per step"].idxmin() == "dense" and "the dense step is the quickest" in TEXT
