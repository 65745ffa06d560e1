"""The class's gradebook: nbgrader's database of assignments, learners and scores."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_grader.classroom import class_leaderboard
from course_grader.classroom.preprocessors import LOOK, NOT_GRADED
from course_grader.classroom.submissions import Submission
from course_grader.script import contract
from course_grader.script.outcome import Outcome
from course_lib.authoring import masters
from course_lib.authoring.master_format import Master
from course_lib.notebook import jupyter
from course_lib.system.errors import CourseError
from course_lib.system.files import replacing, write

GRADEBOOK = "gradebook.db"
BY_HAND = "Set by hand."  # start of the reason for a score that an instructor has set
VERSIONS = ("course_version", "contract", "host_factor")  # columns of grades.csv: what a mark depends on
TEMPORARY_PREFIX = "course-grade-"  # of folders that a killed run may leave


def enter(notebooks: list[Master], gradebook: Path) -> None:
    """Enter notebooks into a gradebook. Raises NbGraderException if it has grades for other cells."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    config = masters.nbgrader_config()
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX) as root, _quiet(), jupyter.programs():
        for master in notebooks:
            path = Path(root, "source", master.assignment, master.notebook.name)
            write(path, masters.to_text(masters.source(master)).encode())
        for assignment in sorted({master.assignment for master in notebooks}):
            url = f"sqlite:///{gradebook}"
            coursedir = CourseDirectory(root=root, assignment_id=assignment, db_url=url, config=config)
            GenerateAssignment(coursedir=coursedir, config=config).start()


def update(notebooks: list[Master], blank: Path, results: Path) -> None:
    """Update the class's gradebook for these notebooks, completely or not at all.

    `blank` is a gradebook with these notebooks. Raises CourseError if the class's gradebook cannot be used.
    """
    from nbgrader.converters.base import NbGraderException

    gradebook = results / GRADEBOOK
    with replacing(gradebook) as new:
        if not gradebook.exists():
            shutil.copyfile(blank, new)
            return
        shutil.copyfile(gradebook, new)
        try:
            enter(notebooks, new)
        except NbGraderException:
            problem = f"{gradebook} is damaged or holds grades of older notebooks"
            raise CourseError(f"{problem}: move {results} away and grade again.") from None


def record(
    graded: list[tuple[Submission, dict[str, Any]]], results: Path
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Enter every result into the gradebook; return the rows of grades.csv and of not_graded.csv.

    A submission that could not be graded has no score, not a score of 0. The instructor's own scores and comments in
    the gradebook are kept.
    """
    from nbgrader.api import Gradebook

    rows, problems = [], []
    with _quiet(), Gradebook(f"sqlite:///{results / GRADEBOOK}") as book:
        for submission, result in graded:
            who = {
                "learner": submission.learner,
                "assignment": submission.assignment,
                "notebook": submission.notebook,
            }
            if "problem" in result:
                rows.append({**who, "reason": result["problem"]})
                problems.append({**who, "reason": result["problem"], "fault": result["fault"]})
                _remove_scores(book, submission)
                continue
            if submission.problem:
                problems.append({**who, "reason": submission.problem})
            key = (submission.notebook, submission.assignment, submission.learner)
            book.update_or_create_student(submission.learner)
            book.update_or_create_submission(submission.assignment, submission.learner)
            names = {cell.id: cell.name for cell in submission.master.cells}
            versions = {name: result.get(name, "") for name in VERSIONS}
            exercises = []
            for cell, exercise in result["exercises"].items():
                entry = book.find_grade(cell, *key)
                entry.auto_score = exercise["score"] if exercise["sound"] else None
                entry.needs_manual_grade = entry.manual_score is not None or not exercise["sound"]
                book.db.commit()
                by_hand = entry.manual_score is not None
                reason = f"{BY_HAND} {exercise['reason']}".strip() if by_hand else exercise["reason"]
                score = entry.score if exercise["sound"] or by_hand else None
                columns = {"max_score": exercise["max_score"], "reason": reason, "by_hand": by_hand, **versions}
                exercises.append({**who, "exercise": names[cell], "score": score, **columns})
                if not exercise["sound"]:  # the criteria of a script all have the same problem
                    where = "" if submission.master.script else f"Exercise {names[cell]}: "
                    reason = where + exercise["reason"].removeprefix(NOT_GRADED)
                    problem = {**who, "reason": reason, "fault": exercise["fault"]}
                    problems += [problem] if problem not in problems else []
            passed = _passed(result, exercises)
            rows += [{**row, "passed": passed} for row in exercises]
            for cell, text in result["comments"].items():
                book.find_comment(cell, *key).auto_comment = text
            book.db.commit()
    return rows, problems


def _passed(result: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return "yes", "no" or "needs review" for a script, "" for a notebook. Scores set by hand count."""
    if "outcome" not in result:
        return ""
    if any(row["by_hand"] for row in rows):
        terms = contract.read()
        full = {row["exercise"] for row in rows if row["score"] == row["max_score"]}
        enough = sum(row["score"] or 0 for row in rows) >= terms.pass_points
        return "yes" if enough and full.issuperset(terms.required) else "no"
    outcome = class_leaderboard.accept(Outcome.from_json(result["outcome"]), result["accepted"])
    return "yes" if outcome.passed else LOOK.lower() if outcome.needs_a_look else "no"


def _remove_scores(book: Any, submission: Submission) -> None:
    """Remove the scores of an earlier submission; the instructor's own scores are kept."""
    from nbgrader.api import MissingEntry

    key = (submission.notebook, submission.assignment, submission.learner)
    for cell in submission.master.cells if submission.master else ():
        with contextlib.suppress(MissingEntry):
            book.find_grade(cell.id, *key).auto_score = None
    book.db.commit()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence nbgrader's log, whose tracebacks we report in one sentence, and SQLAlchemy's warnings about nbgrader."""
    logger = logging.getLogger("traitlets")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
