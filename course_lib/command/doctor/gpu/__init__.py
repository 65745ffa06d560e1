"""`course doctor --gpu`: does what the course says of GPUs hold on this host?

`steps.STEPS` lists what is examined. Each step is a small function that yields lines (`lines`); it runs in a process of
its own with a time limit (`runner`), so that whatever hangs is ended with all its processes, and named. `report` writes
what was found.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.command.doctor.gpu import report as reports
from course_lib.command.doctor.gpu import runner
from course_lib.command.doctor.gpu.host import look, missing
from course_lib.command.doctor.gpu.lines import FAILED, PASSED, Line, failed, untested
from course_lib.command.doctor.gpu.report import MARKS, Report
from course_lib.command.doctor.gpu.steps import STEPS, Step

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {PASSED: "green", FAILED: "bold red"}


def main(*, file: Path | None = None, rehearse: bool = False, as_json: bool = False) -> int:
    """Examine this host, print what is found, write the report `file`; return the exit code.

    Without a GPU that can be used it says so, unless it is to `rehearse`: then the steps do on the CPU what they can.
    Exit code: 0 where nothing failed, 1 where something did, 2 where no GPU was tested and nothing failed.

    Raises CourseError (code 2) for a report that can't be written.
    """
    from rich.console import Console

    if file:
        reports.check(file)
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    host = look()
    report = Report(host)
    began = time.monotonic()
    reason = missing(host)
    if host.problem or (reason and not rehearse):
        line = (failed if host.problem else untested)("GPUs", reason)
        report.lines.append((STEPS[0], line))
        advice = "" if host.problem else f" With --rehearse it runs {reports.summary(STEPS)}."
        console.print(f"{reason}{advice}", markup=False)
    else:
        shown = console if console.is_terminal else Console(stderr=True)
        with _progress(shown) as follow, contextlib.closing(runner.examine(host, follow=follow)) as found:
            for step, line in found:
                if not report.lines or report.lines[-1][0] != step:
                    console.print(f"\n{step.title}", style="bold", markup=False)
                _print(console, line)
                report.lines.append((step, line))
    report.seconds = time.monotonic() - began
    console.print(f"\n{report.headline}", style="bold", markup=False)
    if file:
        for path in reports.save(report, file):
            console.print(f"Wrote {path}", markup=False)
    if as_json:
        print(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    return report.code


def _print(console: Console, line: Line) -> None:
    from rich.text import Text

    colour = _COLOURS.get(line.state, "yellow")
    console.print(Text.assemble((f"{MARKS[line.state]} {line.title}: {line.state}. ", colour), line.text))


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[Step, float, float], None]]:
    """A line in the terminal that says which step runs, for how long, and its limit."""
    with console.status("Starting") as status:
        yield lambda step, seconds, limit: status.update(f"{step.title}: {seconds:.0f} s of {limit:.0f} s at most")
