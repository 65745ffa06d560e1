"""The class's leaderboard: learners who passed by the rules of the closed division, sorted by time.

A time is calibrated: it is divided by the factor by which its host is slower than the reference host (see
`calibration`). The place of a script that was run again depends on the median of its further runs. Its graded run does
not count, because the script was selected by this run, and the fastest of many single runs is partly luck.
"""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from course_grader.display.report import CSS
from course_grader.script.contract import Contract
from course_grader.script.outcome import Outcome
from course_lib import statistics
from course_lib.system.errors import CourseError

FILE = "leaderboard.csv"  # in the folder of a learner's script, to show the places of the learner's attempts


@dataclass(frozen=True)
class Entry:
    """A learner who passed: the graded outcome, the number of graded scripts, and the outcomes of further runs."""

    learner: str
    outcome: Outcome
    attempts: int = 1
    again: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class Row:
    """A line of the leaderboard.

    Attributes:
        place: None if the run breaks a rule; `rule` is then a sentence about it.
        seconds: calibrated; the median of several runs, with the 95 % interval from `low` to `high`.
        runs: number of these runs.
        measured: seconds before the division by `factor`; the median of several runs.
        test_accuracy: from 0 to 1; the median of several runs.
    """

    place: int | None
    learner: str
    seconds: float
    low: float
    high: float
    runs: int
    measured: float
    factor: float
    ranks: int
    test_accuracy: float
    attempts: int
    profile: str
    rule: str = ""


COLUMNS = tuple(field.name for field in fields(Row))


def broken(outcome: Outcome, contract: Contract) -> str:
    """Return a sentence about the first rule of the closed division that a run breaks; "" if it breaks none.

    All runs must have the same data, number of ranks and sandbox, and get all points of each criterion, because a
    smaller training is less work. The network is always the same, because the evaluator accepts no other weights.
    """
    ranks = contract.profiles[outcome.profile].ranks
    if outcome.data != contract.data:
        return f"It trained on {outcome.data}, not on {contract.data}."
    if ranks and outcome.ranks != ranks:
        return f"It ran on {outcome.ranks} ranks, not on {ranks}."
    if outcome.sandbox != "bubblewrap":
        return "It ran without a sandbox."
    return next((f"{one.title}: {one.reason}" for one in outcome.verdicts if not one.passed), "")


def ranked(entries: Sequence[Entry], contract: Contract) -> list[Row]:
    """Return the rows: scripts that were run again first, then by time, equal times by accuracy.

    Rows that break a rule are at the end, without a place.
    """
    rows = [_row(entry, contract) for entry in entries]
    valid = sorted((row for row in rows if not row.rule), key=_merit)
    merits = [_merit(row) for row in valid]
    placed = [replace(row, place=1 + merits.index(merit)) for row, merit in zip(valid, merits)]
    return placed + sorted((row for row in rows if row.rule), key=lambda row: row.learner)


def standing(outcome: Outcome, rows: Sequence[Row], contract: Contract) -> str:
    """Return a sentence about the place that a run would have among `rows`."""
    if not outcome.passed:
        return "It would not be on the class's leaderboard: it did not pass."
    if rule := broken(outcome, contract):
        return f"It would have no place on the class's leaderboard. {rule}"
    mine = _row(Entry("", outcome), contract)
    others = [row for row in rows if row.place]
    if others and others[0].profile != mine.profile:
        return f"The class's leaderboard is for the profile {others[0].profile}, but this run used {mine.profile}."
    better = sum((row.seconds, -row.test_accuracy) < (mine.seconds, -mine.test_accuracy) for row in others)
    return f"It would have place {better + 1} of {len(others) + 1} on the class's leaderboard ({mine.seconds:.1f} s)."


def standing_beside(script: Path, outcome: Outcome, contract: Contract) -> str:
    """Return `standing` for the leaderboard beside `script`; "" if there is none.

    For a damaged leaderboard, return a sentence that says so: no mark depends on it.
    """
    try:
        return standing(outcome, read(script.with_name(FILE)), contract)
    except OSError:
        return ""
    except CourseError as problem:
        return str(problem)


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV; missing values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        values = [getattr(row, column) for column in COLUMNS]
        writer.writerow(["" if value is None or value == math.inf else value for value in values])
    return text.getvalue()


