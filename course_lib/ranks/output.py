"""What the launcher and the ranks print, line by line, and what the lines say."""

from __future__ import annotations

import codecs
import io
import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from course_lib.ranks.channel import MARK

MAX_LINE_LENGTH = 2**16  # characters; the rest of a line is dropped
MAX_TIME_S = 1e11  # since the epoch: a time beyond that is none

_TAG = re.compile(r"^\[(?:\d+,)?(\d{1,9})\]<(stdout|stderr)>:")
_MPI_TAG = re.compile(r"\[\d+,\d+\]<(?:stdout|stderr)>:")
_FAILED = (
    re.compile(r"Process (?P<rank>\d{1,9}) exit with status code (?P<code>-?\d{1,9})"),  # horovodrun over Gloo
    re.compile(r"process rank (?P<rank>\d{1,9}) with PID .* exited on signal (?P<signal>\d{1,3})"),  # mpirun
)
_LAUNCHER_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (?P<reason>.+)")


@dataclass(frozen=True)
class Line:
    """One line: the rank that wrote it (None: the launcher), to which stream, its text; `record` where it is meant
    for the launcher alone."""

    rank: int | None
    stream: str
    text: str
    record: bool = False


def lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, of each the first MAX_LINE_LENGTH characters."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    rest, cut = "", False
    while chunk := stream.read(2**16):
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in whole:
            if not cut:
                yield line[:MAX_LINE_LENGTH]
            cut = False
        if len(rest) > MAX_LINE_LENGTH and not cut:
            yield rest[:MAX_LINE_LENGTH]
            cut = True
        rest = "" if cut else rest
    if rest:
        yield rest


def parse_line(line: str, ranks: int) -> Line:
    """A line as the launcher prints it, behind the tag of one of `ranks` ranks or without."""
    tag = _TAG.match(line)
    if not tag:
        return Line(None, "", line)
    rank = int(tag.group(1)) if int(tag.group(1)) < ranks else None
    text = line[tag.end() :]
    if rank is not None and MARK in text:
        return Line(rank, tag.group(2), text.partition(MARK)[2], record=True)
    return Line(rank, tag.group(2), _MPI_TAG.sub("", text) if "," in tag.group() else text)


def parse_record(text: str) -> dict | None:
    """A rank's record; None for what is none: cut short by a kill, or the script's own invention."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return None
    when = record.get("time")
    return record if isinstance(when, (int, float)) and abs(when) < MAX_TIME_S else None


def reported_failures(text: str) -> Iterator[tuple[int, int]]:
    """The ranks that the launcher says have failed in this line, each with its exit code (128 + n for signal n)."""
    for pattern in _FAILED:
        if found := pattern.search(text):
            groups = found.groupdict()
            yield int(groups["rank"]), int(groups["code"]) if "code" in groups else 128 + int(groups["signal"])


def launcher_error(tail: tuple[str, ...], code: int) -> str:
    """Why the launcher ended with `code`, from the last lines that it printed."""
    reasons = [found.group("reason") for line in tail if (found := _LAUNCHER_ERROR.match(line))]
    return reasons[-1] if reasons else next((line for line in reversed(tail) if line.strip()), f"exit code {code}")


def signal_name(number: int) -> str:
    """A signal in words: "signal 9 (SIGKILL)"."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
