"""What `course run` shows in a terminal while it runs."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from course_lib.authoring.solutions import Pair
from course_lib.ranks import step_shares
from course_lib.ranks.launch import STOPPED, Run
from course_lib.ranks.messages.known_errors import hint
from course_lib.ranks.run import SILENCE_S

SIDE_BY_SIDE_COLUMNS = 120  # of a terminal: room for two times 60 characters
RANK_STYLES = ("cyan", "yellow", "green", "magenta", "blue", "red")


def follow(run: Run) -> int:
    """Print the run's output as it comes, each line behind its rank; Ctrl-C ends the run. Return its exit code.

    Where ranks wait for each other, and where the run fails, say why.
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
        err.print("course: stopped; nothing is left running.")
        return STOPPED
    for sentence in filter(None, (result.cause, result.message)):
        _say(err, sentence)
    if result.failed_rank is not None:
        if result.tail:  # shown before, beside what the others printed
            err.print(f"Last lines of rank {result.failed_rank}:", highlight=False)
        for line in result.tail:
            err.print(_prefixed(result.failed_rank, line))
        if advice := hint((*result.tail, result.reason)):
            _say(err, advice)
    sys.stdout.flush()
    return result.code


@contextlib.contextmanager
def profile_folder(wanted: bool, hosts: str | None) -> Iterator[Path | None]:
    """A folder for the profiles of a run, where they are `wanted`. It is one that all `hosts` of the run share."""
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=".course-where-", dir="." if hosts else None) as folder:
        yield Path(folder)


def show_shares(folder: Path) -> None:
    """Print where the time of a training step goes, a column for each rank, and what to change first."""
    ranks = step_shares.read(folder)
    table = Table(title="Where the time of a training step goes", title_justify="left", show_edge=False)
    table.add_column("% of a step")
    for rank in range(len(ranks)):
        table.add_column(f"rank {rank}", justify="right")
    for part in step_shares.PARTS:
        table.add_row(part, *(f"{100 * step.shares[part]:.1f}" for step in ranks))
    table.add_section()
    table.add_row("milliseconds", *(f"{step.milliseconds:.1f}" for step in ranks))
    if any(step.gpu is not None for step in ranks):
        table.add_row("GPU computes, %", *("" if step.gpu is None else f"{100 * step.gpu:.0f}" for step in ranks))
    out = Console()
    out.print(table)
    out.print(step_shares.bottleneck(ranks), highlight=False)


def show_solutions(pairs: Sequence[Pair]) -> None:
    """Print both solutions of each exercise, side by side where the terminal is wide enough."""
    out = Console()
    for pair in pairs:
        code = [Syntax(text, "python", theme="ansi_light", word_wrap=True) for text in (pair.learners, pair.courses)]
        panels = [Panel(text, title=title) for text, title in zip(code, ("yours", "the course's"))]
        out.print(Rule(pair.exercise, align="left"))
        if out.width >= SIDE_BY_SIDE_COLUMNS:
            table = Table.grid(expand=True)
            for _ in panels:
                table.add_column(ratio=1)
            table.add_row(*panels)
            out.print(table)
        else:
            out.print(*panels, sep="\n")
        out.print(pair.difference, highlight=False)


def _say(console: Console, sentence: str) -> None:
    console.print(f"course: {sentence}", style="bold red", markup=False, highlight=False)


def _prefixed(rank: int, line: str) -> Text:
    return Text.assemble((f"rank {rank} │ ", RANK_STYLES[rank % len(RANK_STYLES)]), line)
