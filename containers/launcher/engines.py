"""The engines, and which of them a command uses."""

from __future__ import annotations

from collections.abc import Mapping

from containers.launcher.apptainer import Apptainer
from containers.launcher.docker import Docker, Podman
from containers.launcher.engine import Engine
from course_lib.system.errors import CourseError

ENGINES: Mapping[str, type[Engine]] = {"docker": Docker, "podman": Podman, "apptainer": Apptainer}
HUB_ENGINES: Mapping[str, type[Engine]] = {"docker": Docker, "podman": Podman}  # with networks


def choose_engine(name: str | None, dry_run: bool, engines: Mapping[str, type[Engine]] = ENGINES) -> Engine:
    """Return the engine with this name, else the first that works. Raises CourseError if there is none.

    A dry run needs no engine: it shows what would be done on a host where no lab runs yet.
    """
    kinds = [engines[name]] if name else list(engines.values())
    installed = [engine for engine in (kind(dry_run) for kind in kinds) if engine.installed()]
    problems = []
    for engine in installed:
        problems.append(engine.problem())
        if not problems[-1]:
            return engine
    if dry_run:
        return installed[0] if installed else kinds[0](dry_run)
    if problems:
        raise CourseError(problems[0])
    missing = f"{kinds[0].title} is not installed here" if name else "There is no container engine here"
    fitting = "install Docker, Podman (`sudo apt install podman`) or Apptainer; `./course lab` needs none"
    if "apptainer" not in engines:
        fitting = "the hub needs Docker or Podman (`sudo apt install podman`)"
    raise CourseError(f"{missing}: {fitting}.")


def working_engines(name: str | None) -> list[Engine]:
    """Return the engine with this name, else all that work. Raises CourseError if there is none."""
    engines = [choose_engine(name, False)]
    if not name:
        others = [kind() for kind in ENGINES.values() if not isinstance(engines[0], kind)]
        engines += [engine for engine in others if engine.installed() and not engine.problem()]
    return engines
