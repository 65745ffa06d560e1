"""One way to judge: a criterion looks at a subject, gives points for it, and says why in one sentence.

The subject is what a learner wrote in a cell (`exercises`), or what a script's run on ranks left behind (notebook 2b
and the assessment). What kind of subject it takes is settled between a criterion and whoever asks it.

A learner loses points only by `Wrong`, or by an error that the learner's own code raises. Whatever else is raised is a
fault of the course, `CheckFailed`.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

_STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), "<frozen ", "<__array_function__ ")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = re.compile(r"(course_lib|course_grader|labs\.\w+\.lessons)\b")
_OTHER_ARGUMENTS = re.compile(r"\S+\(\) (takes|missing|got) ")  # how Python says that a function can't be called so
MOST_CHARACTERS = 600  # of a reason


class Wrong(Exception):
    """What a judge raises: one sentence that points to the mistake, and the share of the points that is left.

    A `hint` takes the place of the criterion's, where the cause that was seen is not the usual one. `rests_on`: see
    `Verdict`.
    """

    def __init__(
        self, sentence: str, share: float = 0.0, hint: str | None = None, *, rests_on: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.share = min(1.0, max(0.0, float(share)))
        self.hint, self.rests_on = hint, rests_on


class CheckFailed(Exception):
    """A criterion failed, not the answer, which nobody has judged: a fault of the course. The cause is `__cause__`."""


@dataclass(frozen=True)
class Verdict:
    """What one criterion says of one subject.

    `rests_on` says what decided, in an assessment: "host", what was seen from outside, or "script", what it said.
    """

    id: str
    title: str
    points: float
    max_points: float
    reason: str
    hint: str = ""
    rests_on: str = ""

    @property
    def passed(self) -> bool:
        """Full points."""
        return self.points >= self.max_points


@dataclass(frozen=True)
class Criterion:
    """A question to a subject: `judge` raises `Wrong`, or returns what is right in a sentence (None: "Right.").

    It may return a pair, the sentence and what it rests on. `hint` is for those who lose points.
    """

    id: str
    title: str
    max_points: float
    judge: Callable[[Any], str | tuple[str, str] | None]
    hint: str = ""

    def __call__(self, subject: Any) -> Verdict:
        """The verdict. Raises what code of the learner's raised, and CheckFailed where the criterion fails."""
        try:
            judged = self.judge(subject)
        except Wrong as wrong:
            hint = (self.hint if wrong.hint is None else wrong.hint) if wrong.share < 1 else ""
            return self._verdict(wrong.share, str(wrong), hint, wrong.rests_on or "")
        except CheckFailed:
            raise
        except (Exception, SystemExit) as error:
            if is_learners(error):
                raise
            raise CheckFailed(f"{self.title}: this check failed, not what it judges ({described(error)}).") from error
        reason, rests_on = judged if isinstance(judged, tuple) else (judged, "")
        return self._verdict(1.0, reason or "Right.", "", rests_on)

    def _verdict(self, share: float, reason: str, hint: str, rests_on: str) -> Verdict:
        return Verdict(self.id, self.title, share * self.max_points, self.max_points, one_line(reason), hint, rests_on)


def judge(subject: Any, criteria: Iterable[Criterion]) -> list[Verdict]:
    """Ask every criterion. Raises as a criterion does."""
    return [criterion(subject) for criterion in criteria]


def report(subject: Any, criteria: Iterable[Criterion]) -> list[Verdict]:
    """As `judge`, for a report that a learner sees: of a criterion that fails, the verdict says so."""
    verdicts = []
    for criterion in criteria:
        try:
            verdicts.append(criterion(subject))
        except CheckFailed as failed:
            verdicts.append(not_judged(criterion, failed))
    return verdicts


def not_judged(criterion: Criterion, failed: CheckFailed) -> Verdict:
    """What a learner sees of a criterion that failed."""
    cause = failed.__cause__ or failed
    *_, place = traceback.extract_tb(cause.__traceback__)
    what = f"{described(cause)}, line {place.lineno} of {Path(place.filename).name}"
    reason = f"This check failed; your answer was not judged. Please report it ({what})."
    return Verdict(criterion.id, criterion.title, 0.0, criterion.max_points, reason)


def is_learners(error: BaseException) -> bool:
    """Whether an error is a learner's: their code raised it, or it can't be called with the arguments that it gets."""
    called_otherwise = isinstance(error, TypeError) and bool(_OTHER_ARGUMENTS.match(message(error)))
    return called_otherwise or learners_place(error) is not None


def learners_place(error: BaseException | None) -> tuple[str, str] | None:
    """The innermost function of a learner's that an error, or its cause, passed, and where: "line 3 of your cell"."""
    while error is not None:
        passed = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_learners_code(frame)]
        if passed:
            frame, line = passed[-1]
            file = Path(frame.f_code.co_filename)
            return frame.f_code.co_name, f"line {line} of {file.name if file.is_file() else 'your cell'}"
        error = error.__cause__
    return None


def _is_learners_code(frame: FrameType) -> bool:
    """It belongs to no module of the course, and to none that is installed."""
    file = frame.f_code.co_filename
    installed = file.startswith(_STANDARD_LIBRARY) or any(folder in file for folder in _INSTALLED)
    return not installed and not _OURS.match(str(frame.f_globals.get("__name__")))


def described(error: BaseException) -> str:
    """An error's type and message, in one line."""
    return f"{type(error).__name__}: {message(error)}".removesuffix(": ")


def message(error: BaseException) -> str:
    """An error's message in one line, whatever its class makes of it."""
    try:
        return one_line(str(error))
    except Exception:
        return ""


def one_line(text: str) -> str:
    """The text in one line, cut where it is long."""
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 2] + " …"
