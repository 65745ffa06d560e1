"""Files are there whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from course_lib.system import files


def test_many_write_at_the_same_time(tmp_path):
    path = tmp_path / "new" / "file"
    contents = [bytes([number]) * 100_000 for number in range(3)]

    def write(content: bytes) -> None:
        for _ in range(200):
            files.write(path, content)
            assert path.read_bytes() in contents

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, contents))
    assert [left.name for left in path.parent.iterdir()] == ["file"]


def test_who_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as draft:
        draft.write_bytes(b"ne")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert [left.name for left in tmp_path.iterdir()] == ["file"]
