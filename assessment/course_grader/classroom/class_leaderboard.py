"""The leaderboard of a class: from the stored outcomes of grading, and from further runs of the best scripts."""

from __future__ import annotations

import csv
import io
import json
import secrets
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from course_grader.classroom.submissions import Submission
from course_grader.display import leaderboard, report
from course_grader.display.leaderboard import Entry
from course_grader.script import contract, grader
from course_grader.script.outcome import CannotGrade, Outcome
from course_lib.ranks.launch import Event
from course_lib.system.errors import CourseError
from course_lib.system.files import write

RUNS = 6  # of each of the best: a median of fewer runs has no 95 % interval
PSEUDONYMS = "pseudonyms.csv"
_QUALITIES = ("Amber", "Bold", "Calm", "Deft", "Early", "Fair", "Grand", "Hardy", "Keen", "Lucid", "Merry", "Noble")
_THINGS = ("Anchor", "Beacon", "Comet", "Delta", "Ember", "Falcon", "Glacier", "Harbour", "Island", "Juniper", "Kite")


@dataclass(frozen=True)
class Options:
    """Options of `course grade` for the leaderboard.

    Attributes:
        rerun_top: how many of the best scripts are run again.
        runs: further runs of each, at least RUNS.
        pseudonyms: whether the leaderboard shows pseudonyms.

    Raises CourseError (code 2) for other values.
    """

    rerun_top: int = 0
    runs: int = RUNS
    pseudonyms: bool = False

    def __post_init__(self) -> None:
        if self.rerun_top < 0:
            raise CourseError("--rerun-top must be 0 or more.", code=2)
        if self.rerun_top and self.runs < RUNS:
            raise CourseError(f"--runs must be {RUNS} or more: fewer runs give no 95 % interval.", code=2)


@dataclass(frozen=True)
class Passed:
    """A submission that passed, with its script and its stored result; `path` is the file of that result."""

    submission: Submission
    outcome: Outcome
    digest: str
    accepted: bool
    path: Path
    script: bytes

    def entry(self) -> Entry:
        """Return its entry for the leaderboard. Further runs count if there are at least RUNS."""
        attempts = self.path.with_suffix(".attempts").read_text().split()
        again = tuple(self.reruns())
        return Entry(self.submission.learner, self.outcome, len(attempts), again if len(again) >= RUNS else ())

    def reruns(self) -> list[Outcome]:
        """Return the outcomes of the further runs of this script since it was graded."""
        try:
            stored = json.loads(self.path.with_suffix(".reruns").read_text())
        except (OSError, ValueError):
            return []
        if stored["digest"] != self.digest:
            return []
        return [accept(Outcome.from_json(table), self.accepted) for table in stored["outcomes"]]

    def store(self, outcomes: Sequence[Outcome]) -> None:
        """Store the outcomes of its further runs."""
        stored = {"digest": self.digest, "outcomes": [outcome.as_json() for outcome in outcomes]}
        write(self.path.with_suffix(".reruns"), json.dumps(stored, indent=1).encode())


def record_attempt(path: Path, digest: str) -> None:
    """Record that the submission with this digest was graded; `path` is the file of its result."""
    attempts = path.with_suffix(".attempts")
    digests = attempts.read_text().split() if attempts.exists() else []
    if digest not in digests:
        write(attempts, "\n".join([*digests, digest]).encode())


def accept(outcome: Outcome, accepted: bool) -> Outcome:
    """Return the outcome; it passes if only flags prevented that and an instructor has `accepted` them."""
    return replace(outcome, passed=True) if accepted and outcome.needs_a_look else outcome


def run_again(passed: Sequence[Passed], top: int, runs: int, follow: Callable[[str], Callable[[Event], None]]) -> None:
    """Run the best `top` scripts again until each has `runs` further runs, with those of earlier calls.

    `follow` is called with a description of each run, and returns the function that gets the run's events. Raises
    CourseError if a run cannot be measured; the runs before it are stored.
    """
    by_learner = {entry.submission.learner: entry for entry in passed}
    rows = leaderboard.ranked([Entry(learner, entry.outcome) for learner, entry in by_learner.items()], contract.read())
    for row in [row for row in rows if row.place][:top]:
        entry = by_learner[row.learner]
        outcomes = entry.reruns()
        while len(outcomes) < runs:
            outcomes.append(_run(entry, follow(f"{row.learner}, run {len(outcomes) + 1} of {runs}")))
            entry.store(outcomes)


def _run(passed: Passed, on_event: Callable[[Event], None]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "assessment.py")
        script.write_bytes(passed.script)
        try:
            outcome = grader.assess(script, profile=passed.outcome.profile, on_event=on_event)
        except CannotGrade as problem:
            raise CourseError(
                f"A further run of {passed.submission.learner}'s script could not be measured: {problem} The earlier "
                "measurements are kept: run the same command again."
            ) from None
    return accept(outcome, passed.accepted)


def write_pages(results: Path, entries: Iterable[Entry], pseudonyms: bool) -> None:
    """Write leaderboard.csv and leaderboard.html; with `pseudonyms` also pseudonyms.csv, for the instructor only."""
    entries = sorted(entries, key=lambda entry: entry.learner)
    if pseudonyms:
        names = _pseudonyms(results / PSEUDONYMS, [entry.learner for entry in entries])
        entries = [replace(entry, learner=names[entry.learner]) for entry in entries]
    rows = leaderboard.ranked(entries, contract.read())
    settings = sorted({report.setting(entry.outcome) for entry in entries})
    write(results / leaderboard.FILE, leaderboard.to_csv(rows).encode())
    write(results / "leaderboard.html", leaderboard.page(rows, "; ".join(settings)).encode())


def _pseudonyms(path: Path, learners: Sequence[str]) -> dict[str, str]:
    """Return a random pseudonym for each learner. They are stored in `path`, so that they do not change."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    names = {row[0]: row[1] for row in csv.reader(lines) if len(row) == 2}
    free = [f"{quality} {thing}" for quality in _QUALITIES for thing in _THINGS]
    free = [name for name in free if name not in names.values()]
    for learner in learners:
        if learner not in names:
            names[learner] = free.pop(secrets.randbelow(len(free))) if free else f"Number {len(names) + 1}"
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([("learner", "pseudonym"), *sorted(names.items())])
    write(path, table.getvalue().encode())
    return names


def passed_submissions(
    graded: Iterable[tuple[Submission, dict[str, Any]]],
    path_of: Callable[[Submission], Path],
) -> list[Passed]:
    """Return the submissions that passed; `path_of` returns the file of a submission's result."""
    passed = []
    for submission, result in graded:
        if "outcome" in result:
            outcome = accept(Outcome.from_json(result["outcome"]), result["accepted"])
            if outcome.passed:
                stored = (result["digest"], result["accepted"], path_of(submission), result["script"])
                passed.append(Passed(submission, outcome, *stored))
    return passed
