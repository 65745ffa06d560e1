"""One way to judge: a criterion looks at a subject, gives points for it, and says why in one sentence.

The subject is what a learner wrote in a cell (`exercises`), or what a script's run on ranks left behind (notebook 2b
and the assessment). What kind of subject it takes is settled between a criterion and whoever asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


class Wrong(Exception):
    """What a judge raises: one sentence that points to the mistake, and the share of the points that is left.

    A `hint` takes the place of the criterion's, where the cause that was seen is not the usual one.
    """

    def __init__(self, sentence: str, share: float = 0.0, hint: str | None = None) -> None:
        super().__init__(sentence)
        self.share = min(1.0, max(0.0, float(share)))
        self.hint = hint


@dataclass(frozen=True)
class Verdict:
    """What one criterion says of one subject."""

    id: str
    title: str
    points: float
    max_points: float
    reason: str
    hint: str = ""

    @property
    def passed(self) -> bool:
        """Full points."""
        return self.points >= self.max_points


@dataclass(frozen=True)
class Criterion:
    """A question to a subject: `judge` raises `Wrong`, or returns what is right in a sentence (None: "Right.").

    `hint` is for those who lose points.
    """

    id: str
    title: str
    max_points: float
    judge: Callable[[Any], str | None]
    hint: str = ""

    def __call__(self, subject: Any) -> Verdict:
        try:
            reason, share, hint = self.judge(subject) or "Right.", 1.0, ""
        except Wrong as wrong:
            reason, share = str(wrong), wrong.share
            hint = self.hint if wrong.hint is None else wrong.hint
        points = self.max_points * share
        return Verdict(self.id, self.title, points, self.max_points, reason, "" if share >= 1 else hint)


def judge(subject: Any, criteria: Iterable[Criterion]) -> list[Verdict]:
    """Ask every criterion."""
    return [criterion(subject) for criterion in criteria]
