"""What comes of an assessment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from course_lib.notebook.judging import Verdict
from course_lib.system.errors import CourseError


class CannotGrade(CourseError):
    """The host or the grader is at fault. This says nothing about the script."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence, code)


class Stopped(CannotGrade):
    """The user stopped the assessment."""

    def __init__(self) -> None:
        super().__init__("Stopped.", code=130)


@dataclass(frozen=True)
class Outcome:
    """What came of an assessment.

    Attributes:
        passed: enough points, all criteria met that the contract requires, and nothing that needs a look.
        seconds: of the run on all ranks; None where it did not take place.
        limit: the seconds that it could take: the profile's times `factor`.
        factor: how much more time this host gets, by its calibration.
        train_accuracy, test_accuracy: of the saved weights; None where there are none that can be used.
        claimed: the accuracy that the script printed last; None where it printed none.
        sandbox: "bubblewrap" or "none"; `weaknesses`: what it does not protect, in sentences.
        error: what went wrong with the run as a whole, with the last lines of the rank that failed first.
        look: what in the script a person should read first, with its lines.
        needs_a_look: nothing but that prevents the script from passing.
    """

    passed: bool
    score: float
    max_score: float
    profile: str
    ranks: int
    data: str
    seconds: float | None
    train_accuracy: float | None
    test_accuracy: float | None
    verdicts: tuple[Verdict, ...]
    limit: float
    factor: float
    sandbox: str
    weaknesses: tuple[str, ...] = ()
    claimed: float | None = None
    error: str = ""
    look: tuple[str, ...] = ()
    needs_a_look: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object that `course assess --json` writes."""
        table = asdict(self)
        table["criteria"] = [{**asdict(verdict), "passed": verdict.passed} for verdict in self.verdicts]
        del table["verdicts"]
        return table

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Outcome:
        """The outcome that `as_json` wrote as `table`."""
        verdicts = tuple(Verdict(**{k: v for k, v in row.items() if k != "passed"}) for row in table["criteria"])
        rest = {key: value for key, value in table.items() if key not in ("criteria", "weaknesses", "look")}
        return cls(**rest, verdicts=verdicts, weaknesses=tuple(table["weaknesses"]), look=tuple(table["look"]))
