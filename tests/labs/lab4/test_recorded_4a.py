"""What notebook 4a says of its recorded all-reduces is what the table says."""

from __future__ import annotations

import pytest

from tests.labs.notebooks import recorded, text

TEXT = text("4a")


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
    assert f"nearly the same α, {alphas[0]:.2f} and {alphas[1]:.2f} ms" in TEXT
    added = 1e3 * rows["alpha"]["2 ranks, cycle 10 ms"] - alphas[1]
    assert f"adds {added:.1f} ms to α and not 10" in TEXT
    assert f"in one cycle, in {1e3 * rows['median seconds']['2 ranks, cycle 1 ms']:.2f} ms, or in two" in TEXT
    assert rows["alpha"]["2 ranks, cycle 0.1 ms"] / rows["alpha"]["bare TCP message"] > 10


def test_what_the_smallest_tensor_costs_would_pay_for_a_megabyte(table):
    rows = table[table["what"] == "2 ranks, cycle 0.1 ms"].iloc[0]
    # Two ranks: two rounds of n/2 bytes, so n β beside 2 α.
    assert 2 * rows["alpha"] / rows["beta"] == pytest.approx(1e6, rel=0.05)
