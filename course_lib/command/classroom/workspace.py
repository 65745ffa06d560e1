"""The learner's workspace: what is put into it, and JupyterLab on top of it."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

from course_lib.authoring import welcome
from course_lib.authoring.released import HANDOUT, course_files
from course_lib.command.classroom import lab
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT

OLDER_CELLS = (
    "Where a cell of an older notebook cannot import a name, the course has it no more: replace the cell by the one of "
    "the newer notebook."
)
STATE_FOLDER = ".course"  # in the workspace: the manifest, and Jupyter's settings and state


def open_lab(directory: Path, port: int | None, browser: bool, root: Path = ROOT) -> int:
    """Fill the workspace, open JupyterLab on it and stay until it is stopped; return the exit code.

    CourseError: the workspace cannot be written, the port is taken, JupyterLab does not start.
    """
    directory = directory.expanduser().resolve()
    for part in (root, root / "labs", root / "assessment", root / "course_lib", root / HANDOUT):
        if directory == part.resolve() or (part != root and part.resolve() in directory.parents):
            raise CourseError(f"{directory} belongs to the course itself; choose another workspace with --dir.")
    lab.check_port(port)
    for line in fill(directory, root):
        print(line)
    return lab.serve(directory, directory / STATE_FOLDER, port, browser)


def fill(directory: Path, root: Path = ROOT) -> list[str]:
    """Bring a workspace up to date without touching the learner's work; return one line for each file kept.

    A file as the course left it is replaced by the course's newer one. A file that the learner changed stays;
    when the course's changes too, the newer one is put beside it as NAME.new.ext. Where a notebook is among them, a
    last line says what to do with cells that import what the course no longer has. The welcome page is written anew.
    """
    manifest = directory / STATE_FOLDER / "manifest.json"
    lines, notebooks = [], False  # whether one of the learner's notebooks is older than the course's
    try:
        put = _put(manifest)
        files = course_files(root)
        for name, content in files.items():
            path, new = directory / name, _digest(content)
            current = _digest_of(path)
            if current is None or (current != new and current == put.get(name)):
                write(path, content)
            elif current != new and put.get(name) != new:
                beside = _beside(path, put, directory)
                write(beside, content)
                put[str(beside.relative_to(directory))] = new
                lines.append(f"{name} is yours and stays; the course's newer one is beside it: {beside.name}")
                notebooks |= path.suffix == ".ipynb"
            put[name] = new
        page = welcome.page(files, welcome.read_progress(directory), root).encode()
        if _digest_of(directory / welcome.NAME) != _digest(page):
            write(directory / welcome.NAME, page)
        write(manifest, json.dumps(put, indent=1, sort_keys=True).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise CourseError(f"{directory} cannot be written ({reason}); choose another with --dir.") from None
    return [*lines, OLDER_CELLS] if notebooks else lines


def _put(manifest: Path) -> dict[str, str]:
    """Digests of the files that were put, by name; none without a sound manifest: all that differs is the learner's."""
    try:
        put = json.loads(manifest.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return put if isinstance(put, dict) else {}


def _beside(path: Path, put: dict[str, str], directory: Path) -> Path:
    """NAME.new.ext, or NAME.new2.ext … where the learner works on the earlier one."""
    for count in itertools.count(1):
        beside = path.with_name(f"{path.stem}.new{count if count > 1 else ''}{path.suffix}")
        if _digest_of(beside) in (None, put.get(str(beside.relative_to(directory)))):
            return beside


def _digest_of(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.exists() else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
