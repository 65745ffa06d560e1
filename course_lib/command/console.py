"""The output of `course run` in a terminal."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from course_lib.ranks.launch import STOPPED, Run
from course_lib.ranks.messages.known_errors import hint
from course_lib.ranks.run import SILENCE_S

RANK_STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red")


def follow(run: Run) -> int:
    """Print the output of a run, with the rank before each line; return the exit code. Ctrl-C ends the run.

    If the ranks wait for each other, or the run fails, also print the cause.
    """
    out, err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
    try:
        with run:
            for event in run:
                if event.kind == "output":
                    console = out if event.data["stream"] == "stdout" else err
                    console.print(_prefixed(event.rank, event.data["text"]))
                elif event.kind == "stall":
                    _say(err, f"Nothing has happened for {SILENCE_S:g} s. {event.data['cause']} Ctrl-C ends the run.")
            result = run.wait()
    except KeyboardInterrupt:
        err.print("course: Stopped; no process is left running.")
        return STOPPED
    for sentence in filter(None, (result.cause, result.message)):
        _say(err, sentence)
    if result.failed_rank is not None:
        if result.tail:  # printed before, but mixed with the output of other ranks
            err.print(f"Last lines of rank {result.failed_rank}:", highlight=False)
        for line in result.tail:
            err.print(_prefixed(result.failed_rank, line))
        if advice := hint((*result.tail, result.reason)):
            _say(err, advice)
    sys.stdout.flush()
    return result.code


@contextlib.contextmanager
def profile_folder(wanted: bool, hosts: str | None) -> Iterator[Path | None]:
    """A temporary folder for the profiles of a run, shared by all `hosts`; None if not `wanted`."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=".course-where-", dir="." if hosts else None) as folder:
        yield Path(folder)


def _say(console: Console, sentence: str) -> None:
    console.print(f"course: {sentence}", style="bold red", markup=False, highlight=False)


def _prefixed(rank: int, line: str) -> Text:
    return Text.assemble((f"rank {rank} │ ", RANK_STYLES[rank % len(RANK_STYLES)]), line)
