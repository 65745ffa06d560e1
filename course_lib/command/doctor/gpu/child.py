"""One step in a process of its own: `python -m course_lib.command.doctor.gpu.child STEP HOST`, both as JSON.

Each line that the step yields is written at once as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from course_lib.command.doctor.gpu.host import Host
from course_lib.command.doctor.gpu.lines import Line, failed
from course_lib.command.doctor.gpu.steps import Step
from course_lib.ranks import environment
from course_lib.system.errors import CourseError

MARK = "doctor-line "


def main(step: str, host: str) -> None:
    """Run a step. A CourseError becomes a failed line; what else it raises is seen by who waits for this process."""
    os.environ.update({**environment.TENSORFLOW, **os.environ})
    examined = Step(**json.loads(step))
    try:
        for line in examined.lines(Host.from_json(json.loads(host))):
            tell(line)
    except CourseError as error:
        tell(failed(examined.title, str(error)))


def tell(line: Line) -> None:
    """Write a line for the parent."""
    print(MARK + json.dumps(asdict(line)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
