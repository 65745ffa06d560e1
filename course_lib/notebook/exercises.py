"""Exercises in cells: the function or class that a learner writes is the subject of a few criteria.

The check that a learner sees and the hidden test that gives the points ask the same criteria.
"""

from __future__ import annotations

import traceback
from typing import Any

from course_lib.notebook.judging import Criterion, Verdict
from course_lib.notebook.report import Report
from course_lib.system.errors import CourseError


class Exercise:
    """An exercise, by the name of what the learner writes. The points of its criteria are shares: they add up to 1."""

    def __init__(self, name: str, *criteria: Criterion) -> None:
        assert abs(sum(criterion.max_points for criterion in criteria) - 1) < 1e-9, name
        self.name, self.criteria = name, criteria

    def report(self, answer: Any) -> Report:
        """What the check shows: a verdict of each criterion; of a stub only that it is not written yet."""
        try:
            return Report(self.judge(answer))
        except NotImplementedError as error:
            return Report([Verdict("written", "Not written yet", 0.0, 1.0, self._not_written(error))])

    def points(self, answer: Any, maximum: float) -> float:
        """Points between 0 and `maximum`; where some are lost, print the reasons. A stub gets none."""
        try:
            verdicts = self.judge(answer)
        except NotImplementedError as error:
            print(self._not_written(error))
            return 0.0
        for verdict in verdicts:
            if not verdict.passed:
                print(f"{verdict.title}: {verdict.reason}")
        share = sum(verdict.points for verdict in verdicts)
        # nbgrader takes a built-in float only, and stops at one above the maximum.
        return float(min(maximum, round(maximum * share, 2)))

    def judge(self, answer: Any) -> list[Verdict]:
        """A verdict of each criterion. A stub's NotImplementedError passes through."""
        return [self._ask(criterion, answer) for criterion in self.criteria]

    def _ask(self, criterion: Criterion, answer: Any) -> Verdict:
        try:
            return criterion(answer)
        except NotImplementedError:
            raise
        except Exception as error:
            reason = f"`{self.name}` raised {type(error).__name__}: {error}"
            return Verdict(criterion.id, criterion.title, 0.0, criterion.max_points, reason)

    def _not_written(self, error: NotImplementedError) -> str:
        """One sentence on the stub: the exercise's own, one of its methods', or that of an exercise before it."""
        stub = traceback.extract_tb(error.__traceback__)[-1].name
        which = (
            f"`{self.name}`" if stub == self.name or not stub.isidentifier() else f"`{stub}`, which `{self.name}` uses,"
        )
        return (
            f"{which} is still a stub. Put your code in place of `raise NotImplementedError()`, and run its cell first."
        )


class Exercises:
    """The exercises of one notebook."""

    def __init__(self, *exercises: Exercise) -> None:
        self._exercises = {exercise.name: exercise for exercise in exercises}

    def check(self, answer: Any) -> Report:
        """Report, criterion by criterion, on what the learner wrote. Raises CourseError for what is no exercise."""
        return self._of(answer).report(answer)

    def points(self, answer: Any, maximum: float) -> float:
        """Points between 0 and `maximum`; where some are lost, print the reasons. A stub gets none."""
        return self._of(answer).points(answer, maximum)

    def _of(self, answer: Any) -> Exercise:
        name = getattr(answer, "__name__", "")
        if name not in self._exercises:
            known = ", ".join(f"`{known}`" for known in self._exercises)
            raise CourseError(f"This is none of the notebook's exercises: hand over one of {known}, as it is.")
        return self._exercises[name]
