"""Criteria: each looks at the evidence of a run and gives points, with one sentence of reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """What one criterion says of one run."""

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
    """A question to the evidence: `judge` answers with (share of the points from 0 to 1, reason).

    What evidence it takes is settled between the criterion and whoever asks it.
    """

    id: str
    title: str
    max_points: float
    judge: Callable[[Any], tuple[float, str]]
    hint: str = ""

    def __call__(self, evidence: Any) -> Verdict:
        share, reason = self.judge(evidence)
        points = self.max_points * min(1.0, max(0.0, float(share)))
        return Verdict(self.id, self.title, points, self.max_points, reason, "" if share >= 1 else self.hint)


def judge(evidence: Any, criteria: Iterable[Criterion]) -> list[Verdict]:
    """Ask every criterion."""
    return [criterion(evidence) for criterion in criteria]
