"""Lines that launchers and ranks print."""

from __future__ import annotations

import pytest

from course_lib.ranks.messages import output
from course_lib.ranks.messages.output import Line


class Stream:
    """Bytes that arrive in pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read(self, _: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def parse(line: str, ranks: int = 2) -> list[Line]:
    return list(output.parse(line, ranks))


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
    assert parse("[1]<stderr>:oh") == [Line(1, "stderr", "oh")]
    assert parse("[1,0]<stdout>:a[1,0]<stdout>:b") == [Line(0, "stdout", "ab")]
    assert parse("[2]<stdout>:who?") == [Line(None, "stdout", "who?")]
    assert parse("[0]<stdout>:") == [Line(0, "stdout", "")]
    assert parse("[0]<stderr>:\x1e{}") == [Line(0, "stderr", "{}", record=True)]
    assert parse("mpirun: oh") == [Line(None, "", "mpirun: oh")]


BAR = "38/58 [==>"
GLOO = "Process 1 exit with status code 137."
MPI = "mpirun noticed that process rank 1 with PID 7 on node a exited on signal 9 (Killed)."


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        (f"[1]<stdout>:{BAR}{GLOO}", [Line(1, "stdout", BAR), Line(None, "", GLOO)]),
        (f"[1,1]<stderr>:{BAR}{MPI}", [Line(1, "stderr", BAR), Line(None, "", MPI)]),
        (f"[0]<stdout>:{BAR}[1]<stdout>:ab", [Line(0, "stdout", BAR), Line(1, "stdout", "ab")]),
        (
            f"[0]<stdout>:{BAR}[1]<stdout>:{BAR}{GLOO}[0]<stdout>:c",
            [Line(0, "stdout", BAR), Line(1, "stdout", BAR), Line(None, "", GLOO), Line(0, "stdout", "c")],
        ),
        (f"[0]<stderr>:{BAR}\x1e{{}}", [Line(0, "stderr", BAR), Line(0, "stderr", "{}", record=True)]),
        (
            f"[0]<stderr>:{BAR}[1]<stderr>:\x1e{{}}",
            [Line(0, "stderr", BAR), Line(1, "stderr", "{}", record=True)],
        ),
    ],
)
def test_what_stands_behind_a_line_that_a_rank_left_open_is_not_its_own(line, pieces):
    assert parse(line) == pieces


@pytest.mark.parametrize(
    "words", [GLOO, f"worker: {GLOO[:-1]}, again", "[5]<stdout>:", "[0]<stdout>:", "[1,1]<stdout>:"]
)
def test_what_a_rank_may_say_itself_stays_its_own(words):
    assert parse(f"[0]<stdout>:{words}") == [Line(0, "stdout", words)]


def test_what_mpirun_prints_of_bars_of_two_ranks():
    printed = (
        b"[1,0]<stderr>:\r0/58 [==>[1,1]<stderr>:\r0/58 [==>\r1/58 [==>[1,0]<stderr>:\r1/58 [==>------------------\n"
        b"Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n"
        b"mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n"
    )
    pieces = [piece for line in output.lines(Stream(printed)) for piece in output.parse(line, 2)]
    ranks = {rank: [piece.text for piece in pieces if piece.rank == rank and piece.text] for rank in (0, 1)}
    assert ranks == {0: ["0/58 [==>", "1/58 [==>------------------"], 1: ["0/58 [==>", "1/58 [==>"]}
    own = [piece.text for piece in pieces if piece.rank is None]
    assert len(own) == 3 and [failed for text in own for failed in output.reported_failures(text)] == [(1, 137)]


def test_a_line_of_nothing_but_tags_is_read_to_its_end():
    assert len(parse("[0]<stdout>:[1]<stdout>:" * 2_000)) == 4_000


def test_what_the_launchers_say_of_failures():
    lines = (GLOO, MPI, "", "Process 0 exit with status code 3.Process 1 exit with status code -15.")
    failures = [list(output.reported_failures(line)) for line in lines]
    assert failures == [[(1, 137)], [(1, 137)], [], [(0, 3), (1, -15)]]


TRACEBACK = """Epoch 1/3
Traceback (most recent call last):
  File "/home/ada/train.py", line 17, in <module>
    model.fit(x, y)
  File "/env/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py", line 70, in error_handler
    raise e.with_traceback(filtered_tb) from None
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "<string>", line 66, in horovod_allreduce
ValueError: no such luck

Terminated
Epoch 2/3"""


def test_an_excerpt_has_the_exception_and_no_frames_of_libraries():
    shown = ["Traceback (most recent call last):", '  File "/home/ada/train.py", line 17, in <module>']
    shown = ["Epoch 1/3", *shown, "    model.fit(x, y)", "ValueError: no such luck", "Epoch 2/3"]
    assert list(output.excerpt(TRACEBACK.splitlines())) == shown
    noise = [f"line {number}" for number in range(100)]
    long = output.excerpt([*noise, *TRACEBACK.splitlines(), *noise])
    assert len(long) == output.EXCERPT_LINES
    assert {"    model.fit(x, y)", "ValueError: no such luck"} <= set(long)


def test_an_excerpt_without_an_exception_is_the_end():
    lines = [f"line {number}" for number in range(100)]
    assert output.excerpt(lines) == tuple(lines[-output.EXCERPT_LINES :])
    assert output.excerpt(["Terminated", ""]) == ("Terminated",)
    assert output.excerpt([]) == ()
