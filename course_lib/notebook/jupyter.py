"""A separate Jupyter environment for the course, which neither uses nor changes the user's settings and kernels."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from course_lib.ranks.environment import QUIET, TENSORFLOW
from course_lib.system.files import write

_EXTENSIONS = ("cell_errors", "progress")  # modules of this package that kernels load


def environment(folder: Path) -> dict[str, str]:
    """The environment variables with which Jupyter keeps its settings, state and kernels in `folder`.

    `folder/config` overrides any other configuration. The kernel python3 is this Python. TensorFlow's start-up messages
    are always off, because a message in the cell of a hidden test would cost its points.
    """
    folder = folder.resolve()
    _own_kernel(folder / "data")
    return {
        **TENSORFLOW,
        **os.environ,
        "JUPYTER_CONFIG_PATH": str(folder / "config"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_PATH": str(folder / "data"),  # searched first, so that this python3 is used
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PATH": path(),
        **QUIET,
    }


def path() -> str:
    """The value of PATH, with the programs of this Python's environment first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@contextlib.contextmanager
def programs() -> Iterator[None]:
    """Within the block, PATH has the programs of this Python's environment, even if it is not activated."""
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
