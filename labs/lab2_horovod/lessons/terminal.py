"""A command line typed in a notebook: what it prints is shown as it comes, and nothing of it stays behind."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import deque
from collections.abc import Mapping

from course_lib.notebook import jupyter
from course_lib.ranks import environment
from course_lib.ranks.messages.known_errors import hint
from course_lib.ranks.run import TAIL_LINES
from course_lib.system.errors import CourseError
from course_lib.system.processes import Supervised


def run(command: str, *, env: Mapping[str, str] | None = None, timeout: float = 120.0) -> None:
    """Run `command` in the current folder; print it and what it prints, errors too. Raise CourseError if it fails.

    `env` adds to the environment. Programs are looked for beside this Python first. After `timeout` seconds (exit
    code 124) or at an interrupt the whole process tree is ended.
    """
    print(f"$ {command}", flush=True)
    last: deque[str] = deque(maxlen=TAIL_LINES)
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
            last.append(line)
    if process.returncode:
        why = hint(last) or "Its output says why."
        raise CourseError(f"The command ended with exit code {process.returncode}. {why}", process.returncode)
