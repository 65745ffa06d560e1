"""The outcome of an assessment, and the errors that end one without an outcome."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from course_lib.notebook.judging import Verdict
from course_lib.system.errors import CourseError


class CannotGrade(CourseError):
    """The host or the grader failed. This says nothing about the script."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence, code)


class Stopped(CannotGrade):
    """The user stopped the assessment."""

    def __init__(self) -> None:
        super().__init__("Stopped.", code=130)


@dataclass(frozen=True)
class Outcome:
    """The outcome of an assessment.

    Attributes:
        passed: whether the script has enough points, meets all required criteria, and has no flags in `look`.
        seconds: duration of the run on all ranks; None if there was none.
        limit: time limit of this run in seconds: the profile's limit, multiplied by `factor`.
        factor: this host's factor for the time limit, see `calibration`.
        train_accuracy, test_accuracy: of the saved weights, from 0 to 1; None if they cannot be evaluated.
        claimed: the last accuracy that the script printed; None if it printed none.
        sandbox: "bubblewrap" or "none"; `weaknesses`: sentences on what it does not protect.
        error: why the run failed, with the last lines of the rank that failed first; "" if it did not.
        look: flags: phrases, with line numbers, on the parts of the script that an instructor must review.
        needs_a_look: whether only these flags prevent the script from passing.
        first_step_seconds: on GPUs, seconds of the first training step of the calibration, which compiles and caches
            the kernels; None on CPUs.
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
    first_step_seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `course assess --json` writes."""
        table = asdict(self)
        table["criteria"] = [{**asdict(verdict), "passed": verdict.passed} for verdict in self.verdicts]
        del table["verdicts"]
        return table

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Outcome:
        """Return the outcome that `as_json` wrote as `table`."""
        verdicts = tuple(Verdict(**{k: v for k, v in row.items() if k != "passed"}) for row in table["criteria"])
        rest = {key: value for key, value in table.items() if key not in ("criteria", "weaknesses", "look")}
        return cls(**rest, verdicts=verdicts, weaknesses=tuple(table["weaknesses"]), look=tuple(table["look"]))
