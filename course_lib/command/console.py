"""What `course run` shows in a terminal while it runs."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from course_lib.ranks.launch import STOPPED, Run

RANK_STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red")


def follow(run: Run) -> int:
    """Print the run's output as it comes, each line behind its rank; Ctrl-C ends the run. Return its exit code."""
    out, err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
    try:
        with run:
            for event in run:
                if event.kind == "output":
                    console = out if event.data["stream"] == "stdout" else err
                    console.print(_prefixed(event.rank, event.data["text"]))
            result = run.wait()
    except KeyboardInterrupt:
        err.print("course: stopped; nothing is left running.")
        return STOPPED
    if result.code:
        err.print(f"course: {result.message}", style="bold red", markup=False, highlight=False)
        shown_beside_others = result.failed_rank is not None and result.tail
        if shown_beside_others:
            err.print(f"Last lines of rank {result.failed_rank}:", highlight=False)
            for line in result.tail:
                err.print(_prefixed(result.failed_rank, line))
    sys.stdout.flush()
    return result.code


def _prefixed(rank: int, line: str) -> Text:
    return Text.assemble((f"rank {rank} │ ", RANK_STYLES[rank % len(RANK_STYLES)]), line)
