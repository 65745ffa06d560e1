"""Measure once how fast this host trains the assessment's network, for all labs."""

from __future__ import annotations

import secrets
from pathlib import Path

from containers.launcher.engine import Engine
from containers.launcher.hub.settings import LAB_CORES
from containers.launcher.lab import Lab
from containers.launcher.text import notice, shell_command
from course_lib.system.errors import CourseError

CACHE = "/tmp/cache"  # of the container
FILE = f"{CACHE}/one-model-many-gpus/calibration.json"


def calibrate(engine: Engine, settings: dict, target: Path, known: str) -> str:
    """Write a measurement to `target`, unless there is one that depends on what is `known`; return what it depends on.

    Labs on GPUs measure themselves, which also compiles their kernels. Raises CourseError if this host cannot be
    measured.
    """
    if settings["gpus"]:
        return ""
    image, slot = settings["images"]["learner"], settings["cores"]["slots"][0]
    identity = "" if engine.dry_run else engine.answer("image", "inspect", "--format", "{{.Id}}", image).strip()
    depends_on = f"image {identity}, host {settings['hostname']}, {len(slot)} cores"
    if not engine.dry_run and target.exists() and known == depends_on:
        return depends_on
    if engine.dry_run:
        print(shell_command(["mkdir", "-p", str(target.parent)]))
    else:
        notice("Measuring how fast this host trains, for the assessment's time limit.")
        target.parent.mkdir(exist_ok=True)
    lab = Lab(
        name="course-calibration" if engine.dry_run else f"course-calibration-{secrets.token_hex(4)}",
        image=image,
        cores=tuple(slot),
        data=settings["data"],
    )
    options = ["--name", lab.name, "--hostname", settings["hostname"], "--env", f"XDG_CACHE_HOME={CACHE}"]
    options += engine.resource_options(lab)
    command = ["python", "-m", "course_grader.script.calibration", "--ranks", str(LAB_CORES)]
    code = engine.run_once(lab.name, [*options, image, *command], [(FILE, target)])
    if code:
        raise CourseError(f"This host could not be calibrated (exit code {code}); the reason stands above.")
    if not engine.dry_run:
        target.chmod(0o644)
    return depends_on
