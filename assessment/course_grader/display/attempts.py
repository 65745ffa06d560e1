"""The attempts at the assessment, kept beside the script: `.attempts/0001/`, `.attempts/0002/`, …

Each folder holds the script as it was when the attempt began, `assessment.py`, and what came of it,
`outcome.json`. An attempt without an outcome is still running or was cut off.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from course_grader.script.outcome import Outcome
from course_lib.system.errors import CourseError
from course_lib.system.files import write

FOLDER = ".attempts"


@dataclass(frozen=True)
class Attempt:
    """One attempt: its number, the script that was taken, when it began, and its outcome.

    `problem` is the sentence that says why there is no outcome.
    """

    number: int
    script: Path
    began: datetime
    outcome: Outcome | None = None
    problem: str = ""


class Attempts:
    """The attempts at one script. Several notebooks may add to them at the same time."""

    def __init__(self, script: str | Path) -> None:
        self._script = Path(script).absolute()
        self._folder = self._script.parent / FOLDER

    def begin(self) -> Attempt:
        """Take the script as it is now. CourseError (code 2) where it is missing or cannot be kept."""
        try:
            text = self._script.read_bytes()
        except OSError:
            raise CourseError(f"There is no script {self._script.name} here: save it under this name.", 2) from None
        try:
            number = self._new_number()
            kept = self._place(number) / self._script.name
            write(kept, text)
        except OSError as error:
            reason = error.strerror or error
            raise CourseError(f"The attempt cannot be kept in {self._folder} ({reason}): make room there.", 2) from None
        return Attempt(number, kept, _began(kept))

    def finish(self, attempt: Attempt, outcome: Outcome | None = None, problem: str = "") -> None:
        """Keep what came of an attempt: its outcome, or the sentence why there is none. OSError: it was not kept."""
        content = {"outcome": outcome.as_json() if outcome else None, "problem": problem}
        write(attempt.script.with_name("outcome.json"), json.dumps(content, indent=1).encode())

    def all(self) -> list[Attempt]:
        """Every attempt, the newest first. What cannot be read is passed over."""
        numbers = sorted((int(path.name) for path in self._folder.glob("[0-9]*") if path.name.isdigit()), reverse=True)
        return [attempt for number in numbers if (attempt := self._read(number))]

    def best(self, profile: str | None = None) -> Attempt | None:
        """The attempt (under `profile`, if given) with the highest score, among equals that which passed, was the
        fastest, came first."""
        graded = [one for one in self.all() if one.outcome and profile in (None, one.outcome.profile)]
        return max(graded, key=lambda attempt: (*_merit(attempt.outcome), -attempt.number), default=None)

    def _new_number(self) -> int:
        self._folder.mkdir(exist_ok=True)
        number = 1 + max((int(path.name) for path in self._folder.glob("[0-9]*") if path.name.isdigit()), default=0)
        while True:
            with contextlib.suppress(FileExistsError):  # another notebook was faster
                self._place(number).mkdir()
                return number
            number += 1

    def _place(self, number: int) -> Path:
        return self._folder / f"{number:04}"

    def _read(self, number: int) -> Attempt | None:
        script = self._place(number) / self._script.name
        try:
            began = _began(script)
        except OSError:
            return None
        try:
            content = json.loads(script.with_name("outcome.json").read_text(encoding="utf-8"))
            outcome = Outcome.from_json(content["outcome"]) if content["outcome"] else None
            return Attempt(number, script, began, outcome, content["problem"])
        except (OSError, ValueError, KeyError, TypeError):
            return Attempt(number, script, began, problem="Not finished.")


def _began(script: Path) -> datetime:
    return datetime.fromtimestamp(script.stat().st_mtime)


def _merit(outcome: Outcome) -> tuple[float, bool, float]:
    return outcome.score, outcome.passed, -float("inf") if outcome.seconds is None else -outcome.seconds
