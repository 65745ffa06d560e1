"""`course collect`: the newest submission of each learner that is in time, copied into the class's folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_grader.classroom.learners_notebook import Unusable
from course_grader.classroom.submissions import plain
from course_grader.hub import exchange, snapshot, times
from course_grader.hub.exchange import Exchange, Submitted
from course_grader.hub.receipt import Collected, Deadline, Receipt, exclusive
from course_lib.system.errors import CourseError

NO_DEADLINE = "none"
ASSESSMENT = "assessment"  # the folder of the assessment, beside those of the labs
MAX_NAMED = 20  # files of a submission that were left out
_DRAFT = ".collecting-"  # start of the names of folders that a killed run may leave


@dataclass
class Line:
    """What became of the submissions of a learner for a lab; `remarks` need the instructor."""

    learner: str
    lab: str
    handed_in: datetime | None = None
    outcome: str = ""
    taken: bool = False
    remarks: list[str] = field(default_factory=list)


def collect(
    lab: str | None, directory: Path, folder: Path, deadline: str | None = None, extend: Sequence[str] = ()
) -> int:
    """Collect submissions into DIRECTORY/LEARNER/LAB, and print what was collected.

    Args:
        lab: name or short name of a lab; None: all labs.
        directory: the class's folder.
        folder: the exchange.
        deadline: the new deadline of the lab, or "none"; None: as before.
        extend: later deadlines of single learners, as NAME=TIME.

    Returns:
        0, or 1 if something was left out that somebody handed in.

    Raises CourseError if nothing can be collected.
    """
    source = exchange.find(folder)
    learners, labs = source.learners(), source.labs()
    if (deadline or extend) and lab is None:
        raise CourseError("--deadline and --extend are those of one lab: name it.", code=2)
    wanted = labs if lab is None else [exchange.lab_named(lab, labs)]
    with exclusive(directory) as receipt:
        _remove_drafts(directory)
        if deadline or extend:
            _set_deadline(receipt, wanted[0], deadline, extend, learners)
            receipt.write(directory)
        lines = []
        for learner in learners:
            try:
                _require_name(learner, labs)
                submitted = source.submissions(learner, wanted, receipt.of(learner))
            except Unusable as problem:
                lines.append(Line(learner, lab or "", remarks=[str(problem)]))
                continue
            for name in wanted:
                own = [one for one in submitted if one.lab == name]
                if own or lab is not None:
                    lines.append(_collect_one(source, directory, receipt, Line(learner, name), own))
    if sentence := source.restore().sentence:
        print(sentence)
    _show(lines, receipt, directory)
    return 1 if any(line.remarks for line in lines) else 0


def _set_deadline(
    receipt: Receipt, lab: str, deadline: str | None, extend: Sequence[str], learners: Sequence[str]
) -> None:
    before = receipt.deadline(lab)
    time = before.time
    if deadline:
        time = None if deadline.strip().lower() == NO_DEADLINE else times.parse(deadline)
    extensions = dict(before.extensions)
    for text in extend:
        name, sign, later = text.partition("=")
        if not sign:
            raise CourseError(f'--extend takes NAME="2026-12-03 18:00", not {text!r}.', code=2)
        if time is None:
            raise CourseError(f"{lab} has no deadline that could be extended: give --deadline too.", code=2)
        extensions[name.strip()] = times.parse(later)
        if name.strip() not in learners:
            print(f"{name.strip()} has not opened a lab yet: is the name right?")
    receipt.deadlines[lab] = Deadline(time, extensions)


def _require_name(learner: str, labs: Sequence[str]) -> None:
    """Raise Unusable for a name with which `course grade` would take the class's folder for a learner's."""
    if learner in (ASSESSMENT, *labs):
        raise Unusable("This is the name of a part of the course: let the operator of the hub give another name.")


def _collect_one(
    source: Exchange, directory: Path, receipt: Receipt, line: Line, submissions: Sequence[Submitted]
) -> Line:
    """Collect the newest of a learner's submissions for a lab, newest first, that is in time; return what was done."""
    deadline, place = receipt.deadline(line.lab), directory / line.learner / line.lab
    before = receipt.entry(line.learner, line.lab)
    late = None
    for submitted in submissions:
        if submitted.problem:
            line.remarks.append(f"the submission of {submitted.timestamp} was left out. {submitted.problem}")
            continue
        if deadline.late(line.learner, submitted.time):
            late = late or submitted
            continue
        if before and place.is_dir() and not deadline.late(line.learner, before.time) and submitted.age <= before.age:
            line.handed_in, line.outcome = before.time, "as collected before"
            break
        if place.exists() and not before:
            line.handed_in, line.outcome = submitted.time, "left out"
            line.remarks.append(f"{place} is not from here: move it away to collect the submission.")
            break
        try:
            entry, refused = _take(source, submitted, place, deadline, before)
        except Unusable as problem:
            line.remarks.append(f"the submission of {submitted.timestamp} was left out. {problem}")
            continue
        receipt.enter(line.learner, line.lab, entry)
        receipt.write(directory)
        line.handed_in, line.outcome, line.taken = entry.time, "collected", True
        line.remarks += [f"{plain(path)} was left out: {why}." for path, why in sorted(refused.items())[:MAX_NAMED]]
        if len(refused) > MAX_NAMED:
            line.remarks.append(f"{len(refused) - MAX_NAMED:,} more files were left out.")
        break
    if late:
        limit = deadline.of(line.learner)
        by = f"late by {times.span(late.time - limit)}"
        line.outcome = f"{line.outcome}; a newer one is {by}" if line.outcome else f"{by}: not collected"
        line.handed_in = line.handed_in or late.time
    return line


