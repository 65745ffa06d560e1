"""Criteria: a criterion judges a subject, gives points, and states the reason in one sentence.

The subject is a learner's function or class (`exercises`), or the record of a script's run on ranks (notebook 2b and
the assessment). Each criterion expects one type of subject.

A learner loses points only through `Wrong`, or through an exception that the learner's own code raises. Any other
exception is an error of the course and becomes `CheckFailed`.
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
_OTHER_ARGUMENTS = re.compile(r"\S+\(\) (takes|missing|got) ")  # Python's message for a call with wrong arguments
MOST_CHARACTERS = 600  # of a reason


class Wrong(Exception):
    """A judge raises this for a wrong answer.

    Args:
        sentence: names the mistake.
        share: fraction of the points that remains, 0 to 1.
        hint: replaces the criterion's hint, for an unusual cause.
        rests_on: see `Verdict`.
    """

    def __init__(
        self, sentence: str, share: float = 0.0, hint: str | None = None, *, rests_on: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.share = min(1.0, max(0.0, float(share)))
        self.hint, self.rests_on = hint, rests_on


class CheckFailed(Exception):
    """A criterion itself failed, so the answer was not judged: an error of the course. The cause is `__cause__`."""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one criterion.

    Attributes:
        id, title, max_points: of the criterion.
        points: points of the subject.
        reason: one sentence.
        hint: a hint for a subject that lost points.
        rests_on: in an assessment, the evidence: "host" for measurements from outside, "script" for the script's log.
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
        """Whether the subject got all points."""
        return self.points >= self.max_points


@dataclass(frozen=True)
class Criterion:
    """A criterion.

    Attributes:
        judge: subject → a sentence that says what is right (None: "Right."), or a pair of the sentence and what it
            rests on (see `Verdict`); raises `Wrong`.
        hint: shown if points are lost.
    """

    id: str
    title: str
    max_points: float
    judge: Callable[[Any], str | tuple[str, str] | None]
    hint: str = ""

    def __call__(self, subject: Any) -> Verdict:
        """Judge a subject. Raises the exception of a learner's code, or CheckFailed if the criterion itself fails."""
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
            raise CheckFailed(f"{self.title}: the check itself failed, not the answer ({described(error)}).") from error
        reason, rests_on = judged if isinstance(judged, tuple) else (judged, "")
        return self._verdict(1.0, reason or "Right.", "", rests_on)

    def _verdict(self, share: float, reason: str, hint: str, rests_on: str) -> Verdict:
        return Verdict(self.id, self.title, share * self.max_points, self.max_points, one_line(reason), hint, rests_on)


def judge(subject: Any, criteria: Iterable[Criterion]) -> list[Verdict]:
    """Apply every criterion to a subject. Raises the same exceptions as a criterion."""
    return [criterion(subject) for criterion in criteria]


def report(subject: Any, criteria: Iterable[Criterion]) -> list[Verdict]:
    """Like `judge`, for a report to a learner: a criterion that fails gives a verdict that says so."""
    verdicts = []
    for criterion in criteria:
        try:
            verdicts.append(criterion(subject))
        except CheckFailed as failed:
            verdicts.append(not_judged(criterion, failed))
    return verdicts


def not_judged(criterion: Criterion, failed: CheckFailed) -> Verdict:
    """The verdict for a learner if a criterion itself failed."""
    cause = failed.__cause__ or failed
    *_, place = traceback.extract_tb(cause.__traceback__)
    what = f"{described(cause)}, line {place.lineno} of {Path(place.filename).name}"
    reason = f"The check itself failed, so your answer was not judged. Please report it ({what})."
    return Verdict(criterion.id, criterion.title, 0.0, criterion.max_points, reason)


def is_learners(error: BaseException) -> bool:
    """Whether an error is due to the learner: their code raised it, or does not accept the arguments of the call."""
    called_otherwise = isinstance(error, TypeError) and bool(_OTHER_ARGUMENTS.match(message(error)))
    return called_otherwise or learners_place(error) is not None


def learners_place(error: BaseException | None) -> tuple[str, str] | None:
    """The innermost learner's function in the traceback of an error or its cause, and the place: "line 3 of your cell".

    None if there is none.
    """
    while error is not None:
        passed = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_learners_code(frame)]
        if passed:
            frame, line = passed[-1]
            file = Path(frame.f_code.co_filename)
            return frame.f_code.co_name, f"line {line} of {file.name if file.is_file() else 'your cell'}"
        error = error.__cause__
    return None


def _is_learners_code(frame: FrameType) -> bool:
    """Whether a frame belongs neither to the course nor to an installed module."""
    file = frame.f_code.co_filename
    installed = file.startswith(_STANDARD_LIBRARY) or any(folder in file for folder in _INSTALLED)
    return not installed and not _OURS.match(str(frame.f_globals.get("__name__")))


def described(error: BaseException) -> str:
    """The type and message of an error in one line."""
    return f"{type(error).__name__}: {message(error)}".removesuffix(": ")


def message(error: BaseException) -> str:
    """The message of an error in one line; "" if its class raises."""
    try:
        return one_line(str(error))
    except Exception:
        return ""


def one_line(text: str) -> str:
    """The text in one line, cut off after MOST_CHARACTERS."""
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 2] + " …"
