"""Programs of the hub's image that work on the state as root: there, all files can be read, written and removed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from containers.launcher.engine import Engine
from containers.launcher.hub.state import MOUNT


def arguments(engine: Engine, folder: Path, image: str, command: Sequence[str], mode: str = "rw") -> list[str]:
    """Return what follows the engine's `run` for a command that sees the state's folder as MOUNT."""
    # Without a log: the engine would keep what a backup writes to its standard output.
    options = ["--rm", "--interactive", "--network", "none", "--log-driver", "none", *engine.ulimit_options()]
    return [*options, "--volume", f"{folder}:{MOUNT}:{mode}", "--entrypoint", command[0], image, *command[1:]]


def run(
    engine: Engine, run_arguments: Sequence[str], stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
) -> tuple[int, str]:
    """Run the command to its end; return its exit code and the last line of its errors."""
    name = f"course-state-{secrets.token_hex(4)}"
    try:
        return engine.pipe("run", "--name", name, *run_arguments, stdin=stdin, stdout=stdout)
    except BaseException:
        engine.query("rm", "--force", name)  # it does not end with the engine's client
        raise


def remove(engine: Engine, folder: Path, image: str, paths: Sequence[str]) -> tuple[int, str]:
    """Remove files and folders, given relative to the state's folder."""
    command = ["rm", "-rf", "--", *(f"{MOUNT}/{path}" for path in paths)]
    return run(engine, arguments(engine, folder, image, command))
