"""The state of a class: `show` in a terminal, `page` as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 10  # rows of each list in the terminal; the page has all
EXERCISE_COLUMNS = ("exercise", "full marks", "mean", "not written", "most frequent reasons")
COLUMN = 17  # characters of a lab's column in the terminal
STATES = {
    "handed in": "waits for course collect",
    "late": "handed in after the deadline, not collected",
    "collected": "waits for course grade",
    "needs review": "a person has to read a script: course grade … --accept NAME",
    "not graded": "it could not be graded: see below",
    "graded in part": "something could not be graded: see below",
    "graded": "waits for course return",
    "returned": "the learner has the feedback",
}
_COLOURS = {
    "late": "yellow",
    "needs review": "yellow",
    "not graded": "red",
    "graded in part": "red",
    "returned": "green",
}


@dataclass(frozen=True)
class Standing:
    """How far a learner is with a lab.

    Attributes:
        state: one of STATES.
        note: what else is to be known of the submission; or "".
        points, max_points: None before it is graded.
    """

    state: str
    note: str = ""
    points: float | None = None
    max_points: float | None = None

    @property
    def score(self) -> str:
        """The points in words; or ""."""
        return "" if self.points is None else f"{self.points:g} of {self.max_points:g}"


@dataclass(frozen=True)
class Exercise:
    """An exercise, or a criterion of the assessment, in the class.

    Attributes:
        tried: number of learners who worked on it; `full`: of those with full marks.
        stubs: number of the others, who handed in the exercise as they got it.
        points: the mean of those who worked on it.
        reasons: the most frequent reasons for lost points, with the number of learners.
    """

    notebook: str
    name: str
    tried: int
    full: int
    stubs: int
    points: float
    max_points: float
    reasons: Sequence[tuple[str, int]] = ()

    @property
    def share(self) -> float:
        """The share of full marks among those who worked on it."""
        return self.full / max(1, self.tried)

    @property
    def counts(self) -> tuple[str, str, str]:
        """Who has full marks, the mean, and who has not written it, in words."""
        mean = f"{self.points:.3g} of {self.max_points:g}" if self.tried else "–"
        return f"{self.full} of {self.tried}" if self.tried else "–", mean, str(self.stubs or "")


@dataclass(frozen=True)
class ClassState:
    """All that `course class` shows.

    Attributes:
        standings: (learner, lab) → how far; missing if nothing was handed in.
        exercises: the hardest first.
        problems: (learner, notebook, why it could not be graded).
        pairs: (script, script, similarity) of similar scripts.
        missing: sentences about what could not be shown.
    """

    learners: Sequence[str]
    labs: Sequence[str]
    standings: Mapping[tuple[str, str], Standing]
    exercises: Sequence[Exercise] = ()
    problems: Sequence[tuple[str, str, str]] = ()
    pairs: Sequence[tuple[str, str, str]] = ()
    missing: Sequence[str] = ()

    def counts(self, lab: str) -> dict[str, int]:
        """Return state → number of learners for a lab; "nothing" for those who have handed in nothing."""
        states = [self.standings[learner, lab].state for learner in self.learners if (learner, lab) in self.standings]
        counts = {state: states.count(state) for state in STATES if state in states}
        nothing = len(self.learners) - len(states)
        return {**counts, **({"nothing": nothing} if nothing else {})}


def show(state: ClassState, console: Console | None = None) -> None:
    """Print the state of a class in the terminal."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    _show_standings(state, console)
    _show_exercises(state, console)
    problems = [f"{learner}, {notebook}: {reason}" for learner, notebook, reason in state.problems]
    pairs = [f"{first} and {second}: {similarity}" for first, second, similarity in state.pairs]
    for title, lines in (("Needs you", problems), ("Similar scripts", pairs)):
        if lines:
            console.print(Text(title, style="bold"))
        for line in lines[:SHOWN]:
            console.print(f"  {line}", markup=False, soft_wrap=True)
    rest = sum(max(0, len(rows) - SHOWN) for rows in (state.exercises, problems, pairs))
    if rest:
        console.print(f"{rest} more rows: course class --html class.html", markup=False)
    for sentence in state.missing:
        console.print(sentence, markup=False, soft_wrap=True)