def read(path: Path) -> list[Row]:
    """Read a file of `to_csv`. Raises CourseError if it is not one, OSError if it cannot be read."""
    kinds = {"learner": str, "profile": str, "rule": str, **dict.fromkeys(("place", "runs", "ranks", "attempts"), int)}
    try:
        header, *lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
        if tuple(header) != COLUMNS:
            raise ValueError
        return [
            Row(**{name: kinds.get(name, float)(cell) if cell else _EMPTY[name] for name, cell in zip(COLUMNS, line)})
            for line in lines
        ]
    except (ValueError, TypeError):
        raise CourseError(f"{path} is not a leaderboard of `course grade`: remove it.") from None


_EMPTY = {**dict.fromkeys(COLUMNS, math.inf), "place": None, "learner": "", "profile": "", "rule": ""}


def page(rows: Sequence[Row], setting: str) -> str:
    """Return the leaderboard as an HTML page; `setting` is a short description of the runs."""
    body = "".join(_line(row) for row in rows if row.place) or '<tr><td colspan="7">Nobody yet.</td></tr>'
    names = ("place", "", "time", "on the clock ÷ factor", "ranks", "test accuracy", "scripts graded")
    head = "".join(f"<th>{name}</th>" for name in names)
    excluded = "".join(
        f"<dt>{html.escape(row.learner)}</dt><dd>{html.escape(row.rule)}</dd>" for row in rows if row.rule
    )
    again = max((row.runs for row in rows), default=1)
    notes = [
        "Time: from the start of the ranks to their end, divided by the host's slowdown against the reference host."
    ]
    if again > 1:
        notes.append(
            f"Places are by the median of further runs ({again} each), with its 95 % interval. If two intervals "
            "overlap, their order may be due to chance. The time of a script with a single run may be a lucky or an "
            "unlucky one."
        )
    else:
        notes.append("Each script ran once: the order of close times may be due to chance.")
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Leaderboard</title>{CSS}{_STYLE}</head>'
        f'<body><div class="course-report"><h1>Leaderboard</h1><p>{html.escape(setting)}</p>'
        f'<table class="course-leaderboard"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        + (f"<h2>Passed, but broke a rule of the closed division</h2><dl>{excluded}</dl>" if excluded else "")
        + "".join(f"<small>{html.escape(note)}</small>" for note in notes)
        + "</div></body></html>"
    )


_STYLE = """<style>
body { margin: 24px; }
.course-report h1 { margin: 0; font-size: 20px; }
.course-report h2 { margin: 24px 0 8px; font-size: 15px; }
.course-leaderboard { width: 100%; border-collapse: collapse; }
.course-leaderboard :is(th, td) { padding: 5px 12px 5px 0; border-top: 1px solid #ddd; text-align: left; }
.course-leaderboard th { border: none; color: #666; font-weight: normal; }
.course-leaderboard tbody td:nth-child(-n + 2) { font-weight: 600; }
</style>"""


def _line(row: Row) -> str:
    time = f"{row.seconds:.1f} s"
    if row.runs > 1:
        high = "not reached" if row.high == math.inf else f"{row.high:.1f}"
        time += f" ({row.low:.1f} to {high}; {row.runs} runs)"
    clock = f"{row.measured:.1f} s ÷ {row.factor:.2f}"
    cells = (row.place, row.learner, time, clock, row.ranks, f"{row.test_accuracy:.3f}", row.attempts)
    return "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _row(entry: Entry, contract: Contract) -> Row:
    first = entry.outcome
    rule = broken(first, contract)
    if not entry.again:
        seconds = low = high = _calibrated(first)
        measured, accuracy = first.seconds, first.test_accuracy
    else:
        good = [rerun for rerun in entry.again if rerun.passed and not broken(rerun, contract)]
        times = [_calibrated(rerun) for rerun in good] + [math.inf] * (len(entry.again) - len(good))
        seconds, low, high = statistics.median(times)
        measured = statistics.median([rerun.seconds or 0.0 for rerun in entry.again])[0]
        accuracy = statistics.median([rerun.test_accuracy or 0.0 for rerun in entry.again])[0]
        if seconds == math.inf:
            rule = rule or f"Only {len(good)} of {len(entry.again)} further runs passed by the rules: most must."
    return Row(
        place=None,
        learner=entry.learner,
        seconds=round(seconds, 1),
        low=round(low, 1),
        high=round(high, 1),
        runs=len(entry.again) or 1,
        measured=round(measured, 1),
        factor=first.factor,
        ranks=first.ranks,
        test_accuracy=round(accuracy, 4),
        attempts=entry.attempts,
        profile=first.profile,
        rule=rule,
    )


def _calibrated(outcome: Outcome) -> float:
    return outcome.seconds / max(outcome.factor, 1.0)


def _merit(row: Row) -> tuple[bool, float, float]:
    return row.runs == 1, row.seconds, -row.test_accuracy
