"""The assessment's points, one criterion at a time: what the tests in its notebook call.

The first test assesses the script, which takes minutes; the others share what it found.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from course_grader.display import report
from course_grader.script import calibration, contract, grader, watermarks
from course_grader.script.outcome import CannotGrade, Outcome
from course_lib.ranks import environment
from course_lib.system.errors import CourseError
from course_lib.system.files import write

OVERHEAD_S = 600.0  # for calibration, for starting and ending runs, and for evaluating the weights


class NeedsALook(Exception):
    """The script does what training does not need: NeedsALook(findings)."""


_found: dict[str, Outcome | CannotGrade] = {}


def points(criterion: str, script: str | Path = "assessment.py") -> float:
    """The points of one criterion, from 0 to its maximum in the contract; its reason, and a hint, are printed.

    Whoever asks first, in a notebook, also sees the whole outcome. Raises CannotGrade where the grader, not the
    script, is at fault: that is never a mark; NeedsALook where a person has to look at it first.
    """
    outcome = _outcome(Path(script).absolute())
    if outcome.needs_a_look and not os.environ.get(environment.ACCEPTED):
        raise NeedsALook("; ".join(outcome.look))
    verdict = next(verdict for verdict in outcome.verdicts if verdict.id == criterion)
    print(verdict.reason)
    if verdict.hint and not verdict.passed:
        print(verdict.hint)
    return min(max(float(verdict.points), 0.0), float(contract.read().points[criterion]))


def longest() -> float:
    """Seconds that an assessment takes at most, on the slowest host that gets more time for its slowness."""
    asked = contract.read()
    limit = asked.profile().seconds * (1 + asked.tolerance)
    return calibration.MAX_FACTOR * (grader.SERIAL_LIMIT_S + watermarks.RUNS * limit) + OVERHEAD_S


def _outcome(script: Path) -> Outcome:
    try:
        key = f"{script}:{os.environ.get('COURSE_PROFILE')}:{hashlib.sha256(script.read_bytes()).hexdigest()}"
    except OSError as error:
        raise CannotGrade(f"{script.name} cannot be read ({error.strerror}).") from None
    if key not in _found:
        kept = os.environ.get(environment.OUTCOME)
        if kept and Path(kept).exists():  # an instructor has let it count: the script is not run again
            _found[key] = Outcome.from_json(json.loads(Path(kept).read_text()))
        else:
            _found[key] = _assess(script)
        if isinstance(_found[key], Outcome):
            _show(_found[key])
            if kept:
                write(Path(kept), json.dumps(_found[key].as_json()).encode())
    if isinstance(_found[key], CannotGrade):
        raise _found[key]
    return _found[key]


def _assess(script: Path) -> Outcome | CannotGrade:
    try:
        return grader.assess(script)
    except CourseError as problem:
        return CannotGrade(str(problem))
    except KeyboardInterrupt:
        return CannotGrade("The assessment did not end in time, so that it was interrupted.")


def _show(outcome: Outcome) -> None:
    from IPython import get_ipython
    from IPython.display import HTML, display

    if get_ipython() is not None:
        display(HTML(report.page(outcome)))