def _show_standings(state: ClassState, console: Console) -> None:
    """Print the table of learners and labs, as many labs as fit beside each other, then the numbers of each lab."""
    from rich.table import Table
    from rich.text import Text

    columns = max(1, console.width // COLUMN - 1)
    for start in range(0, len(state.labs), columns):
        labs = state.labs[start : start + columns]
        table = Table("learner", *(lab.partition("_")[0] for lab in labs))
        for learner in state.learners:
            cells = [state.standings.get((learner, lab)) for lab in labs]
            texts = [Text(_words(cell), style=_COLOURS.get(cell.state, "")) if cell else Text("–") for cell in cells]
            table.add_row(Text(learner), *texts)
        console.print(table)
    for lab in state.labs:
        console.print(f"{lab}: {_listing(state.counts(lab))}", markup=False)


def _show_exercises(state: ClassState, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    if state.exercises:
        table = Table(*EXERCISE_COLUMNS)
        for one in state.exercises[:SHOWN]:
            reasons = "\n".join(f"{count} × {text}" for text, count in one.reasons)
            table.add_row(Text(f"{one.notebook}: {one.name}"), *one.counts, Text(reasons))
        console.print(table)


def page(state: ClassState) -> str:
    """Return the state of a class as an HTML page, for the instructor."""
    problems = _rows((_e(learner), _e(notebook), _e(reason)) for learner, notebook, reason in state.problems)
    pairs = _rows((_e(first), _e(second), _e(similarity)) for first, second, similarity in state.pairs)
    exercises = _rows(
        (
            _e(f"{one.notebook}: {one.name}"),
            *one.counts,
            "<br>".join(f"{count} × {_e(text)}" for text, count in one.reasons),
        )
        for one in state.exercises
    )
    sections = (
        ("Exercises, the hardest first", EXERCISE_COLUMNS, exercises),
        ("Needs you", ("learner", "notebook", "why"), problems),
        ("Similar scripts", ("first", "second", "similarity"), pairs),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>The class</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n<h1>The class</h1>\n"
        + "".join(f"<p>{_e(sentence)}</p>\n" for sentence in state.missing)
        + _standings(state)
        + "".join(f"<h2>{title}</h2>\n{_table(head, rows)}" for title, head, rows in sections if rows)
        + "</body></html>\n"
    )


def _standings(state: ClassState) -> str:
    """Return the table of learners and labs, and what its words mean."""
    rows = []
    for learner in state.learners:
        cells = [f'<th scope="row">{_e(learner)}</th>']
        for lab in state.labs:
            standing = state.standings.get((learner, lab))
            if standing is None:
                cells.append("<td>–</td>")
                continue
            note = f"<br><small>{_e(standing.note)}</small>" if standing.note else ""
            kind = standing.state.replace(" ", "-")
            cells.append(f'<td class="{kind}"><b>{_e(standing.score)}</b> {_e(standing.state)}{note}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>\n")
    totals = "".join(f"<td>{_e(_listing(state.counts(lab)))}</td>" for lab in state.labs)
    foot = f'<tfoot><tr><th scope="row">all</th>{totals}</tr></tfoot>'
    used = [name for name in STATES if any(one.state == name for one in state.standings.values())]
    legend = "".join(f"<dt>{name}</dt><dd>{_e(STATES[name])}</dd>" for name in used)
    return _table(("learner", *state.labs), "".join(rows), foot) + f"<dl>{legend}</dl>\n"


def _table(head: Iterable[str], rows: str, foot: str = "") -> str:
    cells = "".join(f'<th scope="col">{_e(name)}</th>' for name in head)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead>\n<tbody>{rows}</tbody>{foot}</table></div>\n'


def _rows(rows: Iterable[Iterable[str]]) -> str:
    return "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)


def _words(standing: Standing) -> str:
    return "\n".join(filter(None, (standing.score, standing.state, standing.note)))


def _listing(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _e(text: str) -> str:
    return html.escape(text)


_STYLE = """
body { margin: 24px; color: #222; background: #fff; font: 15px/1.5 sans-serif; }
h1 { font-size: 24px; margin: 0 0 12px; }
h2 { font-size: 18px; margin: 36px 0 8px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
:is(th, td) { padding: 4px 16px 4px 0; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; }
thead th, tfoot :is(th, td), small { color: #555; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 16px 0; color: #555; }
dd { margin: 0; }
dt { font-weight: 600; }
.returned { color: #1b5e20; }
.late, .needs-a-look { color: #8a4600; }
.not-graded, .graded-in-part { color: #b3261e; }
"""
