"""Tables that commands print: the breakdown of a training step, solutions side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table

from course_lib.authoring.solutions import Pair
from course_lib.ranks import step_shares

SIDE_BY_SIDE_COLUMNS = 120  # minimum width of a terminal for two solutions of 60 characters


def show_shares(folder: Path) -> None:
    """Print the breakdown of a training step, with a column for each rank, and what to change first."""
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
    """Print both solutions of each exercise, side by side if the terminal is wide enough."""
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
