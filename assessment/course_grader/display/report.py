"""Show the outcome of an assessment: `page` in notebooks and feedback, `show` in a terminal."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from course_grader.script import contract
from course_lib.notebook.judging import Verdict

if TYPE_CHECKING:
    from rich.console import Console

    from course_grader.script.outcome import Outcome

CSS = "<style>" + Path(__file__).with_name("report.css").read_text(encoding="utf-8") + "</style>"
LOOK = "The script has what it needs to pass, but a person must review these lines first:"
RESTS_ON = {"host": "measured by the host", "script": "from the script's own log", "": ""}
_MARKS = {"full": "✓", "part": "◐", "none": "✗"}


def page(outcome: Outcome, title: str = "") -> str:
    """Return an assessment's outcome as HTML, for notebooks and feedback pages."""
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in facts_of(outcome))
    rows = []
    for verdict in outcome.verdicts:
        kind = _kind(verdict)
        hint = f"<i>{html.escape(verdict.hint)}</i>" if verdict.hint else ""
        rows.append(
            f'<li class="course-report-{kind}"><b>{_MARKS[kind]}</b>'
            f"<div><b>{html.escape(verdict.title)}</b> <small>{RESTS_ON[verdict.rests_on]}</small><br>"
            f"{html.escape(verdict.reason)}{hint}</div>"
            f"<b>{_of(verdict.points, verdict.max_points)}</b></li>"
        )
    flags = ""
    if outcome.look:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in outcome.look)
        flags = f'<div class="course-report-found">{html.escape(LOOK)}<ul>{lines}</ul></div>'
    error = f"<div>What went wrong:</div><pre>{html.escape(outcome.error)}</pre>" if outcome.error else ""
    notes = "".join(f"<small>{html.escape(note)}</small>" for note in outcome.weaknesses)
    missing = f"<p>{html.escape(why)}</p>" if (why := missing_for_a_pass(outcome)) else ""
    beside = " · ".join([*([title] if title else []), setting(outcome)])
    return (
        f'{CSS}<div class="course-report">'
        f'<div class="course-report-score course-report-{_colour(outcome)}">'
        f"<b>{headline(outcome)}</b><span>{html.escape(beside)}</span></div>"
        f"{missing}<dl>{facts}</dl>{flags}{error}<ul>{''.join(rows)}</ul>{notes}</div>"
    )


def show(outcome: Outcome, console: Console | None = None) -> None:
    """Print an assessment's outcome in the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console(highlight=False)
    colours = {"full": "green", "part": "yellow", "none": "red"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column("criterion", ratio=2)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("rests on", no_wrap=True)
    table.add_column("reason", ratio=5, overflow="fold")
    for verdict in outcome.verdicts:
        kind = _kind(verdict)
        reason = Text(verdict.reason)
        if verdict.hint:
            reason.append(f"\n→ {verdict.hint}", style="italic")
        points = _of(verdict.points, verdict.max_points)
        mark = Text(_MARKS[kind], style=f"bold {colours[kind]}")
        table.add_row(mark, Text(verdict.title), points, verdict.rests_on, reason)
    console.print(table)
    if outcome.error:
        console.print("What went wrong:")
        console.print(Text(outcome.error, style="dim"))
        console.print()
    for name, text in facts_of(outcome):
        console.print(Text(f"{name + ':':<21} {text}"))
    if outcome.look:
        console.print(Text(LOOK, style="yellow"))
    for line in outcome.look:
        console.print(Text(f"  {line}", style="yellow"))
    for note in outcome.weaknesses:
        console.print(Text(note, style="yellow"))
    style = {"passed": "bold green", "look": "bold yellow", "failed": "bold red"}[_colour(outcome)]
    console.print(Text.assemble((headline(outcome), style), f"   {setting(outcome)}"))
    if why := missing_for_a_pass(outcome):
        console.print(Text(why))


def headline(outcome: Outcome) -> str:
    """Return the outcome in a few words."""
    points = f"{_of(outcome.score, outcome.max_score)} points"
    if outcome.needs_a_look:
        return f"Needs review: {points}"
    return f"Passed: {points}" if outcome.passed else f"Not passed: {points}"


def missing_for_a_pass(outcome: Outcome) -> str:
    """Return a sentence on what a script lacks to pass; "" if it has passed or needs review."""
    if outcome.passed or outcome.needs_a_look:
        return ""
    terms = contract.read()
    names = [verdict.title for verdict in outcome.verdicts if verdict.id in terms.required and not verdict.passed]
    also = f", and all points of: {'; '.join(names)}" if names else ""
    return f"To pass, a script needs {terms.pass_points:g} points{also}."


def _colour(outcome: Outcome) -> str:
    return "passed" if outcome.passed else "look" if outcome.needs_a_look else "failed"


def setting(outcome: Outcome) -> str:
    """Return the profile, the number of ranks and the data in a few words."""
    ranks = f"{outcome.ranks} rank" + ("" if outcome.ranks == 1 else "s")
    return f"profile {outcome.profile} · {ranks} · {outcome.data}"


def facts_of(outcome: Outcome) -> list[tuple[str, str]]:
    """Return (name, text) for each measured value, and for the accuracy that the script printed."""
    facts = []
    if outcome.seconds is not None:
        facts.append(("time", f"{outcome.seconds:.1f} s of {_limit(outcome)}"))
    for name, value in (("training accuracy", outcome.train_accuracy), ("test accuracy", outcome.test_accuracy)):
        facts.append((name, "not measured" if value is None else f"{value:.3f}, measured from the saved weights"))
    if outcome.first_step_seconds is not None:
        seconds = f"{outcome.first_step_seconds:.1f} s in the calibration, including compiling the GPU's kernels"
        facts.append(("first step", f"{seconds}; later runs reuse the kernels"))
    if outcome.claimed is not None:
        facts.append(("claimed accuracy", f"{outcome.claimed:.3f}, the last value printed by the script; not counted"))
    return facts


def _limit(outcome: Outcome) -> str:
    if outcome.factor <= 1:
        return f"{outcome.limit:.0f} s"
    base = outcome.limit / outcome.factor
    return f"{outcome.limit:.0f} s ({base:.0f} s × {outcome.factor:.2f}: this host is slower than the reference host)"


def _kind(verdict: Verdict) -> str:
    return "full" if verdict.passed else "part" if verdict.points > 0 else "none"


def _of(points: float, most: float) -> str:
    return f"{points:.4g} of {most:g}"
