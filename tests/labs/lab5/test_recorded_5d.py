"""The numbers that notebook 5d tells stand in the recorded tables."""

from __future__ import annotations

from functools import partial

import pytest

from course_lib import statistics
from labs.lab5_precision_and_memory.lessons import figures_5d, pruning
from tests.labs.notebooks import by_seed, plus_minus, recorded, text

TEXT = text("5d")
hundredths = partial(plus_minus, scale=100, signed=False)
WAYS = ("not retrained", "at once", "gradual", "rows", "filters")
DENSITIES = (0.5, 0.2, 0.1, 0.05, 0.02)
PRUNED = by_seed(recorded("pruning").query("use == 'result'"), ["way", "density"])
NETWORKS = by_seed(recorded("recurrent").query("use == 'result'"), "network")


@pytest.mark.parametrize("density", DENSITIES)
def test_the_table_of_losses(density):
    losses = [statistics.paired(PRUNED["dense", 1.0], PRUNED[way, density]) for way in WAYS]
    assert all(mean > 0 for mean, _ in losses)
    assert f"| {str(density)[1:]} | {' | '.join(map(hundredths, losses))} |" in TEXT


def test_what_is_said_of_pruning():
    dense, chance = PRUNED["dense", 1.0], statistics.paired(PRUNED["at once", 0.1], PRUNED["random", 0.1])
    assert f"can go for {hundredths(statistics.paired(dense, PRUNED['gradual', 0.1]))} hundredths" in TEXT
    assert f"they cost {hundredths(statistics.paired(dense, PRUNED['not retrained', 0.1]))}" in TEXT
    gains = {
        density: statistics.paired(PRUNED["gradual", density], PRUNED["at once", density]) for density in DENSITIES
    }
    assert f"better than pruning at once by {hundredths(gains[0.1])}. At a fiftieth, with rates" in TEXT
    assert f"chosen at a tenth, it is so by {hundredths(gains[0.02])}" in TEXT
    assert all(gains[density][0] > gains[density][1] for density in (0.1, 0.02))
    assert f"random mask costs {hundredths(statistics.paired(dense, PRUNED['random', 0.1]))} at a tenth" in TEXT
    assert f"ahead of it by {hundredths(chance)}, which may be chance" in TEXT and 0 < chance[0] < chance[1]


def test_what_is_said_of_grains():
    rows = {density: statistics.paired(PRUNED["at once", density], PRUNED["rows", density]) for density in DENSITIES}
    assert [density for density, (mean, half) in rows.items() if abs(mean) > half] == [0.1] and len(rows) == 5
    assert "larger than its interval, as one of five may be by chance" in TEXT
    assert f"the difference, {hundredths(rows[0.1], 2)} hundredths" in TEXT
    filters = [statistics.paired(PRUNED["at once", density], PRUNED["filters", density]) for density in (0.2, 0.1)]
    assert f"{hundredths(filters[0])} hundredths at a fifth, {hundredths(filters[1])} at a tenth" in TEXT
    by_grain = [figures_5d.kept_bytes(way, 0.05) / 1_000 for way in ("rows", "at once")]
    assert "{:.1f} instead of {:.1f} kilobytes at a density of .05".format(*by_grain) in TEXT


def test_what_is_said_of_equal_bytes():
    def kilobytes(way, density):
        return f"{figures_5d.kept_bytes(way, density) / 1_000:.1f}"

    def reach(way, density):
        return f"{PRUNED[way, density].mean():.3f}"

    pairs = [(("filters", 0.2), ("at once", 0.05)), (("filters", 0.1), ("at once", 0.02))]
    (ours, theirs), (fewer, few) = pairs
    assert figures_5d.matching_bytes(recorded("pruning"), *ours) == figures_5d.kept_bytes(*theirs)
    assert f"the two kernels so take {kilobytes(*ours)} kilobytes" in TEXT
    assert f"Filters with {kilobytes(*ours)} kilobytes reach {reach(*ours)}, single weights" in TEXT
    assert f"with {kilobytes(*theirs)}, positions included, {reach(*theirs)}." in TEXT
    assert f"With {kilobytes(*fewer)} they reach {reach(*fewer)}, single weights with {kilobytes(*few)}" in TEXT
    assert (
        f"{reach(*few)}: {hundredths(statistics.paired(PRUNED[few], PRUNED[fewer]))} hundredths, which may be" in TEXT
    )
    for filters, single in pairs:
        mean, half = statistics.paired(PRUNED[filters], PRUNED[single])
        assert abs(mean) < half


def test_the_filters_that_stay_and_what_reads_them():
    weights = pruning.initial_weights(1)
    kernels = [kernel for kernel in weights if kernel.ndim == 4][1:]
    masks = [pruning.mask(kernel, 0.2, "filters") for kernel in kernels]
    second, third = (mask.any((0, 1, 2)) for mask in masks)
    assert f"{second.sum()} of {second.size} and {third.sum()} of {third.size} filters stay" in TEXT
    live = masks[1][:, :, second].sum()
    assert f"third kernel's {masks[1].sum():,} weights only {third.sum()} · {second.sum()} · 9 = {live} read" in TEXT
    whole = masks[0].sum() + live
    assert f"second kernel's {masks[0].sum()} that makes {whole:,}" in TEXT and figures_5d.live_weights(0.2) == whole


def test_every_way_was_tuned_at_a_tenth():
    assert set(recorded("pruning").query("use == 'tuning' and way != 'dense'")["density"]) == {0.1}


def test_what_is_said_of_the_recurrent_networks():
    small, large = NETWORKS["32 units, dense"], NETWORKS["128 units, dense"]
    pruned, tenth = NETWORKS["128 units, pruned to 5,888"], NETWORKS["32 units, pruned to 10 %"]
    assert f"is better by {hundredths(statistics.paired(large, small))} hundredths" in TEXT
    assert f"loses {hundredths(statistics.paired(large, pruned))} of that" in TEXT
    none = statistics.paired(pruned, small)
    assert f"no difference can be shown, {hundredths(none)}" in TEXT and abs(none[0]) < none[1]
    assert f"loses {hundredths([part / small.mean() for part in statistics.paired(small, tenth)])} % of its" in TEXT
