"""Lines that launchers and ranks print."""

from __future__ import annotations

import pytest

from course_lib.ranks import output


class Stream:
    """Bytes that arrive in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read(self, _: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def test_lines_come_whole_however_the_bytes_arrive():
    assert list(output.lines(Stream(b"on", b"e\ntw\xc3", b"\xb6\rthree\r", b"\nfour"))) == [
        *("one", "twö", "three", "four")
    ]


def test_an_endless_line_takes_no_memory():
    lines = list(output.lines(Stream(*[b"x" * 10_000] * 1000, b"x\nnext\n", b"y" * 100_000 + b"\nlast\n")))
    assert [(line[:1], len(line)) for line in lines] == [
        ("x", output.MAX_LINE_LENGTH), ("n", 4), ("y", output.MAX_LINE_LENGTH), ("l", 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "batch", "ti',
        "[" * 60_000,
        "7",
        '{"time": 1}',
        '{"kind": ["batch"], "time": 1}',
        '{"kind": "batch", "time": "now"}',
        '{"kind": "batch", "time": 1e999}',
        '{"kind": "batch", "time": NaN}',
        '{"kind": "batch", "time": 1' + "0" * 400 + "}",
    ],
)
def test_a_record_that_makes_no_sense_is_none(text):
    assert output.parse_record(text) is None


def test_a_line_belongs_to_the_rank_in_its_tag():
    assert output.parse_line("[1]<stderr>:oh", ranks=2) == output.Line(1, "stderr", "oh")
    assert output.parse_line("[1,0]<stdout>:a[1,0]<stdout>:b", ranks=2) == output.Line(0, "stdout", "ab")
    assert output.parse_line("[2]<stdout>:who?", ranks=2).rank is None
    assert output.parse_line("[0]<stderr>:\x1e{}", ranks=2) == output.Line(0, "stderr", "{}", record=True)
    assert output.parse_line("mpirun: oh", ranks=2) == output.Line(None, "", "mpirun: oh")


def test_what_the_launchers_say_of_failures():
    gloo = "Process 1 exit with status code 3"
    mpi = "mpirun noticed that process rank 2 with PID 7 on node a exited on signal 9 (Killed)."
    assert [list(output.reported_failures(line)) for line in (gloo, mpi, "")] == [[(1, 3)], [(2, 137)], []]
