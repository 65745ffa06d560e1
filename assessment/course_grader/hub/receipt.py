"""What was collected from whom, and when: `.collected.json` in the class's folder, which `course grade` passes over."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from course_grader.classroom.grading import results_of
from course_grader.classroom.submissions import plain
from course_grader.classroom.summary import as_written
from course_lib.system.errors import CourseError
from course_lib.system.files import locked, write

FILE = ".collected.json"
LOCK = ".collected.lock"
GRADES = "grades.csv"


@dataclass(frozen=True)
class Collected:
    """A submission that was collected; the fields are as in `exchange.Submitted` and `snapshot.Snapshot`.

    Attributes:
        collected: when, by this machine's clock.
        returned: when its feedback was returned; or None.
    """

    name: str
    timestamp: str
    time: datetime
    collected: datetime
    digest: str
    secret: str = field(repr=False)
    notebooks: tuple[str, ...]
    returned: datetime | None = None

    @property
    def age(self) -> tuple[str, datetime]:
        """As of `exchange.Submitted`."""
        return self.timestamp, self.time

    def returned_at(self, time: datetime) -> Collected:
        """Return this entry with the time at which its feedback was returned."""
        return replace(self, returned=time)


@dataclass(frozen=True)
class Deadline:
    """The deadline of a lab, if it has one; `extensions` are learner → a later one."""

    time: datetime | None = None
    extensions: dict[str, datetime] = field(default_factory=dict)

    def of(self, learner: str) -> datetime | None:
        """Return the time until which a learner may hand in; None: at any time."""
        return max(self.time, self.extensions.get(learner, self.time)) if self.time else None

    def late(self, learner: str, time: datetime) -> bool:
        """Return whether it was too late for a learner to hand in."""
        limit = self.of(learner)
        return limit is not None and time > limit


@dataclass
class Receipt:
    """Deadlines: lab → Deadline; collected: learner → lab → Collected."""

    deadlines: dict[str, Deadline] = field(default_factory=dict)
    collected: dict[str, dict[str, Collected]] = field(default_factory=dict)

    def deadline(self, lab: str) -> Deadline:
        """Return the deadline of a lab."""
        return self.deadlines.get(lab, Deadline())

    def of(self, learner: str) -> dict[str, Collected]:
        """Return what was collected from a learner: lab → Collected."""
        return self.collected.get(learner, {})

    def entry(self, learner: str, lab: str) -> Collected | None:
        """Return what was collected from a learner for a lab."""
        return self.of(learner).get(lab)

    def enter(self, learner: str, lab: str, entry: Collected) -> None:
        """Replace what was collected from a learner for a lab."""
        self.collected.setdefault(learner, {})[lab] = entry

    def write(self, directory: Path) -> None:
        """Write it into the class's folder."""
        write(directory / FILE, json.dumps(asdict(self), default=datetime.isoformat, indent=1).encode())


def read(directory: Path) -> Receipt:
    """Read the receipt in the class's folder; empty if there is none. Raises CourseError for a damaged one."""
    path = directory / FILE
    try:
        stored = json.loads(path.read_text())
        return Receipt(
            {lab: Deadline(**_with_times(entry)) for lab, entry in stored["deadlines"].items()},
            {
                learner: {lab: Collected(**_with_times(entry)) for lab, entry in labs.items()}
                for learner, labs in stored["collected"].items()
            },
        )
    except FileNotFoundError:
        return Receipt()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise CourseError(f"{path} cannot be read: move {directory} away and collect again.") from None


def _with_times(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as it was before it became JSON."""
    times = {name: entry[name] and datetime.fromisoformat(entry[name]) for name in _TIMES & entry.keys()}
    if "extensions" in entry:
        times["extensions"] = {name: datetime.fromisoformat(time) for name, time in entry["extensions"].items()}
    if "notebooks" in entry:
        times["notebooks"] = tuple(entry["notebooks"])
    return {**entry, **times}


_TIMES = {"time", "collected", "returned"}


@contextlib.contextmanager
def exclusive(directory: Path) -> Iterator[Receipt]:
    """Keep other collecting, returning and grading of a class away; yield its receipt.

    Raises CourseError if the class is being graded, or if a folder can't be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(directory / LOCK))
            results = results_of(directory.resolve())
            if results.is_dir():
                lock = stack.enter_context((results / ".lock").open("a"))  # as `course grade` does
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise CourseError(f"`course grade` is grading {directory}: wait until it has ended.") from None
            yield read(directory)
    except OSError as error:
        raise CourseError(f"{error.filename or directory} cannot be written ({error.strerror}).") from None


def is_graded(directory: Path, learner: str, lab: str) -> bool:
    """Return whether `course grade` has ended since a learner's folder of a lab last changed."""
    try:
        graded = (results_of(directory.resolve()) / GRADES).stat().st_mtime_ns
    except OSError:
        return False
    folder = directory / learner / lab
    return not folder.is_dir() or folder.stat().st_mtime_ns <= graded


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table of `course grade`, without control characters; none if it is missing."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            return [{name: plain(as_written(text or "")) for name, text in row.items()} for row in rows]
    except OSError:
        return []
