"""The attempts at the assessment, stored in the folder of the script: `.attempts/0001/`, `.attempts/0002/`, …

Each folder has a copy of the script from the start of the attempt, and its outcome, `outcome.json`. An attempt without
an outcome is still running or was interrupted.
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
    """One attempt: its number, the copy of the script, its start and its outcome.

    `problem` is a sentence that says why there is no outcome.
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
        """Copy the current script into a new attempt. Raises CourseError (code 2) if it is missing or not saved."""
        try:
            text = self._script.read_bytes()
        except OSError:
            raise CourseError(f"There is no script {self._script.name} here: save it under this name.", 2) from None
        try:
            number = self._new_number()
            copy = self._folder_of(number) / self._script.name
            write(copy, text)
        except OSError as error:
            reason = error.strerror or error
            raise CourseError(f"The attempt cannot be saved in {self._folder} ({reason}): free space.", 2) from None
        return Attempt(number, copy, _began(copy))

    def finish(self, attempt: Attempt, outcome: Outcome | None = None, problem: str = "") -> None:
        """Store an attempt's outcome, or the sentence on why there is none. Raises OSError if it can't be written."""
        content = {"outcome": outcome.as_json() if outcome else None, "problem": problem}
        write(attempt.script.with_name("outcome.json"), json.dumps(content, indent=1).encode())

    def all(self) -> list[Attempt]:
        """Return every attempt, the newest first. Attempts that cannot be read are left out."""
        numbers = sorted((int(path.name) for path in self._folder.glob("[0-9]*") if path.name.isdigit()), reverse=True)
        return [attempt for number in numbers if (attempt := self._read(number))]

    def best(self, profile: str | None = None) -> Attempt | None:
        """Return the best attempt, of `profile` if given: by score, then by passing, then by time, then the first."""
        graded = [each for each in self.all() if each.outcome and profile in (None, each.outcome.profile)]
        return max(graded, key=lambda attempt: (*_merit(attempt.outcome), -attempt.number), default=None)

    def _new_number(self) -> int:
        self._folder.mkdir(exist_ok=True)
        number = 1 + max((int(path.name) for path in self._folder.glob("[0-9]*") if path.name.isdigit()), default=0)
        while True:
            with contextlib.suppress(FileExistsError):  # another notebook was faster
                self._folder_of(number).mkdir()
                return number
            number += 1

    def _folder_of(self, number: int) -> Path:
        return self._folder / f"{number:04}"

    def _read(self, number: int) -> Attempt | None:
        script = self._folder_of(number) / self._script.name
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