def _take(
    source: Exchange, submitted: Submitted, place: Path, deadline: Deadline, before: Collected | None
) -> tuple[Collected, dict[str, str]]:
    """Copy a submission beside the learner's folder, then put it into `place`, unless the same files are there.

    Returns its receipt and what was not copied. Raises Unusable if it cannot be copied, or was changed after the
    deadline while it was copied.
    """
    with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=place.parents[1]) as draft:
        new = Path(draft, "new")
        with source.opened(submitted) as folder:
            _, secret = (_line(folder, name) for name in (snapshot.TIMESTAMP, snapshot.SECRET))
            copied = snapshot.copy(folder, new)
        time = source.restore().time(copied.time)
        if before and submitted.name == before.name and copied.digest == before.digest:
            time = min(time, before.time)
        if deadline.late(submitted.learner, time):
            raise Unusable("It was changed after the deadline.")
        if not (before and before.digest == copied.digest and place.is_dir()):
            _replace(place, new, Path(draft, "old"))
    about = (submitted.name, submitted.timestamp, time, times.now(), copied.digest, secret, submitted.notebooks)
    return Collected(*about), copied.refused


def _line(folder: int, name: str) -> str:
    """Return the text of one of nbgrader's files in an opened submission. Raises Unusable without one."""
    with contextlib.suppress(OSError, ValueError, Unusable):
        if (text := snapshot.read(folder, name, exchange.MAX_SECRET).decode()).strip():
            return text
    raise Unusable(f"Its {name} is empty or cannot be read.")


def _replace(place: Path, new: Path, old: Path) -> None:
    """Move the folder at `place`, if there is one, to `old`, and `new` to `place`."""
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        os.rename(place, old)
    try:
        os.rename(new, place)
    except OSError:
        if old.exists():
            os.rename(old, place)
        raise


def _remove_drafts(directory: Path) -> None:
    """Remove what a killed run has left; the submission that it was taking is collected again."""
    for path in directory.glob(f"{_DRAFT}*"):
        shutil.rmtree(path, ignore_errors=True)


def _show(lines: Sequence[Line], receipt: Receipt, directory: Path) -> None:
    """Print the deadlines, a table of the submissions, and what needs the instructor."""
    console = Console(highlight=False)
    for lab in dict.fromkeys(line.lab for line in lines if line.lab):
        deadline = receipt.deadline(lab)
        if deadline.time:
            later = "".join(f"; {name}: {times.shown(time)}" for name, time in sorted(deadline.extensions.items()))
            console.print(f"Deadline of {lab}: {times.shown(deadline.time)}{later}", markup=False)
    if not lines:
        console.print("Nothing has been handed in yet.")
        return
    table = Table("learner", "lab", "handed in", "")
    for line in lines:
        time = times.shown(line.handed_in) if line.handed_in else ""
        outcome = line.outcome or ("left out" if line.remarks else "nothing handed in")
        table.add_row(escape(line.learner), line.lab, time, outcome)
    console.print(table)
    for line in lines:
        for remark in line.remarks:
            console.print(
                f"{', '.join(filter(None, (line.learner, line.lab)))}: {remark}", markup=False, soft_wrap=True
            )
    taken = sum(line.taken for line in lines)
    handed_in = sum(line.handed_in is not None for line in lines)
    console.print(f"Collected now: {taken} of {handed_in}, into {directory}.", markup=False, soft_wrap=True)
    if taken:
        console.print(f"Grade them: course grade {directory}", markup=False, soft_wrap=True)
