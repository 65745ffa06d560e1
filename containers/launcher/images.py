"""Build the images, and check a host's GPUs in one of them."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from pathlib import Path

from containers.launcher import host
from containers.launcher.engine import REPORT, REPORT_CODES, Engine
from containers.launcher.engines import HUB_ENGINES, choose_engine
from containers.launcher.lab import Lab
from containers.launcher.text import notice
from course_lib.system.errors import CourseError

# NVIDIA's image for GPUs of a compute capability from … on, the newest first (containers/README.md has the table).
BASES = {
    (10, 0): "nvcr.io/nvidia/tensorflow:25.02-tf2-py3",
    (6, 0): "nvcr.io/nvidia/tensorflow:24.03-tf2-py3",
}
DEFAULT_BASE = "nvcr.io/nvidia/tensorflow:24.03-tf2-py3"  # as in gpu.Dockerfile


def build(options: argparse.Namespace) -> None:
    """Build an image: `launch build`."""
    if options.kind == "hub":
        if options.instructor:
            raise CourseError("There is one image of the hub: leave --instructor out.", 2)
        engine = choose_engine(options.engine, options.dry_run, HUB_ENGINES)
        kind, role = "hub", ""
    else:
        engine = choose_engine(options.engine, options.dry_run)
        kind, role = options.kind or ("gpu" if host.gpus() else "cpu"), role_name(options.instructor)
    build_image(engine, kind, role, options.image or engine.image(kind, role), options.base)


def build_image(engine: Engine, kind: str, role: str, image: str, base: str = "") -> None:
    """Build an image; one for GPUs without `base` is for this host's GPUs."""
    if kind == "gpu" and not base:
        capabilities = host.compute_capabilities()
        base = choose_base(capabilities)
        if base == DEFAULT_BASE:
            base = ""
        else:
            newest = ".".join(map(str, max(capabilities)))
            notice(f"This host's GPUs have compute capability {newest}: the image is built on {base}.")
    engine.build(kind, role, image, base)
    if not engine.dry_run:
        print(f"Built {image}.")


def choose_base(capabilities: Sequence[tuple[int, int]]) -> str:
    """Return NVIDIA's image for the newest of these GPUs; that of gpu.Dockerfile if none is known.

    Raises CourseError for GPUs that are older than all images.
    """
    if not capabilities:
        return DEFAULT_BASE
    newest = max(capabilities)
    for first, base in BASES.items():
        if newest >= first:
            return base
    raise CourseError(
        f"The GPUs of this host have compute capability {newest[0]}.{newest[1]}, and the images begin at "
        f"{min(BASES)[0]}.{min(BASES)[1]}: use the processor's cores with `containers/launch build cpu`."
    )


def role_name(instructor: bool) -> str:
    """Return the role in an image's name: learner or instructor."""
    return "instructor" if instructor else "learner"


def require_image(engine: Engine, image: str, kind: str, options: argparse.Namespace) -> None:
    """Raise CourseError if the image is not on this host."""
    if not engine.has_image(image):
        flag = " --instructor" if options.instructor else ""
        advice = "check its name" if options.image else f"build it with `containers/launch build {kind}{flag}`"
        raise CourseError(f"There is no image {image} on this host: {advice}, or name another one with --image.")


def check(options: argparse.Namespace) -> int:
    """Run `course doctor --gpu` in the image; return its exit code: `launch check`."""
    engine = choose_engine(options.engine, options.dry_run)
    gpus = host.choose_gpus(options.gpus, () if engine.dry_run else engine.held_gpus())
    if not gpus:
        raise CourseError("A check needs GPUs: leave --gpus none out, or give `course doctor` for the rest.", 2)
    if problem := "" if engine.dry_run else engine.gpu_problem():
        raise CourseError(problem)
    folder = Path(options.report).resolve()
    if not folder.is_dir():
        raise CourseError(f"--report {options.report} is no folder: name one in which the report can be written.", 2)
    lab = Lab(
        name="course-check" if engine.dry_run else f"course-check-{secrets.token_hex(4)}",
        image=options.image or engine.image("gpu", role_name(options.instructor)),
        gpus=tuple(gpus),
        shared_memory=options.shm_size,
        sandbox=options.instructor,
        data=host.data_folder(),
    )
    require_image(engine, lab.image, "gpu", options)
    code = engine.check(lab, folder)
    if not engine.dry_run and code in REPORT_CODES and (folder / f"{REPORT}.html").exists():
        notice(
            f"The report is {folder / REPORT}.html, with {REPORT}.json beside it; docs/hardware says where to send it."
        )
    return code
