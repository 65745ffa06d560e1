"""Tests of the assessment on this host: calibration, the reference, the serial starter.

Each step is a function of the host that yields lines; `runner.STEPS` lists them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from course_grader.sandbox import bubblewrap
from course_grader.script import calibration, contract, grader, slots
from course_lib import data
from course_lib.command.doctor.gpu.devices import Host
from course_lib.command.doctor.gpu.report import Line, failed, passed, tested, untested
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

REFERENCE, STARTER = (ROOT / "assessment" / name for name in ("reference/assessment.py", "assessment.py"))
PROFILES = {True: "gpu", False: "short"}  # with GPUs, without
EPOCHS_OF_GPU = 24  # the targets of the profile `gpu` assume so many epochs; see docs/hardware
NO_VERDICT = 2  # exit code of an error that is due to other load on the host


def calibrate(host: Host) -> Iterator[Line]:
    """The factor of the time limits, measured on as many GPUs (or cores) as in an assessment."""
    ranks = host.visible or 2
    gpus = slots.count()
    try:
        with slots.take(ranks, gpus=gpus) as taken, slots.on_cores(taken, gpus):
            speed = calibration.measure(ranks, slots.environment(taken, gpus))
    except CourseError as error:
        if error.code != NO_VERDICT:
            raise
        yield untested("Calibration", str(error))
        return
    factor = calibration.factor(speed, contract.read().images_per_second)
    first_step = calibration.first_step_seconds(ranks)
    yield passed(
        "Calibration",
        f"{ranks} rank{'s train' if ranks > 1 else ' trains'} {speed:,.0f} images/s: time limits are multiplied by "
        f"{factor:.2f}." + (f" The first step took {first_step:.1f} s." if first_step is not None else ""),
        **{"images/s": speed, "factor": factor, "first step s": first_step},
    )


def reference(host: Host) -> Iterator[Line]:
    """The reference gets full marks in a sandbox in which CUDA works."""
    if host.visible and (problem := bubblewrap.cuda_problem()):
        yield failed("Sandbox", problem)
        return
    yield from _assessed(host, "The reference", REFERENCE, honest=True)


def starter(host: Host) -> Iterator[Line]:
    """The serial script on all ranks does not pass."""
    if host.visible == 1:
        yield untested("The serial starter", "One GPU means one rank, and on one rank a serial script is correct.")
        return
    yield from _assessed(host, "The serial starter", STARTER, honest=False)


def _assessed(host: Host, title: str, path: Path, honest: bool) -> Iterator[Line]:
    if not path.is_file():
        yield untested(title, "The learner's image does not contain it: run the command in the instructor's image.")
        return
    profile = PROFILES[bool(host.visible)]
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        script = Path(folder) / "assessment.py"
        text = path.read_text()
        if host.visible and honest:
            text = re.sub(r"^EPOCHS = \d+", f"EPOCHS = {EPOCHS_OF_GPU}", text, flags=re.MULTILINE)
        script.write_text(text)
        try:
            outcome = grader.assess(script, profile=profile)
        except CourseError as error:
            yield untested(title, f"It could not be graded: {error}")
            return
    points = f"{outcome.score:g} of {outcome.max_score:g} points in the profile {profile} on {outcome.data}"
    points += f" in {outcome.seconds:.0f} of {outcome.limit:.0f} s" if outcome.seconds else ""
    values = {"points": outcome.score, "seconds": outcome.seconds, "test accuracy": outcome.test_accuracy}
    values |= {"training accuracy": outcome.train_accuracy, "ranks": outcome.ranks, "sandbox": outcome.sandbox}
    if honest:
        lost = [f"; lost: {v.title}: {v.reason}".rstrip(".") for v in outcome.verdicts if not v.passed]
        full = outcome.score == outcome.max_score
        yield tested(title, full, f"{points}.", f"{points}{''.join(lost[:1])}.", **values)
        yield tested(
            "Sandbox",
            outcome.sandbox == "bubblewrap",
            "Bubblewrap confines the ranks" + (", and CUDA starts inside it." if host.visible else "."),
            " ".join(outcome.weaknesses[:1]) or "The ranks ran without a sandbox.",
        )
    else:
        right = f"It does not pass, as expected: {points}."
        yield tested(title, not outcome.passed, right, f"It passed, but must not: {points}.", **values)
    if data.locate("cifar10") == "stand-in":
        yield untested(f"{title} on CIFAR-10", "CIFAR-10 is not on this machine: `course data cifar10` downloads it.")
