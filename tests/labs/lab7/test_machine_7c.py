"""What notebook 7c measures with: compiled programs, kernels, the array of units, and the energy of counted words."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from course_lib.system.errors import CourseError
from labs.lab7_splitting_the_model.lessons import energy, machine, systolic

compiled = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")


@compiled
def test_reads_are_timed_by_size():
    table = machine.hierarchy([8_192, 2**18])
    assert list(table) == ["bytes", "nanoseconds", "gigabytes"] and list(table["bytes"]) == [8_192, 2**18]
    assert (table > 0).all(axis=None) and (table["nanoseconds"] < 10_000).all()


@compiled
def test_products_are_right_with_every_block():
    blocks = [(-1, 64), (0, 64), (1, 64), (2, 24), (4, 64), (8, 10)]
    table = machine.products(64, blocks)  # the program checks its result
    assert list(zip(table["rows"], table["depth"])) == blocks and (table["seconds"] > 0).all()


@compiled
def test_the_race_has_a_row_for_each_block_and_each_kernel(monkeypatch):
    monkeypatch.setattr(machine, "_flags", lambda: {"pni"})
    table = machine.race(64, [(-1, 64), (8, 64)])
    assert table["what"].tolist() == ["registers alone", "C++", "NumPy", "NumPy"]
    assert table["number"].tolist() == ["float32", "float32", "float32", "float64"]
    assert (table["gigaflops"] > 0).all()


def test_without_a_compiler_one_sentence_says_so(monkeypatch, capsys):
    machine.program.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    with pytest.raises(CourseError, match="install g\\+\\+"):
        machine.hierarchy([8_192])
    recorded = pd.DataFrame({"bytes": [1]})
    table, here = machine.live(lambda: machine.hierarchy([8_192]), recorded)
    assert table is recorded and not here
    assert "no C++ compiler" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (subprocess.TimeoutExpired("hierarchy", 200), "was not done after 200 seconds"),
        (PermissionError(13, "Permission denied"), "can't be started (Permission denied): set TMPDIR"),
    ],
)
def test_a_program_that_hangs_or_may_not_start_gives_what_was_recorded(monkeypatch, capsys, error, said):
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(machine, "program", lambda name: name)
    monkeypatch.setattr(machine.subprocess, "run", fails)
    recorded = pd.DataFrame({"bytes": [1]})
    table, here = machine.live(lambda: machine.hierarchy([8_192]), recorded)
    assert table is recorded and not here
    assert said in capsys.readouterr().out


@compiled
def test_a_source_that_does_not_compile_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    (tmp_path / "broken.cpp").write_text("int main( {")
    with pytest.raises(CourseError, match=r"does not compile broken\.cpp: .*error"):
        machine.program("broken")


def test_only_kernels_that_the_processor_has_are_run(monkeypatch):
    monkeypatch.setattr(machine, "_flags", lambda: {"pni"})
    table = machine.lanes(32)
    assert set(table["kernels"]) == {"Prescott"} and (table["flops"] > 0).all()
    assert dict(zip(table["number"], table["lanes"])) == {"float32": 4, "float64": 2}
    monkeypatch.setattr(machine, "_flags", set)
    assert machine.lanes(32).empty and "gigaflops" not in machine.lanes(32)


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize(("batch", "tiles", "side"), [(1, 1, 4), (5, 3, 4), (2, 4, 3)])
def test_a_systolic_array_multiplies(batch, tiles, side, buffered):
    random = np.random.default_rng(1)
    weights, inputs = random.normal(size=(tiles, side, side)), random.normal(size=(tiles, batch, side))
    record = systolic.systolic(weights, inputs, buffered)
    assert np.allclose(record.outputs, inputs @ weights)
    assert record.busy.sum() == tiles * batch * side * side
    assert record.utilisation == pytest.approx(tiles * batch / record.cycles)
    assert not record.busy[:side].any() and record.busy[-1, -1, -1]


def test_inputs_move_right_and_sums_down():
    busy = systolic.layer(batch=1, tiles=1, side=3).busy
    assert [np.argwhere(now).tolist() for now in busy[3:5]] == [[[0, 0]], [[0, 1], [1, 0]]]


def test_a_tree_adds_in_pairs():
    weights, inputs = np.ones((2, 16, 16)), np.ones((2, 5, 16))
    record = systolic.tree(weights, inputs)
    assert record.cycles == 2 * (16 + 5 + 4) and np.all(record.outputs == 16)
    assert record.busy.sum() == 2 * 5 * 256


def test_energy_is_the_table_times_counted_words():
    found = energy.per_multiply_add(1, 128, 128, energy.ROW_BY_ROW)
    assert found["arithmetic"] == 25 and found["registers"] == pytest.approx(4 * 0.42)
    assert found["DRAM"] == pytest.approx(2_560 * (128 * 128 + 128 + 2 * 128) / 128**2)
    small = energy.per_multiply_add(8, 16, 16, energy.BLOCKED, bits=16)
    assert small["DRAM"] == pytest.approx(640 * (16 * 16 + 8 * 16 + 2 * 8 * 16) / (8 * 16 * 16))
