"""A command line typed in a notebook: what it prints is shown as it comes, and nothing of it stays behind."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping

from course_lib.notebook import jupyter
from course_lib.ranks import environment
from course_lib.system.processes import Supervised


def run(command: str, *, env: Mapping[str, str] | None = None, timeout: float = 120.0) -> None:
    """Run `command` in the current folder; print it and what it prints, errors and a failure's exit code too.

    `env` adds to the environment. Programs are looked for beside this Python first. After `timeout` seconds (exit
    code 124) or at an interrupt the whole process tree is ended.
    """
    print(f"$ {command}", flush=True)
    with Supervised(
        shlex.split(command),
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**environment.QUIET, **environment.OPEN_MPI, **os.environ, "PATH": jupyter.path(), **(env or {})},
    ) as process:
        for line in process.stdout:
            print(line.rstrip(), flush=True)
    if process.returncode:
        print(f"(ended with exit code {process.returncode})", flush=True)
