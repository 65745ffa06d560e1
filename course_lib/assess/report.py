"""Verdicts as people see them: `Report` and `Ticker` for the checks of a lab; `page` and `show` for an assessment."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.assess.criteria import Verdict
from course_lib.launch import Event

if TYPE_CHECKING:
    from rich.console import Console

    from course_lib.assess.grader import Outcome

_STYLE = "border:1px solid var(--jp-border-color2,#ccc);border-radius:6px;padding:.6em 1em;max-width:52em"


@dataclass(frozen=True)
class Report:
    """Verdicts on one run; `focus` is the id of the criterion that the learner is working on."""

    verdicts: Sequence[Verdict]
    focus: str | None = None
    error: str = ""

    @property
    def score(self) -> float:
        """Points of all criteria together."""
        return sum(verdict.points for verdict in self.verdicts)

    def _order(self) -> list[tuple[Verdict, bool]]:
        """Each verdict, and whether to tell its reason: of all where there is no focus, else of that one only."""
        return [(verdict, self.focus in (None, verdict.id)) for verdict in self.verdicts]

    def __str__(self) -> str:
        lines = []
        for verdict, told in self._order():
            lines.append(f"{'✓' if verdict.passed else '·'} {verdict.title}" + (f": {verdict.reason}" if told else ""))
            if told and verdict.hint and verdict.id == self.focus:
                lines.append(f"  Hint: {verdict.hint}")
        return "\n".join([*lines, *([self.error] if self.error else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for verdict, told in self._order():
            mark = "✅" if verdict.passed else "❌" if told else "▫️"
            text = f"<b>{html.escape(verdict.title)}</b>"
            if told:
                text += f"<br>{html.escape(verdict.reason)}"
                if verdict.hint and verdict.id == self.focus:
                    text += f"<br><i>{html.escape(verdict.hint)}</i>"
            rows.append(f"<div style='margin:.25em 0;opacity:{1 if told else 0.75}'>{mark} {text}</div>")
        if self.error:
            rows.append(
                "<div style='margin-top:.5em'>The script failed; its last lines:</div>"
                f"<pre style='white-space:pre-wrap;font-size:85%'>{html.escape(self.error)}</pre>"
            )
        return f"<div style='{_STYLE}'>{''.join(rows)}</div>"


class Ticker:
    """One line in a notebook that says how far a run is; nothing where there is no notebook."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._handle = None
        self._shown = 0.0
        self._stage = "starting"

    def __enter__(self) -> Ticker:
        from IPython import get_ipython
        from IPython.display import HTML, display

        if get_ipython() is not None:
            self._html = HTML
            self._handle = display(HTML(self._line()), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle:
            self._handle.update(self._html(""))

    def follow(self, event: Event) -> None:
        """Note what an event says of the run's progress."""
        if event.kind in ("fit", "batch"):
            self._stage = "training"
        elif event.kind == "step":
            self._stage = f"step {event.data['step']}"
        elif event.kind == "epoch":
            self._stage = f"epoch {event.data['epoch'] + 1} done"
        if self._handle and time.monotonic() - self._shown > 0.5:
            self._shown = time.monotonic()
            self._handle.update(self._html(self._line(event.time)))

    def _line(self, seconds: float = 0.0) -> str:
        return f"<i>⏳ {html.escape(self._what)}: {self._stage}, {seconds:.0f} s …</i>"


# The assessment

CSS = "<style>" + Path(__file__).with_name("report.css").read_text(encoding="utf-8") + "</style>"
_MARKS = {"full": "✓", "part": "◐", "none": "✗"}


def page(outcome: Outcome, title: str = "") -> str:
    """An assessment's outcome as HTML, for notebooks and feedback pages."""
    facts = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in facts_of(outcome))
    rows = []
    for verdict in outcome.verdicts:
        kind = _kind(verdict)
        hint = f"<i>{html.escape(verdict.hint)}</i>" if verdict.hint else ""
        rows.append(
            f'<li class="course-report-{kind}"><b>{_MARKS[kind]}</b>'
            f"<div><b>{html.escape(verdict.title)}</b><br>{html.escape(verdict.reason)}{hint}</div>"
            f"<b>{_of(verdict.points, verdict.max_points)}</b></li>"
        )
    error = f"<div>What went wrong:</div><pre>{html.escape(outcome.error)}</pre>" if outcome.error else ""
    notes = "".join(f"<small>{html.escape(note)}</small>" for note in outcome.weaknesses)
    beside = " · ".join([*([title] if title else []), setting(outcome)])
    return (
        f'{CSS}<div class="course-report">'
        f'<div class="course-report-score course-report-{"passed" if outcome.passed else "failed"}">'
        f"<b>{headline(outcome)}</b><span>{html.escape(beside)}</span></div>"
        f"<dl>{facts}</dl>{error}<ul>{''.join(rows)}</ul>{notes}</div>"
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
    table.add_column("reason", ratio=5, overflow="fold")
    for verdict in outcome.verdicts:
        kind = _kind(verdict)
        reason = Text(verdict.reason)
        if verdict.hint:
            reason.append(f"\n→ {verdict.hint}", style="italic")
        points = _of(verdict.points, verdict.max_points)
        table.add_row(Text(_MARKS[kind], style=f"bold {colours[kind]}"), Text(verdict.title), points, reason)
    console.print(table)
    if outcome.error:
        console.print("What went wrong:")
        console.print(Text(outcome.error, style="dim"))
        console.print()
    for name, text in facts_of(outcome):
        console.print(Text(f"{name + ':':<21} {text}"))
    for note in outcome.weaknesses:
        console.print(Text(note, style="yellow"))
    style = "bold green" if outcome.passed else "bold red"
    console.print(Text.assemble((headline(outcome), style), f"   {setting(outcome)}"))


def headline(outcome: Outcome) -> str:
    """The outcome in a few words."""
    points = f"{_of(outcome.score, outcome.max_score)} points"
    return f"Passed: {points}" if outcome.passed else f"Not passed: {points}"


def setting(outcome: Outcome) -> str:
    """What was assessed under which conditions, in a few words."""
    ranks = f"{outcome.ranks} rank" + ("" if outcome.ranks == 1 else "s")
    return f"profile {outcome.profile} · {ranks} · {outcome.data}"


def facts_of(outcome: Outcome) -> list[tuple[str, str]]:
    """What was measured and what was only claimed, as (name, text)."""
    facts = []
    if outcome.seconds is not None:
        facts.append(("time", f"{outcome.seconds:.1f} s of {_limit(outcome)}"))
    for name, value in (("training accuracy", outcome.train_accuracy), ("test accuracy", outcome.test_accuracy)):
        facts.append((name, "not measured" if value is None else f"{value:.3f}, measured from the saved weights"))
    if outcome.claimed is not None:
        facts.append(("claimed accuracy", f"{outcome.claimed:.3f}, the last one that the script printed; not counted"))
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
