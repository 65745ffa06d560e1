"""What the launcher and the ranks print, line by line, and what the lines say."""

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
PROGRAM_FOLDER = Path(__file__).parents[1]  # whose frames no traceback needs
MAX_TIME_S = 1e11  # since the epoch: a time beyond that is none

_TAG = re.compile(r"\[(?P<job>\d+,)?(?P<rank>\d{1,9})\]<(?P<stream>stdout|stderr)>:")  # `job`: by mpirun
_FAILED = (
    re.compile(r"Process (?P<rank>\d{1,9}) exit with status code (?P<code>-?\d{1,9})"),  # horovodrun over Gloo
    re.compile(r"process rank (?P<rank>\d{1,9}) with PID .* exited on signal (?P<signal>\d{1,3})"),  # mpirun
)
# The same behind what a rank has printed, where nothing else may stand between it and the line's end.
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
    """One line: the rank that wrote it (None: the launcher), to which stream, its text; `record` where it is meant
    for the launcher alone."""

    rank: int | None
    stream: str
    text: str
    record: bool = False


def lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, of each the first MAX_LINE_LENGTH characters. A carriage return ends a line, too."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=False)
    rest, cut, tag = "", False, ""
    while chunk := stream.read(2**16):
        *whole, rest = re.split(r"(\r\n|\r|\n)", rest + decoder.decode(chunk))
        for line, end in zip(whole[::2], whole[1::2]):
            if not cut:
                line = line if _TAG.match(line) else tag + line
                yield line[:MAX_LINE_LENGTH]
                tags = [match[0] for match in _TAG.finditer(line) if match["job"]] if end == "\r" else []
                tag = tags[-1] if tags else ""  # mpirun tags what follows a carriage return no more
            cut = False
        if len(rest) > MAX_LINE_LENGTH and not cut:
            yield rest[:MAX_LINE_LENGTH]
            cut = True
        rest = "" if cut else rest
    if rest:
        yield rest if _TAG.match(rest) else tag + rest


def parse(line: str, ranks: int) -> Iterator[Line]:
    """What stands in a line of the launcher's output, in order: the words of one of `ranks` ranks, behind its tag, or
    the launcher's own.

    Mostly that is one thing. But a rank that ends within a line leaves it open, and what is printed next, by another
    rank or by the launcher, stands behind it.
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
    """Whether a tag within a line that begins with `tag` is another rank's."""
    number = int(match["rank"])
    return bool(match["job"]) == bool(tag["job"]) and number != int(tag["rank"]) and number < ranks


def _pieces(rank: int | None, tag: re.Match, text: str) -> Iterator[Line]:
    printed, mark, record = text.partition(MARK) if rank is not None else (text, "", "")
    if printed or not mark:
        # mpirun tags each piece of a line.
        yield Line(rank, tag["stream"], _TAG.sub("", printed) if tag["job"] else printed)
    if mark:
        yield Line(rank, tag["stream"], record, record=True)


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
        for match in pattern.finditer(text):
            groups = match.groupdict()
            yield int(groups["rank"]), int(groups["code"]) if "code" in groups else 128 + int(groups["signal"])


def excerpt(tail: Sequence[str]) -> tuple[str, ...]:
    """The last lines of a rank, less the frames of libraries in a traceback: EXCERPT_LINES about the line that names
    the exception, where there is one."""
    lines, frame = [], False
    for line in tail:
        if _LIBRARY_FRAME.match(line):
            frame = True
        elif line.strip() and not (frame and line.startswith("    ")) and line != "Terminated":  # a shell's word
            frame = False
            lines.append(line)
    lines = lines or [line for line in tail if line.strip()]
    named = max((number for number, line in enumerate(lines) if _EXCEPTION.match(line)), default=len(lines))
    first = max(0, min(named - EXCERPT_LINES // 2, len(lines) - EXCERPT_LINES))
    return tuple(lines[first : first + EXCERPT_LINES])


def launcher_error(tail: tuple[str, ...], code: int) -> str:
    """Why the launcher ended with `code`, from the last lines that it printed."""
    reasons = [match.group("reason") for line in tail if (match := _LAUNCHER_ERROR.match(line))]
    return reasons[-1] if reasons else next((line for line in reversed(tail) if line.strip()), f"exit code {code}")


def signal_name(number: int) -> str:
    """A signal in words: "signal 9 (SIGKILL)"."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
