"""Run the steps of `course doctor --gpu`, each in its own process: a step that hangs is stopped and reported.

    python -m course_lib.command.doctor.gpu.runner MODULE FUNCTION TITLE HOST      (HOST: as JSON)

runs one step, and appends each line that it yields to the file `lines`, as a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from course_lib.command.doctor.gpu.devices import Host, detect, missing
from course_lib.command.doctor.gpu.report import (
    FAILED,
    MARKS,
    PASSED,
    Line,
    Report,
    Section,
    failed,
    require_places,
    save,
    untested,
)
from course_lib.ranks import environment
from course_lib.ranks.messages.known_errors import hint
from course_lib.system.errors import CourseError, last_line
from course_lib.system.processes import Supervised
from course_lib.system.supervise import LEFT, TIMED_OUT

BUDGET_S = 15 * 60  # for all steps together; steps without enough time left are not tested
MIN_STEP_S = 20.0  # a step does not start with less time left
POLL_S = 0.2
LINES = "lines"  # name of the file


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: name of its function, which yields lines.
        module: module of the function.
        title: shown while it runs.
        seconds: time limit.
        on_cpu: whether it also runs without a GPU.
        after: steps on which it depends; if one of them failed, it is not tested.
    """

    name: str
    module: str
    title: str
    seconds: float
    on_cpu: bool = True
    after: tuple[str, ...] = ()


_MODULES = ("machine", "one_process", "all_ranks", "grading")
_MACHINE, _ONE, _ALL, _GRADING = (f"{__package__}.{module}" for module in _MODULES)
_STACK, _RANKS = ("stack",), ("all_reduce",)
STEPS = (
    Step("driver", _MACHINE, "Driver, GPUs and shared memory", 60),
    Step("stack", _MACHINE, "TensorFlow and Horovod, and what they were built for", 120),
    Step("first_use", _MACHINE, "The first training step, and what is compiled for it", 180, after=_STACK),
    Step("optimizers", _ONE, "LARS, LARC, LAMB and NovoGrad: check values", 90, after=_STACK),
    Step("loops", _ONE, "fit and a loop with a gradient tape", 120, after=_STACK),
    Step("mixed_precision", _ONE, "Mixed precision and its loss scale", 120, after=_STACK),
    Step("memory", _ONE, "Memory growth", 60, on_cpu=False, after=_STACK),
    Step("speed", _ONE, "Images and operations a second", 120, after=_STACK),
    Step("pinned", _ALL, "One GPU for each rank", 120, on_cpu=False, after=_STACK),
    Step("all_reduce", _ALL, "All-reduces by size", 270, after=_STACK),
    Step("controllers", _ALL, "Equal ranks under each controller", 180, after=_RANKS),
    Step("batch_norm", _ALL, "Batch norm across ranks", 90, after=_RANKS),
    Step("timeline", _ALL, "Horovod's timeline", 90, after=_RANKS),
    Step("scaling", _ALL, "Scaling, and equal weights after training", 240, after=_RANKS),
    Step("elastic", _ALL, "Losing a rank", 120, after=_RANKS),
    Step("calibrate", _GRADING, "The assessment's calibration", 150, after=_RANKS),
    Step("reference", _GRADING, "The assessment of the reference", 420, after=_RANKS),
    Step("starter", _GRADING, "The assessment of the serial starter", 420, after=_RANKS),
)

Follow = Callable[[Step, float, float], None]


def main(*, file: Path | None = None, rehearse: bool = False, as_json: bool = False) -> int:
    """Run all steps on this host, print their lines, write the report; return the exit code.

    Args:
        file: name of the report, see `report.paths`; None: no report.
        rehearse: without a usable GPU, run the steps on the CPU as far as possible.
        as_json: print the report as JSON on standard output, and the lines on standard error.

    Returns:
        0 if nothing failed, 1 if something failed, 2 if nothing failed but no GPU was tested.

    Raises CourseError (code 2) if the report can't be written.
    """
    from rich.console import Console

    if file:
        require_places(file)
    console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
    host, began = detect(), time.monotonic()
    report, reason = Report(host), missing(host)
    if host.problem or (reason and not rehearse):
        line = (failed if host.problem else untested)("GPUs", reason)
        report.sections.append(Section(STEPS[0].name, STEPS[0].title, (line,)))
        gpu_only = " and ".join(f"“{step.title}”" for step in STEPS if not step.on_cpu)
        console.print(reason if host.problem else f"{reason} --rehearse runs all steps except {gpu_only} on the CPU.")
    else:
        with (console if console.is_terminal else Console(stderr=True)).status("Starting") as status:

            def follow(step: Step, seconds: float, limit: float) -> None:
                status.update(f"{step.title}: {seconds:.0f} s of {limit:.0f} s at most")

            for section in examine(host, follow=follow):
                console.print(f"\n{section.title}", style="bold")
                for line in section.lines:
                    colour = {PASSED: "green", FAILED: "bold red"}.get(line.state, "yellow")
                    console.print(f"{MARKS[line.state]} {line.title}: {line.state}.", style=colour, end=" ")
                    console.print(line.text)
                report.sections.append(section)
    report.seconds = time.monotonic() - began
    console.print(f"\n{report.headline}", style="bold")
    for path in save(report, file) if file else ():
        console.print(f"Wrote {path}")
    if as_json:
        print(json.dumps(report.as_json(), indent=1, ensure_ascii=False))
    return report.code


