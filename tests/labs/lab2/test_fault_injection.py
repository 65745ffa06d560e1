"""Killed in the middle of writing."""

from __future__ import annotations

import pytest

from labs.lab2_horovod.lessons import fault_injection


def test_the_file_ends_where_it_was_said(tmp_path):
    path = tmp_path / "a"
    assert fault_injection.while_writing(lambda path, state: path.write_bytes(state), path, b"x" * 100_000, 1234)
    assert path.read_bytes() == b"x" * 1234


def test_nobody_is_killed_who_writes_less(tmp_path):
    path = tmp_path / "a"
    assert not fault_injection.while_writing(lambda path, state: path.write_bytes(state), path, b"x" * 100, 1234)
    assert path.read_bytes() == b"x" * 100


def test_another_failure_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        fault_injection.while_writing(lambda path, state: path.write_bytes(state), tmp_path / "no" / "a", b"", 10)
