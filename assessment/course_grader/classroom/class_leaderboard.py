"""What the leaderboard of a class stands on: the outcomes that grading kept, and further runs of the best."""

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

RUNS = 6  # of each of the best: fewer have no interval of 95 %
PSEUDONYMS = "pseudonyms.csv"
_QUALITIES = ("Amber", "Bold", "Calm", "Deft", "Early", "Fair", "Grand", "Hardy", "Keen", "Lucid", "Merry", "Noble")
_THINGS = ("Anchor", "Beacon", "Comet", "Delta", "Ember", "Falcon", "Glacier", "Harbour", "Island", "Juniper", "Kite")


@dataclass(frozen=True)
class Passed:
    """A submission that passed: what was kept of it among the results, and its script."""

    one: Submission
    outcome: Outcome
    digest: str
    accepted: bool
    memory: Path
    script: bytes

    def entry(self) -> Entry:
        """What stands on the leaderboard. Further runs count once there are enough of them."""
        attempts = self.memory.with_suffix(".attempts").read_text().split()
        again = tuple(self.further())
        return Entry(self.one.learner, self.outcome, len(attempts), again if len(again) >= RUNS else ())

    def further(self) -> list[Outcome]:
        """The runs that were made of this script since it was graded."""
        try:
            kept = json.loads(self.memory.with_suffix(".reruns").read_text())
        except (OSError, ValueError):
            return []
        if kept["digest"] != self.digest:
            return []
        return [counted(Outcome.from_json(table), self.accepted) for table in kept["outcomes"]]

    def keep(self, outcomes: Sequence[Outcome]) -> None:
        """Keep these as its further runs."""
        kept = {"digest": self.digest, "outcomes": [outcome.as_json() for outcome in outcomes]}
        write(self.memory.with_suffix(".reruns"), json.dumps(kept, indent=1).encode())


def handed_in(memory: Path, digest: str) -> None:
    """Note among the results that this has been graded, for the number of attempts."""
    noted = memory.with_suffix(".attempts")
    before = noted.read_text().split() if noted.exists() else []
    if digest not in before:
        write(noted, "\n".join([*before, digest]).encode())


def counted(outcome: Outcome, accepted: bool) -> Outcome:
    """The outcome as it counts where an instructor has looked at the script."""
    return replace(outcome, passed=True) if accepted and outcome.needs_a_look else outcome


def run_again(passed: Sequence[Passed], top: int, runs: int, follow: Callable[[str], Callable[[Event], None]]) -> None:
    """Run the best `top` again until there are `runs` further runs of each; those that there are already count.

    `follow` gets what is run, in a few words, and gives what takes the events of a run. CourseError where a run can't
    be measured; what was measured is kept.
    """
    by_learner = {one.one.learner: one for one in passed}
    rows = leaderboard.ranked([Entry(learner, one.outcome) for learner, one in by_learner.items()], contract.read())
    for row in [row for row in rows if row.place][:top]:
        one = by_learner[row.learner]
        outcomes = one.further()
        while len(outcomes) < runs:
            outcomes.append(_run(one, follow(f"{row.learner}, run {len(outcomes) + 1} of {runs}")))
            one.keep(outcomes)


def _run(one: Passed, follow: Callable[[Event], None]) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "assessment.py")
        script.write_bytes(one.script)
        try:
            return counted(grader.assess(script, profile=one.outcome.profile, on_event=follow), one.accepted)
        except CannotGrade as problem:
            who = f"A further run of {one.one.learner}'s script could not be measured"
            raise CourseError(f"{who}: {problem} What was measured is kept: give the same command again.") from None


def write_pages(results: Path, entries: Iterable[Entry], pseudonyms: bool) -> None:
    """Write leaderboard.csv and leaderboard.html; with `pseudonyms` also pseudonyms.csv, which is the instructor's."""
    entries = sorted(entries, key=lambda entry: entry.learner)
    if pseudonyms:
        names = _pseudonyms(results / PSEUDONYMS, [entry.learner for entry in entries])
        entries = [replace(entry, learner=names[entry.learner]) for entry in entries]
    rows = leaderboard.ranked(entries, contract.read())
    settings = sorted({report.setting(entry.outcome) for entry in entries})
    write(results / leaderboard.FILE, leaderboard.to_csv(rows).encode())
    write(results / "leaderboard.html", leaderboard.page(rows, "; ".join(settings)).encode())


def _pseudonyms(path: Path, learners: Sequence[str]) -> dict[str, str]:
    """A name for each learner, drawn once and kept in `path`."""
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


def found(
    graded: Iterable[tuple[Submission, dict[str, Any]]],
    place: Callable[[Submission], Path],
) -> list[Passed]:
    """Those who passed; `place` says where a submission's result is kept."""
    passed = []
    for one, result in graded:
        if "outcome" in result:
            outcome = counted(Outcome.from_json(result["outcome"]), result["accepted"])
            if outcome.passed:
                kept = (result["digest"], result["accepted"], place(one), result["script"])
                passed.append(Passed(one, outcome, *kept))
    return passed
