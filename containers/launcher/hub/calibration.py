"""Measure once how fast this host trains the assessment's network, for all labs."""

from __future__ import annotations

import json
import secrets
import stat
from pathlib import Path

from containers.launcher import host
from containers.launcher.engine import Engine
from containers.launcher.hub.settings import LAB_CORES
from containers.launcher.lab import Lab
from containers.launcher.text import notice, shell_command
from course_lib.system.errors import CourseError

CACHE = "/tmp/cache"  # of the container
FILE = f"{CACHE}/one-model-many-gpus/calibration.json"


def calibrate(engine: Engine, settings: dict, target: Path, known: str) -> str:
    """Write a measurement to `target`, unless a valid one is there; return what it depends on, the next call's `known`.

    Labs on GPUs measure themselves, which also compiles their kernels. Raises CourseError if this host cannot be
    measured.
    """
    if settings["gpus"]:
        return ""
    image, slot = settings["images"]["learner"], settings["cores"]["slots"][0]
    identity = "" if engine.dry_run else engine.answer("image", "inspect", "--format", "{{.Id}}", image).strip()
    depends_on = f"image {identity}, host {settings['hostname']}, {host.processor()}, {len(slot)} cores"
    if not engine.dry_run and target.exists() and known == depends_on:
        return depends_on
    draft = target.with_name(f".{target.name}.draft")
    if engine.dry_run:
        print(shell_command(["mkdir", "-p", str(target.parent)]))
    else:
        notice("Measuring how fast this host trains, for the assessment's time limit.")
        target.parent.mkdir(exist_ok=True)
        draft.unlink(missing_ok=True)
    lab = Lab(
        name="course-calibration" if engine.dry_run else f"course-calibration-{secrets.token_hex(4)}",
        image=image,
        cores=tuple(slot),
        data=settings["data"],
    )
    options = ["--name", lab.name, "--hostname", settings["hostname"], "--env", f"XDG_CACHE_HOME={CACHE}"]
    options += engine.resource_options(lab)
    command = ["python", "-m", "course_grader.script.calibration", "--ranks", str(LAB_CORES)]
    code = engine.run_once(lab.name, [*options, image, *command], [(FILE, draft)])
    if code:
        raise CourseError(f"This host could not be calibrated (exit code {code}); the reason stands above.")
    if engine.dry_run:
        print(shell_command(["mv", str(draft), str(target)]))
    else:
        _require_measurement(draft)
        draft.chmod(0o644)
        draft.replace(target)
    return depends_on


def _require_measurement(file: Path) -> None:
    """Raise CourseError, and remove what the container gave, unless it is a regular file with JSON."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):  # a link would lead out of the container
            raise ValueError("it is no file")
        json.loads(file.read_text())
    except (OSError, ValueError) as error:
        file.unlink(missing_ok=True)
        raise CourseError(
            f"The measurement of this host is damaged ({error}): build the learner's image again."
        ) from None
