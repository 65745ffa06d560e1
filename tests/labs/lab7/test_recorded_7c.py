"""The numbers that notebook 7c tells stand in the recorded tables, or are what the simulation counts."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.notebook import experiments
from labs.lab7_splitting_the_model.lessons import checks_7c, energy, systolic
from tests.labs.notebooks import recorded, text

TEXT = text("7c")

KIB, MIB = 2**10, 2**20


def provenance(name, fact):
    return experiments.provenance(experiments.find()[name])[fact]


def test_what_is_said_of_energy():
    spent = recorded("layer_energy").set_index(["order", "batch"])
    rows, blocked = (spent.loc[name] for name in ("row by row", "blocked"))
    assert rows["DRAM"].nunique() == 1
    assert f"DRAM takes {rows['DRAM'][1] / rows['arithmetic'][1]:.0f} times the energy of arithmetic" in TEXT
    assert f"DRAM falls from {blocked['DRAM'][1]:,.0f} to {blocked['DRAM'][64]:.0f} pJ" in TEXT
    assert f"{blocked['SRAM'][64]:.1f} pJ instead of {rows['SRAM'][64]:.1f}" in TEXT
    assert f"leaves DRAM at {blocked['DRAM'][64] / blocked['arithmetic'][64]:.0f} times" in TEXT
    assert energy.SRAM * 4 == 128 * 128 and "holds a quarter of the weights" in TEXT


def test_the_recorded_energy_is_what_is_counted():
    spent = recorded("layer_energy").set_index(["order", "batch"])
    for name, order in (("row by row", energy.ROW_BY_ROW), ("blocked", energy.BLOCKED)):
        for source, found in energy.per_multiply_add(2, 128, 128, order).items():
            assert spent.loc[(name, 2), source] == pytest.approx(found, abs=1e-3)


def test_what_is_said_of_the_hierarchy():
    table = recorded("memory_hierarchy").groupby("bytes")[["nanoseconds", "gigabytes"]].median()
    wait, rate = table["nanoseconds"], table["gigabytes"]
    far = wait[64 * MIB]
    assert (
        f"took {wait[8 * KIB]:.1f} ns in 8 KiB, {wait[64 * KIB]:.1f} ns in 64 KiB, {wait[2 * MIB]:.0f} ns in 2 MiB and "
        f"{far:.0f} ns in 64 MiB: {far / wait[8 * KIB]:.0f} times as long" in TEXT
    )
    assert f"far smaller: {rate[128 * KIB]:.0f} GB/s in 128 KiB, and {rate[64 * MIB]:.0f} GB/s in 64 MiB" in TEXT
    assert f"That is {far * rate[64 * MIB] / 8:.0f} numbers of 8 bytes" in TEXT
    assert wait[6 * MIB] > 0.75 * far > 5 * wait[3 * MIB] and "from 6 MiB on" in TEXT
    assert f"L3 {32 * MIB}" in provenance("memory_hierarchy", "caches") and "an L3 of 32 MiB" in TEXT


def test_what_is_said_of_products():
    table = recorded("blocked_product")
    blocks = table[table["what"] == "C++"].groupby(["rows", "depth"])["gigaflops"].median()
    naive, one, eight = (blocks[rows, 1_056] for rows in (0, 1, 8))
    assert f"reached {naive:.1f} GFLOP/s, a block of 1 row {one:.1f}, of 8 rows {eight:.1f}" in TEXT
    assert f"{eight / one:.1f} times as much as with 1 row, and {eight / naive:.0f} times" in TEXT
    assert f"products at a time it was {blocks[8, 256]:.1f}" in TEXT and "lost a tenth" in TEXT
    assert blocks[8, 256] / blocks[8, 1_056] == pytest.approx(0.9, abs=0.03)
    peak = table.loc[table["what"] == "registers alone", "gigaflops"].median()
    assert f"In registers alone the same core makes {peak:.1f} GFLOP/s" in TEXT
    assert f"{100 * naive / peak:.0f} % for row times column and {100 * eight / peak:.0f} % for the block" in TEXT
    numpy = table[table["what"] == "NumPy"].groupby(["kernels", "number"])["gigaflops"].agg(["median", "min", "max"])
    single, double = (numpy.xs(number, level="number") for number in ("float32", "float64"))
    assert ((single / double)["median"].between(1.9, 2.1)).all()
    gain = single["median"]["Haswell"] / single["median"]["Prescott"]
    assert f"With 256 bits it was {gain:.1f} times as fast as with 128" in TEXT
    assert f"{single['median']['Haswell']:.1f} and {single['median']['SkylakeX']:.1f} GFLOP/s, the ranges" in TEXT
    assert single["min"]["SkylakeX"] < single["max"]["Haswell"] and single["min"]["Haswell"] < single["max"]["SkylakeX"]
    assert single["min"]["Haswell"] < eight < single["max"]["Haswell"]  # as fast as NumPy
    assert f"take {1_056 * 32 * 4 / 1_000:.0f} KB" in TEXT


def test_what_is_said_of_the_arrays(answer):
    assert "16 of its 21 cycles" in TEXT and checks_7c.ONE_BY_ONE[1, 1, 16] == 47
    assert systolic.tree(np.ones((1, 16, 16)), np.ones((1, 1, 16))).cycles == 21
    assert "Loading takes 16 cycles, and the wave 30 more" in TEXT
    assert f"meet at {45e12 / 600e9:.0f} FLOP for each byte" in TEXT
    cycles = answer("7c_data_movement", "cycles")
    assert cycles(128, 1_000, 128, True) / 1_000 == pytest.approx(128, rel=0.01)


def test_what_a_word_costs_in_the_summary():
    costs = energy.PICOJOULES
    for bits, word in ((64, "a hundred"), (16, "eight hundred")):
        ratio = costs[bits]["DRAM"] / costs[bits][["add", "multiply"]].sum()
        assert word in TEXT and ratio == pytest.approx({64: 100, 16: 800}[bits], rel=0.03)


@pytest.mark.parametrize(("name", "told"), [("layer_energy", "about 20 seconds"), ("memory_hierarchy", "half a minute"),
                                            ("blocked_product", "about 22 seconds")])  # fmt: skip
def test_the_stated_seconds_are_those_of_the_recording(name, told):
    seconds = {"about 20 seconds": 20, "half a minute": 30, "about 22 seconds": 22}[told]
    assert abs(int(provenance(name, "seconds")) - seconds) <= 2
    assert told in TEXT and provenance(name, "command") == f"course reproduce {name}"
