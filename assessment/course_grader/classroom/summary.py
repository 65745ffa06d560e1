"""What comes of grading a class: the tables in its results, and the summary in the terminal."""

from __future__ import annotations

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
FAULTS = "faults.log"  # among the results: the tracebacks of what the course, not a learner, did wrong


@dataclass(frozen=True)
class Summary:
    """What `grade` did: where the results are, the rows of grades.csv, what could not be graded and why."""

    results: Path
    rows: list[dict[str, Any]]
    problems: list[dict[str, str]]

    @property
    def code(self) -> int:
        """The exit code of `course grade`."""
        return 1 if self.problems else 0


def write_tables(results: Path, rows: list[dict[str, Any]], problems: list[dict[str, str]]) -> None:
    """Write grades.csv, not_graded.csv and, where the course itself failed, faults.log with its tracebacks."""
    import pandas

    for name, table, columns in (
        ("grades.csv", rows, COLUMNS),
        ("not_graded.csv", problems, [*COLUMNS[:3], "reason"]),
    ):
        text = pandas.DataFrame(table, columns=columns).to_csv(index=False)
        write(results / name, text.encode("utf-8", "backslashreplace"))
    (results / FAULTS).unlink(missing_ok=True)
    faults = [one for one in problems if one.get("fault")]
    if faults:
        text = "\n".join(f"{one['learner']}, {one['notebook']}: {one['reason']}\n{one['fault']}" for one in faults)
        write(results / FAULTS, text.encode("utf-8", "backslashreplace"))


def show(summary: Summary) -> None:
    """Print the scores, the problems, and where the results are."""
    console = Console()
    table = Table("learner", "notebook", "score")
    graded: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in summary.rows:
        if "max_score" in row:
            graded.setdefault((row["learner"], row["notebook"]), []).append(row)
    for (learner, notebook), rows in graded.items():
        table.add_row(escape(learner), notebook, _total(rows))
    console.print(table)
    looks = dict.fromkeys((row["learner"], row["reason"]) for row in summary.rows if row["reason"].startswith(LOOK))
    for learner, reason in looks:
        what = f"{learner}: {reason} To let it count: ./course grade … --accept {learner}"
        console.print(what, markup=False, highlight=False)
    for problem in summary.problems:
        if problem["reason"].startswith(LOOK):
            continue
        what = f"{problem['learner']}, {problem['notebook']}"
        console.print(f"Could not be graded: {what}: {problem['reason']}", markup=False, highlight=False)
    console.print(f"Results: {summary.results}", markup=False)


def _total(rows: list[dict[str, Any]]) -> str:
    """The score of a notebook or script in a few words."""
    passed = rows[0]["passed"]
    if passed == LOOK.lower():
        return passed
    score, maximum = sum(row["score"] or 0.0 for row in rows), sum(row["max_score"] for row in rows)
    left = sum(row["max_score"] for row in rows if row["score"] is None)
    rest = f", {left:g} not graded" if left else ""
    verdict = {"yes": ", passed", "no": ", not passed", "": ""}[passed]
    return f"{score:g} of {maximum:g}{rest}{verdict}"
