"""Jupyter for the course alone: the user's own settings and kernels are neither used nor changed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from course_lib.ranks.environment import QUIET, TENSORFLOW
from course_lib.system.files import write

_EXTENSIONS = ("cell_errors", "progress")  # modules beside this one that kernels load


def environment(folder: Path) -> dict[str, str]:
    """Environment variables under which Jupyter keeps its settings, state and kernels in `folder`.

    What `folder/config` says comes before any other configuration. The kernel python3 is this Python.
    TensorFlow keeps its start-up messages to itself, whatever the user has set: a message in a hidden test's cell would
    cost its points.
    """
    folder = folder.resolve()
    _own_kernel(folder / "data")
    return {
        **TENSORFLOW,
        **os.environ,
        "JUPYTER_CONFIG_PATH": str(folder / "config"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_PATH": str(folder / "data"),  # searched first: no other python3 can come before ours
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PATH": path(),
        **QUIET,
    }


def path() -> str:
    """The search path for programs, those of this Python's environment first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@contextlib.contextmanager
def programs() -> Iterator[None]:
    """Let this process find the programs of its environment, whether or not that is activated."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = path()
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _own_kernel(data: Path) -> None:
    kernel = {
        "argv": [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            *(f"--IPKernelApp.extensions=course_lib.notebook.{name}" for name in _EXTENSIONS),
            "-f",
            "{connection_file}",
        ],
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "metadata": {"debugger": True},
    }
    write(data / "kernels" / "python3" / "kernel.json", json.dumps(kernel, indent=1).encode())
