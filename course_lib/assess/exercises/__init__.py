"""Exercises in cells: a learner's function or class is tried part by part; each part gives points and a reason.

A part's trial takes the learner's answer and returns "" where it is right, else one sentence that points to the
mistake. The check that a learner sees and the hidden test that gives the points are the same trials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.assess.criteria import Verdict
from course_lib.assess.report import Report

Trial = Callable[[Any], str]


@dataclass(frozen=True)
class Part:
    """One thing that an answer must get right, and its share of the exercise's points."""

    title: str
    share: float
    trial: Trial


@dataclass(frozen=True)
class Exercise:
    """An exercise by the name of the function or class that the learner writes. The shares add up to 1."""

    name: str
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        assert abs(sum(part.share for part in self.parts) - 1) < 1e-9, self.name

    def judge(self, answer: object) -> list[Verdict]:
        """A verdict for each part. A stub's NotImplementedError passes through."""
        verdicts = []
        for part in self.parts:
            try:
                reason = part.trial(answer)
            except NotImplementedError:
                raise
            except Exception as error:
                reason = f"`{self.name}` raised {type(error).__name__}: {error}"
            verdicts.append(
                Verdict(self.name, part.title, 0.0 if reason else part.share, part.share, reason or "Right.")
            )
        return verdicts


def one_number(value: object) -> str:
    """ "" for one finite real number, else one sentence that says what it is."""
    if value is None:
        return "it returns None: is a `return` missing?"
    if (
        isinstance(value, bool)
        or np.ndim(value)
        or not np.isrealobj(value)
        or np.asarray(value).dtype.kind not in "iuf"
    ):
        return f"it returns {value!r} where one number is expected."
    return "" if np.isfinite(value) else f"it returns {value}."


class Exercises:
    """The exercises of one notebook."""

    def __init__(self, *exercises: Exercise) -> None:
        self._exercises = {exercise.name: exercise for exercise in exercises}

    def check(self, answer: Any) -> Report:
        """Report, part by part, on the function or class that the learner wrote."""
        return Report(self._exercises[answer.__name__].judge(answer))

    def points(self, answer: Any, maximum: float) -> float:
        """Points between 0 and `maximum`; where some are lost, print the reasons. A stub gets none."""
        try:
            verdicts = self._exercises[answer.__name__].judge(answer)
        except NotImplementedError:
            print(f"`{answer.__name__}` is not written yet.")
            return 0.0
        for verdict in verdicts:
            if not verdict.passed:
                print(f"{verdict.title}: {verdict.reason}")
        share = sum(verdict.points for verdict in verdicts)
        # nbgrader takes a built-in float only, and stops at one above the maximum.
        return float(min(maximum, round(maximum * share, 2)))
