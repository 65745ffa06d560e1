"""The folders in which labs of the hub and their instructor exchange files, as an instructor's lab sees them.

    outbound/LAB        what is handed out
    inbound/USER        written by USER alone: NAME+LAB+TIMESTAMP+RANDOM for each submission, as nbgrader makes them
    feedback/USER       read by USER alone

Who handed in is said by the folder's name, USER; NAME and TIMESTAMP are written by the learner's own lab.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from course_grader.classroom.learners_notebook import Unusable
from course_grader.classroom.submissions import plain
from course_grader.hub import restored, snapshot
from course_grader.hub.receipt import Collected
from course_grader.hub.snapshot import SECRET, TIMESTAMP
from course_lib.system.errors import CourseError

MAX_SECRET = 1_000  # bytes; of TIMESTAMP too
MAX_SUBMISSIONS = 100  # of a learner for a lab that are examined: the newest
MAX_NAME = 200  # bytes of a notebook's name: a longer one gets no page
_NAME = re.compile(r"[^+]*\+(?P<lab>[^+]+)\+(?P<timestamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^+]*)(\+.*)?", re.DOTALL)


@dataclass(frozen=True)
class Submitted:
    """A submission in the exchange.

    Attributes:
        name: of its folder.
        timestamp: when it was handed in by the clock of the learner's lab: nbgrader names feedback by it.
        time: the latest change of its files by the kernel's clock; see `restored` for those of a backup.
        notebooks: names of the notebooks that nbgrader expects feedback for, without extension.
        problem: why it cannot be collected; or "".
    """

    learner: str
    lab: str
    name: str
    timestamp: str
    time: datetime
    notebooks: tuple[str, ...] = ()
    problem: str = ""

    @property
    def age(self) -> tuple[str, datetime]:
        """What submissions of a learner for a lab are sorted by: a changed one is newer than it was before."""
        return self.timestamp, self.time


@dataclass(frozen=True)
class Exchange:
    """The exchange in `folder`; see `find`."""

    folder: Path

    def labs(self) -> list[str]:
        """Return the names of the labs that are handed out."""
        outbound = self.folder / "outbound"
        return sorted(path.name for path in outbound.glob("[!.]*") if path.is_dir()) if outbound.is_dir() else []

    def learners(self) -> list[str]:
        """Return the names of the learners who have opened a lab."""
        names = sorted(name for name in os.listdir(self.folder / "inbound") if not name.startswith("."))
        if any(_NAME.fullmatch(name) for name in names):
            raise CourseError(f"{self.folder} is one learner's: this command is for an instructor's lab on the hub.")
        return [name for name in names if plain(name) == name]

    def restore(self) -> restored.Restore:
        """Return the last restore of the exchange from a backup."""
        return restored.read(self.folder / "outbound")

    def submissions(self, learner: str, labs: Collection[str], collected: Mapping[str, Collected]) -> list[Submitted]:
        """Return what a learner has handed in for these labs, newest first.

        `collected`: lab → what was collected from the learner before. The names of labs in the exchange are the
        learner's choice; those of no known lab are not looked at. Raises Unusable if the learner's folder can't be
        read.
        """
        submissions, restore = [], self.restore()
        with _readable("The learner's folder"), self._inbound(learner) as inbound:
            names = [name for name in os.listdir(inbound) if plain(name) == name]
            matches = [match for name in names if (match := _NAME.fullmatch(name)) and match["lab"] in labs]
            numbers: Counter[str] = Counter()
            for match in sorted(matches, key=lambda match: match["timestamp"], reverse=True):
                numbers[match["lab"]] += 1
                if numbers[match["lab"]] <= MAX_SUBMISSIONS:
                    with contextlib.suppress(FileNotFoundError):
                        submitted = _submitted(inbound, learner, match)
                        submitted = replace(submitted, time=restore.time(submitted.time))
                        submissions.append(self._as_collected(submitted, collected.get(submitted.lab)))
        return sorted(submissions, key=lambda submitted: submitted.age, reverse=True)

    @contextlib.contextmanager
    def opened(self, submitted: Submitted) -> Iterator[int]:
        """Open the folder of a submission; yield its descriptor. Raises Unusable if it can't be read."""
        with contextlib.ExitStack() as stack:
            with _readable("It"):
                inbound = stack.enter_context(self._inbound(submitted.learner))
                folder = stack.enter_context(snapshot.opened(submitted.name, inbound))
            yield folder

    @contextlib.contextmanager
    def _inbound(self, learner: str) -> Iterator[int]:
        with snapshot.opened(self.folder / "inbound") as inbound, snapshot.opened(learner, inbound) as own:
            yield own

    def _as_collected(self, submitted: Submitted, before: Collected | None) -> Submitted:
        """Return a submission with the time at which it was collected `before`, if its files are still the same.

        A restore or a copy of the hub's folders gives files a new change time.
        """
        if not before or submitted.problem or submitted.name != before.name or submitted.time <= before.time:
            return submitted
        try:
            with self.opened(submitted) as folder:
                same = snapshot.copy(folder).digest == before.digest
        except Unusable:
            return submitted
        return replace(submitted, time=before.time) if same else submitted


def find(folder: Path) -> Exchange:
    """Return the exchange in `folder`. Raises CourseError if there is none."""
    if not (folder / "inbound").is_dir():
        advice = "this command is for an instructor's lab on the hub; --exchange names another folder."
        raise CourseError(f"There is no exchange at {folder}: {advice}")
    return Exchange(folder)


def lab_named(text: str, labs: list[str]) -> str:
    """Return the lab of this name or short name: lab2_horovod, lab2 and 2. Raises CourseError (code 2) for another."""
    matching = [lab for lab in labs if text in (lab, short(lab), short(lab).removeprefix("lab"))]
    if not labs:
        raise CourseError("No lab has been handed out on this hub yet.")
    if not matching:
        raise CourseError(f"There is no lab {text!r}: name one of {', '.join(map(short, labs))}.", code=2)
    return matching[0]


def short(lab: str) -> str:
    """Return the short name of a lab: lab2 for lab2_horovod."""
    return lab.partition("_")[0]


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    """Raise Unusable with a sentence in the place of an OSError."""
    try:
        yield
    except OSError as error:
        raise Unusable(f"{what} cannot be read ({error.strerror}).") from None


def _submitted(inbound: int, learner: str, match: re.Match[str]) -> Submitted:
    """Return the submission in the folder of this name. Raises FileNotFoundError if it is gone."""
    name = match[0]
    about = (learner, match["lab"], name, match["timestamp"])
    listing = snapshot.Listing(changed=os.stat(name, dir_fd=inbound, follow_symlinks=False).st_ctime_ns)
    try:
        with snapshot.opened(name, inbound) as folder:
            listing = snapshot.examine(folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        return Submitted(*about, listing.time, problem=f"It is no folder, or cannot be read ({error.strerror}).")
    except Unusable as error:
        return Submitted(*about, listing.time, problem=str(error))
    complete = listing.files.get(TIMESTAMP) and listing.files.get(SECRET)
    problem = "" if complete else "It is not complete: its lab is still writing it, or was ended before it had."
    notebooks = {name[: -len(".ipynb")] for name in (*listing.files, *listing.refused) if _has_page(name)}
    return Submitted(*about, listing.time, tuple(sorted(notebooks)), problem)


def _has_page(path: str) -> bool:
    """Return whether nbgrader expects a page for a file, and the page can have its name."""
    return path.endswith(".ipynb") and "/" not in path and plain(path) == path and len(os.fsencode(path)) <= MAX_NAME
