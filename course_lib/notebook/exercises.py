"""Exercises in cells: criteria judge the function or class that a learner writes.

The check that a learner sees and the hidden test that gives the points use the same criteria.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from course_lib.notebook.judging import CheckFailed, Criterion, Verdict, described, learners_place, not_judged
from course_lib.notebook.report import Report

A_STUB = "is not written yet"  # in the reason of an exercise that the learner has not started


class Exercise:
    """An exercise.

    Args:
        name: name of the function or class that the learner writes.
        criteria: their points are fractions of the exercise's points; the sum is 1.
    """

    def __init__(self, name: str, *criteria: Criterion) -> None:
        assert abs(sum(criterion.max_points for criterion in criteria) - 1) < 1e-9, name
        self.name, self.criteria = name, criteria

    def report(self, answer: Any) -> Report:
        """The report of a check: one verdict for each criterion; for a stub, one verdict that it is not written yet."""
        try:
            return Report([self._reported(criterion, answer) for criterion in self.criteria])
        except NotImplementedError as error:
            return Report([Verdict("written", "Not written yet", 0.0, 1.0, self._not_written(error))])

    def points(self, answer: Any, maximum: float) -> float:
        """The points between 0 and `maximum`; print the reasons for lost points. A stub gets 0.

        Raises CheckFailed, and no other exception, if a criterion itself fails.
        """
        try:
            verdicts = self.judge(answer)
        except NotImplementedError as error:
            print(self._not_written(error))
            return 0.0
        for verdict in verdicts:
            if not verdict.passed:
                print(f"{verdict.title}: {verdict.reason}")
        share = sum(verdict.points for verdict in verdicts)
        # nbgrader accepts only a built-in float, and fails if it is above the maximum.
        return float(min(maximum, round(maximum * share, 2)))

    def judge(self, answer: Any) -> list[Verdict]:
        """One verdict for each criterion. Raises NotImplementedError for a stub, CheckFailed if a criterion fails."""
        return [self._ask(criterion, answer) for criterion in self.criteria]

    def _reported(self, criterion: Criterion, answer: Any) -> Verdict:
        """Like `_ask`, but returns a verdict if a criterion itself fails."""
        try:
            return self._ask(criterion, answer)
        except CheckFailed as failed:
            return not_judged(criterion, failed)

    def _ask(self, criterion: Criterion, answer: Any) -> Verdict:
        if not callable(answer):
            reason = f"This is not a function or a class: pass `{self.name}` itself, without calling it."
            return Verdict(criterion.id, criterion.title, 0.0, criterion.max_points, reason)
        try:
            return criterion(answer)
        except (NotImplementedError, CheckFailed):
            raise
        except (Exception, SystemExit) as error:
            place = learners_place(error)
            reason = f"`{self.name}` raised {described(error)}" + (f" ({place[1]})" if place else "")
            return Verdict(criterion.id, criterion.title, 0.0, criterion.max_points, reason)

    def _not_written(self, error: NotImplementedError) -> str:
        """A sentence on the stub: that of this exercise, one of its methods, or an earlier exercise."""
        stub, _ = learners_place(error) or (self.name, "")
        which = (
            f"`{self.name}`" if stub == self.name or not stub.isidentifier() else f"`{stub}`, which `{self.name}` uses,"
        )
        return f"{which} {A_STUB}. Replace `raise NotImplementedError(…)` with your code, and run its cell."


class Exercises:
    """The exercises of one notebook."""

    def __init__(self, *exercises: Exercise) -> None:
        self._exercises = {exercise.name: exercise for exercise in exercises}

    def __iter__(self) -> Iterator[Exercise]:
        return iter(self._exercises.values())

    def check(self, answer: Any) -> Report:
        """The report on the learner's answer, criterion by criterion; one sentence if it belongs to no exercise."""
        exercise = self._of(answer, sys._getframe(1).f_globals)
        if exercise is None:
            return Report([Verdict("exercise", "No exercise", 0.0, 1.0, self._no_exercise())])
        return exercise.report(answer)

    def points(self, answer: Any, maximum: float) -> float:
        """The points between 0 and `maximum`; print the reasons for lost points. A stub or another object gets 0.

        Raises CheckFailed, and no other exception, if a criterion itself fails.
        """
        exercise = self._of(answer, sys._getframe(1).f_globals)
        if exercise is None:
            print(self._no_exercise())
            return 0.0
        return exercise.points(answer, maximum)

    def _of(self, answer: Any, names: Mapping[str, Any]) -> Exercise | None:
        """The exercise of an answer, by the answer's `__name__`, else (a lambda) by its name in the notebook."""
        with contextlib.suppress(Exception):  # an answer may override `__name__`
            return self._exercises[answer.__name__]
        return next((one for name, one in self._exercises.items() if name in names and names[name] is answer), None)

    def _no_exercise(self) -> str:
        known = ", ".join(f"`{known}`" for known in self._exercises)
        return f"This is not an exercise of this notebook: pass one of {known} itself, without calling it."
