"""Exercises in cells: the function or class that a learner writes is the subject of a few criteria.

The check that a learner sees and the hidden test that gives the points ask the same criteria.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from course_lib.notebook.judging import CheckFailed, Criterion, Verdict, described, learners_place, not_judged
from course_lib.notebook.report import Report


class Exercise:
    """An exercise, by the name of what the learner writes. The points of its criteria are shares: they add up to 1."""

    def __init__(self, name: str, *criteria: Criterion) -> None:
        assert abs(sum(criterion.max_points for criterion in criteria) - 1) < 1e-9, name
        self.name, self.criteria = name, criteria

    def report(self, answer: Any) -> Report:
        """What the check shows: a verdict of each criterion; of a stub only that it is not written yet."""
        try:
            return Report([self._reported(criterion, answer) for criterion in self.criteria])
        except NotImplementedError as error:
            return Report([Verdict("written", "Not written yet", 0.0, 1.0, self._not_written(error))])

    def points(self, answer: Any, maximum: float) -> float:
        """Points between 0 and `maximum`; where some are lost, print the reasons. A stub gets none.

        Raises CheckFailed where a criterion fails, and nothing else.
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
        # nbgrader takes a built-in float only, and stops at one above the maximum.
        return float(min(maximum, round(maximum * share, 2)))

    def judge(self, answer: Any) -> list[Verdict]:
        """A verdict of each criterion. A stub's NotImplementedError passes through, as does CheckFailed."""
        return [self._ask(criterion, answer) for criterion in self.criteria]

    def _reported(self, criterion: Criterion, answer: Any) -> Verdict:
        """As `_ask`; a criterion that fails is a verdict, too."""
        try:
            return self._ask(criterion, answer)
        except CheckFailed as failed:
            return not_judged(criterion, failed)

    def _ask(self, criterion: Criterion, answer: Any) -> Verdict:
        if not callable(answer):
            reason = f"This is no function or class: hand over `{self.name}` as it is, without calling it."
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
        """One sentence on the stub: the exercise's own, one of its methods', or that of an exercise before it."""
        stub, _ = learners_place(error) or (self.name, "")
        which = (
            f"`{self.name}`" if stub == self.name or not stub.isidentifier() else f"`{stub}`, which `{self.name}` uses,"
        )
        return f"{which} is still a stub. Put your code in place of `raise NotImplementedError(…)`, and run its cell."


class Exercises:
    """The exercises of one notebook."""

    def __init__(self, *exercises: Exercise) -> None:
        self._exercises = {exercise.name: exercise for exercise in exercises}

    def __iter__(self) -> Iterator[Exercise]:
        return iter(self._exercises.values())

    def check(self, answer: Any) -> Report:
        """Report, criterion by criterion, on what the learner wrote; in one sentence on what is no exercise."""
        exercise = self._of(answer, sys._getframe(1).f_globals)
        if exercise is None:
            return Report([Verdict("exercise", "No exercise", 0.0, 1.0, self._no_exercise())])
        return exercise.report(answer)

    def points(self, answer: Any, maximum: float) -> float:
        """Points between 0 and `maximum`; where some are lost, print the reasons. A stub, or no exercise, gets none.

        Raises CheckFailed where a criterion fails, and nothing else.
        """
        exercise = self._of(answer, sys._getframe(1).f_globals)
        if exercise is None:
            print(self._no_exercise())
            return 0.0
        return exercise.points(answer, maximum)

    def _of(self, answer: Any, names: Mapping[str, Any]) -> Exercise | None:
        """The exercise that an answer is to: by its own name, or, as a lambda has none, by that in the notebook."""
        with contextlib.suppress(Exception):  # of an answer's own making
            return self._exercises[answer.__name__]
        return next((one for name, one in self._exercises.items() if name in names and names[name] is answer), None)

    def _no_exercise(self) -> str:
        known = ", ".join(f"`{known}`" for known in self._exercises)
        return f"This is none of the notebook's exercises: hand over one of {known}, as it is, without calling it."
