"""Parse the output of launcher and ranks, line by line."""

from __future__ import annotations

import codecs
import io
import json
import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from course_lib.ranks.rank import MARK

MAX_LINE_LENGTH = 2**16  # characters; the rest of a line is dropped
EXCERPT_LINES = 9
PROGRAM_FOLDER = Path(__file__).parents[1]  # excerpts of tracebacks leave out frames of this folder
MAX_TIME_S = 1e11  # since the epoch: a larger time is invalid

_TAG = re.compile(r"\[(?P<job>\d+,)?(?P<rank>\d{1,9})\]<(?P<stream>stdout|stderr)>:")  # `job`: by mpirun
_FAILED = (
    re.compile(r"Process (?P<rank>\d{1,9}) exit with status code (?P<code>-?\d{1,9})"),  # horovodrun over Gloo
    re.compile(r"process rank (?P<rank>\d{1,9}) with PID .* exited on signal (?P<signal>\d{1,3})"),  # mpirun
)
# The same messages after a rank's output on the same line; only further messages may follow.
_NOTE = re.compile(
    r"(?:Process \d{1,9} exit with status code -?\d{1,9}\.(?=$|Process \d|Terminating |\[\d)"
    r"|\w+run noticed that process rank \d{1,9} with PID .* exited on signal \d{1,3})"
)
_LIBRARY_FRAME = re.compile(
    rf'\s*File "(?:[^"]*/(?:site-packages|dist-packages|lib/python3\.\d+)/|<|{re.escape(str(PROGRAM_FOLDER))}/)'
)
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")
_LAUNCHER_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (?P<reason>.+)")


@dataclass(frozen=True)
class Line:
    """One line of output.

    Attributes:
        rank: the rank that wrote it; None: the launcher.
        stream: "stdout" or "stderr"; "" for the launcher.
        record: whether the line is a record for the launcher, not output for the user.
    """

    rank: int | None
    stream: str
    text: str
    record: bool = False


def lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, each cut after MAX_LINE_LENGTH characters. A carriage return also ends a line."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=False)
    rest, cut, tag = "", False, ""
    while chunk := stream.read(2**16):
        *whole, rest = re.split(r"(\r\n|\r|\n)", rest + decoder.decode(chunk))
        for line, end in zip(whole[::2], whole[1::2]):
            if not cut:
                line = line if _TAG.match(line) else tag + line
                yield line[:MAX_LINE_LENGTH]
                tags = [match[0] for match in _TAG.finditer(line) if match["job"]] if end == "\r" else []
                tag = tags[-1] if tags else ""  # mpirun does not tag the text after a carriage return
            cut = False
        if len(rest) > MAX_LINE_LENGTH and not cut:
            yield rest[:MAX_LINE_LENGTH]
            cut = True
        rest = "" if cut else rest
    if rest:
        yield rest if _TAG.match(rest) else tag + rest


def parse(line: str, ranks: int) -> Iterator[Line]:
    """Split a line of the launcher's output into the lines of the `ranks` ranks, after their tags, and the launcher.

    Usually this is one line. If a rank ends without a newline, the next output, of another rank or the launcher,
    follows on the same line.
    """
    while line:
        tag = _TAG.match(line)
        if not tag:
            end = min((match.start() for match in _TAG.finditer(line) if int(match["rank"]) < ranks), default=len(line))
            yield Line(None, "", line[:end])
            line = line[end:]
            continue
        rank = int(tag["rank"]) if int(tag["rank"]) < ranks else None
        rest = line[tag.end() :]
        ends = [match.start() for match in _TAG.finditer(rest) if _of_another(match, tag, ranks)][:1]
        ends += [match.start() for match in _NOTE.finditer(rest) if match.start()][:1]
        end = min(ends, default=len(rest))
        yield from _pieces(rank, tag, rest[:end])
        line = rest[end:]


def _of_another(match: re.Match, tag: re.Match, ranks: int) -> bool:
    """Whether a tag within a line that starts with `tag` belongs to another rank."""
    number = int(match["rank"])
    return bool(match["job"]) == bool(tag["job"]) and number != int(tag["rank"]) and number < ranks


def _pieces(rank: int | None, tag: re.Match, text: str) -> Iterator[Line]:
    printed, mark, record = text.partition(MARK) if rank is not None else (text, "", "")
    if printed or not mark:
        # mpirun tags each write, so a line can have several tags.
        yield Line(rank, tag["stream"], _TAG.sub("", printed) if tag["job"] else printed)
    if mark:
        yield Line(rank, tag["stream"], record, record=True)


def parse_record(text: str) -> dict | None:
    """The record in a rank's line; None if it is invalid: cut off by a kill, or printed by the script."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return None
    when = record.get("time")
    return record if isinstance(when, (int, float)) and abs(when) < MAX_TIME_S else None


def reported_failures(text: str) -> Iterator[tuple[int, int]]:
    """The failed ranks in a line of the launcher, each with its exit code (128 + n for signal n)."""
    for pattern in _FAILED:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            yield int(groups["rank"]), int(groups["code"]) if "code" in groups else 128 + int(groups["signal"])


def excerpt(tail: Sequence[str]) -> tuple[str, ...]:
    """At most EXCERPT_LINES of a rank's last lines, without library frames of a traceback.

    They include the line that names the exception, if there is one.
    """
    lines, frame = [], False
    for line in tail:
        if _LIBRARY_FRAME.match(line):
            frame = True
        elif line.strip() and not (frame and line.startswith("    ")) and line != "Terminated":  # printed by a shell
            frame = False
            lines.append(line)
    lines = lines or [line for line in tail if line.strip()]
    named = max((number for number, line in enumerate(lines) if _EXCEPTION.match(line)), default=len(lines))
    first = max(0, min(named - EXCERPT_LINES // 2, len(lines) - EXCERPT_LINES))
    return tuple(lines[first : first + EXCERPT_LINES])


def launcher_error(tail: tuple[str, ...], code: int) -> str:
    """The reason why the launcher ended with `code`, from its last lines."""
    reasons = [match.group("reason") for line in tail if (match := _LAUNCHER_ERROR.match(line))]
    return reasons[-1] if reasons else next((line for line in reversed(tail) if line.strip()), f"exit code {code}")


def signal_name(number: int) -> str:
    """The number and name of a signal: "signal 9 (SIGKILL)"."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
