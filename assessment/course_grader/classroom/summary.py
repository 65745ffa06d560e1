"""The results of grading a class: its tables, and the summary in the terminal."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_grader.classroom.gradebook import VERSIONS
from course_grader.classroom.preprocessors import LOOK
from course_lib.system.files import write

COLUMNS = ["learner", "assignment", "notebook", "exercise", "score", "max_score", "reason", "passed", *VERSIONS]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula, or text that turns into one, begins with
FAULTS = "faults.log"  # among the results: tracebacks of errors of the course, not of learners


@dataclass(frozen=True)
class Summary:
    """The result of `grade`: the folder of results, the rows of grades.csv and those of not_graded.csv."""

    results: Path
    rows: list[dict[str, Any]]
    problems: list[dict[str, str]]

    @property
    def code(self) -> int:
        """The exit code of `course grade`."""
        return 1 if self.problems else 0


def write_tables(results: Path, rows: list[dict[str, Any]], problems: list[dict[str, str]]) -> None:
    """Write grades.csv, not_graded.csv and, if the course itself failed, faults.log with its tracebacks."""
    import pandas

    for name, table, columns in (
        ("grades.csv", rows, COLUMNS),
        ("not_graded.csv", problems, [*COLUMNS[:3], "reason"]),
    ):
        texts = [{name: _as_text(value) for name, value in row.items()} for row in table]
        text = pandas.DataFrame(texts, columns=columns).to_csv(index=False)
        write(results / name, text.encode("utf-8", "backslashreplace"))
    (results / FAULTS).unlink(missing_ok=True)
    faults = [row for row in problems if row.get("fault")]
    if faults:
        text = "\n".join(f"{row['learner']}, {row['notebook']}: {row['reason']}\n{row['fault']}" for row in faults)
        write(results / FAULTS, text.encode("utf-8", "backslashreplace"))


def _as_text(value: object) -> object:
    """Return a value with an apostrophe before it if a spreadsheet would compute it: learners' code writes reasons."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        with contextlib.suppress(ValueError):
            float(value)
            return value
        return f"'{value}"
    return value


def as_written(text: str) -> str:
    """Return a text of the tables without the apostrophe that `write_tables` has put before it."""
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def show(summary: Summary) -> None:
    """Print the scores, the problems, and the folder of results."""
    console = Console()
    table = Table("learner", "notebook", "score")
    graded: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in summary.rows:
        if "max_score" in row:
            graded.setdefault((row["learner"], row["notebook"]), []).append(row)
    for (learner, notebook), rows in graded.items():
        table.add_row(escape(learner), notebook, _total(rows))
    console.print(table)
    problems = [problem for problem in summary.problems if not problem["reason"].startswith(LOOK)]
    flagged = dict.fromkeys((row["learner"], row["reason"]) for row in summary.rows if row["reason"].startswith(LOOK))
    lines = [f"{name}: {reason} To accept it: ./course grade … --accept {name}" for name, reason in flagged]
    lines += [f"Could not be graded: {row['learner']}, {row['notebook']}: {row['reason']}" for row in problems]
    for line in lines:
        console.print(line, markup=False, highlight=False)
    console.print(f"Results: {summary.results}", markup=False)


def _total(rows: list[dict[str, Any]]) -> str:
    """Return the score of a notebook or script in a few words."""
    passed = rows[0]["passed"]
    if passed == LOOK.lower():
        return passed
    score, maximum = sum(row["score"] or 0.0 for row in rows), sum(row["max_score"] for row in rows)
    not_graded = sum(row["max_score"] for row in rows if row["score"] is None)
    rest = f", {not_graded:g} not graded" if not_graded else ""
    verdict = {"yes": ", passed", "no": ", not passed", "": ""}[passed]
    return f"{score:g} of {maximum:g}{rest}{verdict}"
