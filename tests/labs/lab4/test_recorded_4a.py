"""What notebook 4a says of its recorded all-reduces is what the table says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from course_lib import collectives
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from tests.labs.notebooks import recorded, text

TEXT = text("4a")
LINK, HOST = Link(10e-6, 10e9), {"group": 8, "inner": Link(1e-6, 100e9)}


@pytest.fixture(scope="module")
def table():
    table = recorded("all_reduce")
    return table.assign(off=100 * (table["median seconds"] / table["fitted seconds"] - 1))


def test_how_many_all_reduces_the_line_fits(table):
    off = table[table["what"] != "bare TCP message"]["off"].abs()
    said = f"Of the {len(off)} medians of all-reduces {(off <= 15).sum()} lie within 15 % of their line"
    far = off[off > 40]
    assert f"{said}; three, all with a cycle of 1 ms, are {far.min():.0f} to {far.max():.0f} % above it." in TEXT
    assert len(far) == 3 and set(table.loc[far.index, "what"]) == {"2 ranks, cycle 1 ms"}
    assert (table.loc[far.index, "off"] > 0).all()


def test_what_four_bytes_take_and_the_alphas(table):
    rows = table[table["bytes"] == 4].set_index("what")
    four, two = (rows["median seconds"][f"{ranks} ranks, cycle 0.1 ms"] for ranks in (4, 2))
    assert f"take {1e3 * four:.2f} ms for 4 bytes, two take {1e3 * two:.2f}." in TEXT
    alphas = [1e3 * rows["alpha"][f"{ranks} ranks, cycle 0.1 ms"] for ranks in (4, 2)]
    differ = 100 * (alphas[0] / alphas[1] - 1)
    assert f"The αs of their lines differ by {differ:.0f} %, {alphas[0]:.2f} and {alphas[1]:.2f} ms" in TEXT
    added = 1e3 * rows["alpha"]["2 ranks, cycle 10 ms"] - alphas[1]
    assert f"adds {added:.1f} ms to α and not 10" in TEXT
    assert f"takes one cycle, {1e3 * rows['median seconds']['2 ranks, cycle 1 ms']:.2f} ms, or two" in TEXT
    assert rows["alpha"]["2 ranks, cycle 0.1 ms"] / rows["alpha"]["bare TCP message"] > 10


def test_what_the_smallest_tensor_costs_would_pay_for_a_megabyte(table):
    rows = table[table["what"] == "2 ranks, cycle 0.1 ms"].iloc[0]
    # Two ranks: two rounds of n/2 bytes, so n β beside 2 α.
    assert 2 * rows["alpha"] / rows["beta"] == pytest.approx(1e6, rel=0.05)


def on_hosts(ranks, nbytes):
    """Milliseconds of the three, and of halving with the farthest partner first, on hosts of eight."""
    seconds = {
        "ring": allreduce.ring(ranks, nbytes, LINK, **HOST),
        "hierarchical": allreduce.hierarchical(ranks, nbytes, LINK, **HOST),
        "nearest": allreduce.halving(ranks, nbytes, LINK, **HOST),
        "farthest": allreduce.halving(ranks, nbytes, LINK, **HOST, far_first=True),
    }
    return {name: 1e3 * value for name, value in seconds.items()}


def test_with_the_farthest_partner_first_halving_is_the_fastest_for_small_tensors_and_the_slowest_for_large_ones():
    small, large = on_hosts(1024, 1e6), on_hosts(1024, 100e6)
    assert small["farthest"] < min(small["hierarchical"], small["ring"])
    assert large["farthest"] > 3 * max(large["hierarchical"], large["ring"])
    assert "Farthest first, it is the fastest of the three for small tensors and the slowest for large ones." in TEXT


def test_with_the_nearest_partner_first_halving_loses_in_one_corner_only():
    sizes, ranks = np.logspace(0, 9, 361), 2 ** np.arange(1, 17)[:, None]
    ms = on_hosts(ranks, sizes)
    assert (ms["nearest"] <= ms["hierarchical"] * (1 + 1e-9)).all()
    behind = ms["ring"] < ms["nearest"] * (1 - 1e-9)
    assert "128 to 512 ranks and more than about 400 MB" in TEXT
    assert ranks[behind.any(1)].ravel().tolist() == [128, 256, 512]
    assert sizes[behind.any(0)].min() == pytest.approx(400e6, rel=0.1)
    lead = 100 * (1 - (ms["ring"] / ms["nearest"])[behind].min())
    assert TEXT.count(f"up to {lead:.0f} %") == 2


def test_of_ring_and_hierarchical_all_reduce_none_is_faster_than_halving_where_each_rank_has_its_link():
    sizes, ranks = np.logspace(0, 9, 181), 2 ** np.arange(4, 17)[:, None]
    halving = allreduce.halving(ranks, sizes, LINK) * (1 - 1e-9)
    assert (halving <= allreduce.ring(ranks, sizes, LINK)).all()
    for group in (2, 4, 8, 16):
        assert (halving <= allreduce.hierarchical(ranks, sizes, LINK, group)).all()
    size = allreduce.crossing(
        lambda n, nbytes: allreduce.ring(n, nbytes, LINK),
        lambda n, nbytes: allreduce.hierarchical(n, nbytes, LINK, 8), 1024
    )  # fmt: skip
    assert f"Here the crossing is at {size / 1e6:.1f} MB" in TEXT


def test_what_a_ring_of_1_024_ranks_costs():
    whole, latency = (1e3 * allreduce.ring(1024, nbytes, LINK) for nbytes in (1e3, 0))
    said = f"Of the {whole:.1f} ms for 1 kB, {1e3 * (whole - latency):.1f} µs are for bytes. The rest is the latency of"
    assert f"{said} {2 * 1023:,} rounds" in TEXT


def test_what_a_core_that_is_oversubscribed_four_times_costs():
    ranks, pod = 256, 64
    core = {times: Link(LINK.latency, LINK.bandwidth * pod / times) for times in (1, 4)}
    at_random, slower = np.random.default_rng(0).permutation(ranks), {}
    for name, plan in (("ring", collectives.ring(ranks, ranks)), ("halving", collectives.halving(ranks, ranks))):
        trace = collectives.trace(plan)
        for order, place in (("pod by pod", np.arange(ranks)), ("at random", at_random)):
            moved = replace(trace, source=place[trace.source], target=place[trace.target])
            ms = [allreduce.counted(moved, core[times], pod, inner=LINK, itemsize=10**8 // ranks) for times in (1, 4)]
            slower[name, order] = ms[1] / ms[0]
    assert max(slower["ring", "pod by pod"], slower["halving", "pod by pod"]) < 1.05
    assert min(slower["ring", "at random"], slower["halving", "at random"]) > 2.5
    assert "a core that is oversubscribed four times hardly slows down the ring and halving with the nearest" in TEXT
