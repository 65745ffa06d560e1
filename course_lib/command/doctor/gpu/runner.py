"""Run the steps one after the other, each in a process of its own; whatever hangs is ended with all its processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from course_lib.command.doctor.gpu.child import MARK
from course_lib.command.doctor.gpu.host import Host, missing
from course_lib.command.doctor.gpu.lines import FAILED, Line, failed, untested
from course_lib.command.doctor.gpu.steps import BUDGET_S, STEPS, Step
from course_lib.system.errors import last_line
from course_lib.system.processes import Supervised
from course_lib.system.supervise import TIMED_OUT

POLL_S = 0.2
END_S = 30.0  # for processes to end that are killed; in a driver that hangs they never do
MIN_STEP_S = 20.0  # less time than that is not worth a beginning

Follow = Callable[[Step, float, float], None]


def examine(
    host: Host,
    steps: Sequence[Step] = STEPS,
    *,
    budget: float = BUDGET_S,
    follow: Follow = lambda step, seconds, limit: None,
) -> Iterator[tuple[Step, Line]]:
    """Run the steps; yield each line with its step as it comes.

    Without a GPU the steps do what they can on the CPU. `follow(step, seconds, limit)` is called a few times a second.
    KeyboardInterrupt ends what runs.
    """
    end, fallen = time.monotonic() + budget, {}
    for step in steps:
        limit = min(step.seconds, end - time.monotonic())
        broken = [fallen[name] for name in step.after if name in fallen]
        if broken:
            reason = f"It builds on “{broken[0]}”, which failed."
            fallen[step.name] = broken[0]
        elif not step.on_cpu and not host.visible:
            reason = missing(host)
        elif limit < min(MIN_STEP_S, step.seconds):
            reason = f"The {budget / 60:g} minutes for all steps were over."
        else:
            with contextlib.closing(_run(host, step, limit, follow)) as lines:
                for line in lines:
                    if line.state == FAILED:
                        fallen[step.name] = step.title
                    yield step, line
            continue
        yield step, untested(step.title, reason)


def _run(host: Host, step: Step, limit: float, follow: Follow) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        out, errors = Path(folder) / "out", Path(folder) / "errors"
        began, told = time.monotonic(), 0
        module = "course_lib.command.doctor.gpu.child"
        command = [sys.executable, "-m", module, json.dumps(asdict(step)), json.dumps(host.as_json())]
        with out.open("w") as stdout, errors.open("w") as stderr:
            process = Supervised(command, timeout=limit, stdout=stdout, stderr=stderr, cwd=folder)
        try:
            code = None
            while code is None:
                code = _wait(process, POLL_S)
                for line in _complete(out)[told:]:
                    told += 1
                    yield line
                seconds = time.monotonic() - began
                follow(step, seconds, limit)
                if seconds > limit + END_S:
                    break
        finally:
            process.end()
            ended = _wait(process, END_S) is not None
        if not ended:
            yield failed(
                step.title, "Its processes can't be ended: they hang in the driver; restart the host.", seconds=limit
            )
        elif code:
            yield _end(step, code, limit, errors.read_text(errors="replace"))
        elif not told:
            yield failed(step.title, "It said nothing: this is a fault of the course; please report it.")


def _end(step: Step, code: int, limit: float, said: str) -> Line:
    if code == TIMED_OUT:
        words = f"It did not end within {limit:.0f} s: it hangs, or this host is too slow for it"
        return failed(step.title, f"{words}; it was ended, with all its processes.", seconds=limit)
    how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
    return failed(step.title, f"It ended with {how} ({last_line(said)}).")


def _wait(process: subprocess.Popen, seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _complete(path: Path) -> list[Line]:
    """The lines that a step has told so far."""
    text = path.read_text(errors="replace")
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [Line(**json.loads(line[len(MARK) :])) for line in whole if line.startswith(MARK)]
