"""A command line typed in a notebook: what it says is shown as it comes, and nothing of it stays behind."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from course_lib import launch

_SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "2", **launch.OPEN_MPI}


def run(command: str, *, env: Mapping[str, str] | None = None, timeout: float = 120.0) -> None:
    """Run `command` in the current folder, print it and what it says, errors and a failure's exit code too.

    `env` adds to the environment. Programs are looked for beside this Python first. After `timeout` seconds (exit
    code 124) or at an interrupt the whole process tree is ended.
    """
    print(f"$ {command}", flush=True)
    supervise = str(Path(__file__).with_name("supervise.py"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    process = subprocess.Popen(
        [sys.executable, supervise, str(timeout), *shlex.split(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**_SETTINGS, **os.environ, "PATH": path, **(env or {})},
        start_new_session=True,  # an interrupt comes to the notebook alone, which then ends the tree
    )
    try:
        for line in process.stdout:
            print(line.rstrip(), flush=True)
    finally:
        process.stdin.close()  # the lease that `supervise` lives on
        code = process.wait()
    if code:
        print(f"(ended with exit code {code})", flush=True)