def examine(
    host: Host,
    steps: Sequence[Step] = STEPS,
    *,
    budget: float = BUDGET_S,
    follow: Follow = lambda step, seconds, limit: None,
) -> Iterator[Section]:
    """Run the steps; yield the lines of each step when it ends. KeyboardInterrupt ends the running step.

    Args:
        host: without a visible GPU, the steps run on the CPU as far as possible.
        budget: seconds for all steps together.
        follow: called as follow(step, seconds, limit) a few times per second.
    """
    end = time.monotonic() + budget
    causes: dict[str, str] = {}  # failed or skipped step → title of the failed step
    for step in steps:
        limit = min(step.seconds, end - time.monotonic())
        cause = next((causes[name] for name in step.after if name in causes), "")
        if cause:
            causes[step.name] = cause
            lines = [untested(step.title, f"It needs “{cause}”, which failed.")]
        elif not step.on_cpu and not host.visible:
            lines = [untested(step.title, missing(host))]
        elif limit < min(MIN_STEP_S, step.seconds):
            lines = [untested(step.title, f"The time limit of {budget / 60:g} minutes for all steps was reached.")]
        else:
            lines = _run(step, host, limit, follow)
            if any(line.state == FAILED for line in lines):
                causes[step.name] = step.title
        yield Section(step.name, step.title, tuple(lines))


def _run(step: Step, host: Host, limit: float, follow: Follow) -> list[Line]:
    """Run a step in a process; return its lines, and a failed line if the process did not end normally."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        output, began = Path(folder) / "output", time.monotonic()
        command = [sys.executable, "-m", __name__, step.module, step.name, step.title, json.dumps(host.as_json())]
        options = {"stderr": subprocess.STDOUT, "cwd": folder, "env": {**environment.TENSORFLOW, **os.environ}}
        with output.open("w") as file, Supervised(command, timeout=limit, stdout=file, **options) as process:
            while process.poll() is None:
                follow(step, time.monotonic() - began, limit)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
        written = Path(folder) / LINES
        whole = written.read_text().split("\n")[:-1] if written.exists() else []  # the last line may be incomplete
        printed = output.read_text(errors="replace")
    lines = [Line(**json.loads(line)) for line in whole]
    if problem := _problem(process.returncode, printed, limit, bool(lines)):
        lines.append(failed(step.title, problem, seconds=limit))
    return lines


def _problem(code: int, printed: str, limit: float, has_lines: bool) -> str:
    """A sentence on how the process of a step failed; "" if it did not."""
    if LEFT in printed:
        return "Its processes can't be killed, because they hang in the driver: restart the host."
    if code == TIMED_OUT:
        return f"It was stopped after {limit:.0f} s: it hangs, or this host is too slow for it."
    if code and (advice := hint(printed.splitlines())):
        return advice
    if code:
        return f"It ended with {f'signal {code - 128}' if code > 128 else f'exit code {code}'} ({last_line(printed)})."
    return "" if has_lines else "It reported nothing, which is a bug in the course: please report it."


def _child(module: str, function: str, title: str, host: str) -> None:
    """Run the function of a step, and write its lines. A CourseError becomes a failed line."""
    with open(LINES, "a") as file:
        try:
            for line in getattr(import_module(module), function)(Host.from_json(json.loads(host))):
                file.write(json.dumps(asdict(line)) + "\n")
                file.flush()
        except CourseError as error:
            file.write(json.dumps(asdict(failed(title, str(error)))) + "\n")


if __name__ == "__main__":
    _child(*sys.argv[1:])
