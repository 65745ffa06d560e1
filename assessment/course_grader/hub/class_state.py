"""`course class`: how far each learner is with each lab, and where the class struggles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from course_grader.classroom.copies import TABLE as SIMILAR
from course_grader.classroom.gradebook import BY_HAND
from course_grader.classroom.grading import results_of
from course_grader.classroom.learners_notebook import Unusable
from course_grader.classroom.preprocessors import LOOK
from course_grader.display import class_page
from course_grader.display.class_page import ClassState, Exercise, Standing
from course_grader.hub import exchange
from course_grader.hub.exchange import Submitted
from course_grader.hub.receipt import GRADES, Deadline, Receipt, is_graded, table
from course_grader.hub.receipt import read as read_receipt
from course_lib.notebook.exercises import A_STUB
from course_lib.system.errors import CourseError
from course_lib.system.files import write

MAX_REASONS = 3  # most frequent ones, for each exercise
_LINE = re.compile(r" \(line \d+ of [^()]*\)")
Row = Mapping[str, str]


def show(directory: Path, folder: Path, page: Path | None = None) -> None:
    """Print the state of a class, and write it as a page if `page` is a path.

    Args:
        directory: the class's folder; its results are in DIRECTORY-graded.
        folder: the exchange.
        page: an HTML file.

    Raises CourseError if there is nothing to show, or the page can't be written.
    """
    state = read(directory, folder)
    class_page.show(state)
    if page:
        try:
            write(page, class_page.page(state).encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise CourseError(f"{page} cannot be written ({error.strerror}): name another file.") from None
        print(f"Page: {page}")


def read(directory: Path, folder: Path) -> ClassState:
    """Return the state of a class; see `show`."""
    results = results_of(directory.resolve())
    has_exchange = (folder / "inbound").is_dir()
    rows, similar = table(results / GRADES), results / SIMILAR
    learners = {path.name for path in _folders(directory)} | {row["learner"] for row in rows}
    submitted: list[Submitted] = []
    missing = [] if has_exchange else [f"There is no exchange at {folder}: what has not been collected is not shown."]
    receipt = read_receipt(directory)
    if has_exchange:
        source = exchange.find(folder)
        labs = source.labs()
        missing += filter(None, [source.restore().sentence])
        for learner in source.learners():
            learners.add(learner)
            try:
                submitted += source.submissions(learner, labs, receipt.of(learner))
            except Unusable as problem:
                missing.append(f"{learner}: {problem}")
    if not learners:
        nobody = "nobody has opened a lab on the hub yet" if has_exchange else f"there is no exchange at {folder}"
        raise CourseError(f"There is no class at {directory}, and {nobody}: --dir and --exchange name others.")
    records = _records(directory, receipt, rows, submitted)
    standings = {key: _standing(directory, key, record) for key, record in records.items()}
    if not rows:
        missing.append(f"There is no {results / GRADES}: `course grade {directory}` makes points and exercises.")
    elif not similar.exists():
        missing.append("No scripts were compared with each other.")
    return ClassState(
        learners=sorted(learners),
        labs=sorted({lab for _, lab in standings}),
        standings=standings,
        exercises=_exercises(rows),
        problems=[(row["learner"], row["notebook"], row["reason"]) for row in table(results / "not_graded.csv")],
        pairs=[(row["first"], row["second"], row["similarity"]) for row in table(similar)],
        missing=missing,
    )


@dataclass
class _Record:
    """All that is known of a learner's work for a lab."""

    receipt: Receipt
    learner: str
    lab: str
    rows: list[Row] = field(default_factory=list)
    submitted: list[Submitted] = field(default_factory=list)  # newest first

    @property
    def deadline(self) -> Deadline:
        return self.receipt.deadline(self.lab)


def _folders(directory: Path) -> list[Path]:
    return [path for path in directory.glob("[!.]*") if path.is_dir()] if directory.is_dir() else []


def _records(
    directory: Path, receipt: Receipt, rows: Iterable[Row], submitted: Iterable[Submitted]
) -> dict[tuple[str, str], _Record]:
    """Return (learner, lab) → what is known, for what was handed in, collected or graded."""
    records: dict[tuple[str, str], _Record] = {}

    def record(learner: str, lab: str) -> _Record:
        return records.setdefault((learner, lab), _Record(receipt, learner, lab))

    for one in submitted:
        if not one.problem:
            record(one.learner, one.lab).submitted.append(one)
    for learner, entries in receipt.collected.items():
        for lab in entries:
            if (directory / learner / lab).is_dir():
                record(learner, lab)
    for row in rows:
        if row["assignment"]:
            record(row["learner"], row["assignment"]).rows.append(row)
    return records


def _standing(directory: Path, key: tuple[str, str], record: _Record) -> Standing:
    """Return how far a learner is with a lab."""
    entry = record.receipt.entry(*key)
    newest = record.submitted[0] if record.submitted else None
    late = newest is not None and record.deadline.late(record.learner, newest.time)
    if not entry and not record.rows:
        return Standing("late" if late else "handed in")
    note = ""
    if entry and newest and newest.age > entry.age:
        note = "newer is late" if late else "newer handed in"
    elif entry and record.deadline.late(record.learner, entry.time):
        note = "late"
    if not is_graded(directory, *key):
        return Standing("collected", note)
    scored = [row for row in record.rows if row["score"]]
    if any(row["reason"].startswith(LOOK) for row in record.rows):
        state = "needs review"
    elif len(scored) < len(record.rows) or not scored:
        state = "graded in part" if scored else "not graded"
    else:
        pages = (results_of(directory.resolve()) / "feedback").joinpath(*key).glob("*.html")
        changed = max((page.stat().st_mtime for page in pages), default=0.0)
        state = "returned" if entry and entry.returned and entry.returned.timestamp() >= changed else "graded"
    if not scored:
        return Standing(state, note)
    points = sum(float(row["score"]) for row in scored)
    return Standing(state, note, points, sum(float(row["max_score"]) for row in record.rows if row["max_score"]))


def _exercises(rows: Sequence[Row]) -> list[Exercise]:
    """Return the exercises: those first that fewest of the learners who worked on them solved in full."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["exercise"] and row["score"]:
            groups.setdefault((row["notebook"], row["exercise"]), []).append(row)
    exercises = [_exercise(*names, graded) for names, graded in groups.items()]
    return sorted(exercises, key=lambda one: (not one.tried, one.share, one.points, one.notebook))


def _exercise(notebook: str, name: str, graded: Sequence[Row]) -> Exercise:
    tried = [row for row in graded if A_STUB not in row["reason"]]
    lost = [row for row in tried if float(row["score"]) < float(row["max_score"])]
    reasons = Counter(_LINE.sub("", row["reason"].removeprefix(BY_HAND).strip()) for row in lost)
    return Exercise(
        notebook=notebook,
        name=name,
        tried=len(tried),
        full=len(tried) - len(lost),
        stubs=len(graded) - len(tried),
        points=sum(float(row["score"]) for row in tried) / max(1, len(tried)),
        max_points=float(graded[0]["max_score"]),
        reasons=[(text, count) for text, count in reasons.most_common(MAX_REASONS) if text],
    )
