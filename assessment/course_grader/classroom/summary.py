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

COLUMNS = ["learner", "assignment", "notebook", "exercise", "score", "max_score", "reason", *VERSIONS]
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
    totals: dict[tuple[str, str], list[float]] = {}
    for row in summary.rows:
        if "max_score" in row:
            total = totals.setdefault((row["learner"], row["notebook"]), [0.0, 0.0, 0.0])
            total[0] += row["score"] or 0.0
            total[1] += row["max_score"]
            total[2] += row["max_score"] if row["score"] is None else 0.0
    for (learner, notebook), (score, maximum, left) in totals.items():
        rest = f", {left:g} not graded" if left else ""
        table.add_row(escape(learner), notebook, f"{score:g} of {maximum:g}{rest}")
    console.print(table)
    looks = dict.fromkeys((row["learner"], row["reason"]) for row in summary.rows if row["reason"].startswith(LOOK))
    for learner, reason in looks:
        what = f"{learner}: {reason} To let it count, course grade … --accept {learner}"
        console.print(what, markup=False, highlight=False)
    for problem in summary.problems:
        what = f"{problem['learner']}, {problem['notebook']}"
        console.print(f"Could not be graded: {what}: {problem['reason']}", markup=False, highlight=False)
    console.print(f"Results: {summary.results}", markup=False)
