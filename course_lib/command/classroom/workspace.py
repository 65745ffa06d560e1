"""The learner's workspace: copy the course's files into it, and open JupyterLab on it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from course_lib.authoring import ways, welcome
from course_lib.authoring.released import HANDOUT, course_files
from course_lib.command.classroom import hub, lab
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT

OLDER_CELLS = (
    "If a cell of an older notebook cannot import a name, the course no longer has that name: replace the cell with "
    "the one from the newer notebook."
)
STATE_FOLDER = ".course"  # in the workspace: the manifest, and Jupyter's settings and state


def open_lab(directory: Path, port: int | None, browser: bool, root: Path = ROOT, way: str | None = None) -> int:
    """Fill the workspace and run JupyterLab on it until it is stopped; return the exit code.

    Args:
        directory: the workspace; created if missing.
        port, browser: as in `lab.serve`.
        way: as in `fill`.

    Raises CourseError if the workspace can't be written, the port is in use, the way is unknown, or JupyterLab does not
    start.
    """
    directory = directory.expanduser().resolve()
    for part in (root, root / "labs", root / "assessment", root / "course_lib", root / HANDOUT):
        if directory == part.resolve() or (part != root and part.resolve() in directory.parents):
            raise CourseError(f"{directory} belongs to the course itself: choose another workspace with --dir.")
    lab.check_port(port)
    for line in fill(directory, root, way):
        print(line)
    if hub.starts_this():
        hub.serve(directory, directory / STATE_FOLDER)
    return lab.serve(directory, directory / STATE_FOLDER, port, browser)


def open_in(server: Sequence[str], directory: Path, root: Path = ROOT) -> NoReturn:
    """Fill the workspace, then replace this process by `server`, the command with which, say, Binder starts Jupyter.

    Raises CourseError if the workspace can't be written.
    """
    fill(directory, root)
    lab.put_settings(directory / STATE_FOLDER)
    lab.become(server, directory, directory / STATE_FOLDER)


def fill(directory: Path, root: Path = ROOT, way: str | None = None) -> list[str]:
    """Update a workspace without changing the learner's work.

    A file that the learner has not changed is replaced by the course's newer version. A file that the learner has
    changed stays; the course's newer version, if any, is written next to it as NAME.new.ext. The welcome page is
    updated.

    Args:
        way: id of a way, which the welcome page then shows first, now and later.

    Returns:
        One line for each newer version next to a learner's file; for notebooks, also a line on cells that import names
        which the course no longer has.

    Raises CourseError for an unknown way, or if the workspace can't be written.
    """
    manifest = directory / STATE_FOLDER / "manifest.json"
    lines, notebooks = [], False  # notebooks: whether a learner's notebook is older than the course's
    with _writable(directory):
        files = course_files(root)
        if way is not None:
            write(directory / welcome.WAY, ways.named(way, files, root).id.encode())
        put = _put(manifest)
        for name, content in files.items():
            path, new = directory / name, _digest(content)
            current = _digest_of(path)
            if current is None or (current != new and current == put.get(name)):
                write(path, content)
            elif current != new and put.get(name) != new:
                beside = _beside(path, put, directory)
                write(beside, content)
                put[str(beside.relative_to(directory))] = new
                lines.append(f"Kept your {name}; the course's newer version is beside it: {beside.name}")
                notebooks |= path.suffix == ".ipynb"
            put[name] = new
        welcome.write_page(directory, files, root)
        write(manifest, json.dumps(put, indent=1, sort_keys=True).encode())
    return [*lines, OLDER_CELLS] if notebooks else lines


def choose(way: str | None, place: Path, root: Path = ROOT) -> str:
    """Make a way the first part of the welcome page; return one line for the user.

    Args:
        way: id of the way.
        place: a folder in the workspace.

    Raises CourseError for an unknown way, if `place` is not in a workspace, or if the workspace can't be written.
    """
    files = course_files(root)
    chosen = ways.named(way, files, root)
    directory = welcome.workspace_of(place.resolve())
    if directory is None:
        raise CourseError(
            f"{place} is not in a workspace: run this in a terminal of the lab, or run `course lab --way {way}`."
        )
    with _writable(directory):
        write(directory / welcome.WAY, chosen.id.encode())
        welcome.write_page(directory, files, root)
    return f"Your way is “{chosen.title}”: open {welcome.NAME} again."


@contextlib.contextmanager
def _writable(directory: Path) -> Iterator[None]:
    """Convert an OSError in the block to a CourseError that says that the workspace can't be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CourseError(f"{directory} cannot be written ({reason}): choose another workspace with --dir.") from None


def _put(manifest: Path) -> dict[str, str]:
    """Digests, by name, of the files that the course wrote into the workspace.

    Empty if the manifest is missing or invalid; all changed files then count as the learner's.
    """
    try:
        put = json.loads(manifest.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return put if isinstance(put, dict) else {}


def _beside(path: Path, put: dict[str, str], directory: Path) -> Path:
    """The path NAME.new.ext; NAME.new2.ext, … if the learner has changed the earlier ones."""
    for count in itertools.count(1):
        beside = path.with_name(f"{path.stem}.new{count if count > 1 else ''}{path.suffix}")
        if _digest_of(beside) in (None, put.get(str(beside.relative_to(directory)))):
            return beside


def _digest_of(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.exists() else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
