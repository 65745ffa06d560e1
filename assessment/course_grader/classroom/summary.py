"""The results of grading a class: its tables, and the summary in the terminal."""

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

COLUMNS = ["learner", "assignment", "notebook", "exercise", "score", "max_score", "reason", *VERSIONS]
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
        text = pandas.DataFrame(table, columns=columns).to_csv(index=False)
        write(results / name, text.encode("utf-8", "backslashreplace"))
    (results / FAULTS).unlink(missing_ok=True)
    faults = [row for row in problems if row.get("fault")]
    if faults:
        text = "\n".join(f"{row['learner']}, {row['notebook']}: {row['reason']}\n{row['fault']}" for row in faults)
        write(results / FAULTS, text.encode("utf-8", "backslashreplace"))


def show(summary: Summary) -> None:
    """Print the scores, the problems, and the folder of results."""
    console = Console()
    table = Table("learner", "notebook", "score")
    totals: dict[tuple[str, str], list[float]] = {}
    for row in summary.rows:
        if "max_score" in row:
            total = totals.setdefault((row["learner"], row["notebook"]), [0.0, 0.0, 0.0])
            total[0] += row["score"] or 0.0
            total[1] += row["max_score"]
            total[2] += row["max_score"] if row["score"] is None else 0.0
    for (learner, notebook), (score, maximum, not_graded) in totals.items():
        rest = f", {not_graded:g} not graded" if not_graded else ""
        table.add_row(escape(learner), notebook, f"{score:g} of {maximum:g}{rest}")
    console.print(table)
    flagged = dict.fromkeys((row["learner"], row["reason"]) for row in summary.rows if row["reason"].startswith(LOOK))
    lines = [f"{name}: {reason} To let it count: course grade … --accept {name}" for name, reason in flagged]
    lines += [f"Could not be graded: {row['learner']}, {row['notebook']}: {row['reason']}" for row in summary.problems]
    for line in lines:
        console.print(line, markup=False, highlight=False)
    console.print(f"Results: {summary.results}", markup=False)
