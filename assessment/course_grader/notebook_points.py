"""The assessment's points for one criterion at a time, for the tests in its notebook.

The first test assesses the script, which takes minutes; the others use the same outcome.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from course_grader.display import report
from course_grader.script import calibration, contract, grader, watermarks
from course_grader.script.outcome import CannotGrade, Outcome
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.files import write

OVERHEAD_S = 600.0  # for calibration, for starting and ending runs, and for evaluating the weights


class NeedsALook(Exception):
    """An instructor must first review the script's flags; the message lists them."""


_outcomes: dict[str, Outcome | CannotGrade] = {}  # by script, profile and content of the script


def points(criterion: str, script: str | Path = "assessment.py") -> float:
    """Return the points of one criterion, from 0 to its maximum in the contract; print its reason and a hint.

    The first call in a notebook also shows the outcome. Raises CannotGrade if the grader, not the script, failed, and
    NeedsALook if an instructor must first review the script; in both cases there is no mark.
    """
    outcome = _outcome(Path(script).absolute())
    if outcome.needs_a_look and not _grading().get("accepted"):
        raise NeedsALook("; ".join(outcome.look))
    verdict = next(verdict for verdict in outcome.verdicts if verdict.id == criterion)
    print(verdict.reason)
    if verdict.hint and not verdict.passed:
        print(verdict.hint)
    return min(max(float(verdict.points), 0.0), float(contract.read().points[criterion]))


def longest() -> float:
    """Return the maximum seconds of an assessment, on a host with the largest calibration factor."""
    terms = contract.read()
    limit = terms.profile().seconds * (1 + terms.tolerance)
    return calibration.MAX_FACTOR * (grader.SERIAL_LIMIT_S + watermarks.RUNS * limit) + OVERHEAD_S


def _outcome(script: Path) -> Outcome:
    try:
        key = f"{script}:{os.environ.get(variables.PROFILE)}:{hashlib.sha256(script.read_bytes()).hexdigest()}"
    except OSError as error:
        raise CannotGrade(f"{script.name} cannot be read ({error.strerror}).") from None
    if key not in _outcomes:
        path = _grading().get("outcome")
        if path and Path(path).exists():  # an instructor has accepted the script, so it is not run again
            _outcomes[key] = Outcome.from_json(json.loads(Path(path).read_text()))
        else:
            _outcomes[key] = _assess(script)
        if isinstance(_outcomes[key], Outcome):
            _show(_outcomes[key])
            if path:
                write(Path(path), json.dumps(_outcomes[key].as_json()).encode())
    if isinstance(_outcomes[key], CannotGrade):
        raise _outcomes[key]
    return _outcomes[key]


def _grading() -> dict[str, object]:
    """Return the settings of `course grade` for this submission; {} in a notebook outside of `course grade`.

    `accepted`: whether an instructor has accepted the flags of the script; `outcome`: the file for the outcome. If the
    file exists, the script is not run again.
    """
    path = os.environ.get(variables.GRADING)
    return json.loads(Path(path).read_text()) if path else {}


def _assess(script: Path) -> Outcome | CannotGrade:
    try:
        return grader.assess(script)
    except CourseError as problem:
        return CannotGrade(str(problem))
    except KeyboardInterrupt:
        return CannotGrade("The assessment did not end in time and was interrupted.")


def _show(outcome: Outcome) -> None:
    from IPython import get_ipython
    from IPython.display import HTML, display

    if get_ipython() is not None:
        display(HTML(report.page(outcome)))
