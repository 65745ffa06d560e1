"""What learners hand in: found, and reduced to what the assignment asks for."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.authoring import masters
from course_lib.authoring.master_format import Master
from course_lib.system.errors import CourseError

if TYPE_CHECKING:
    from nbformat import NotebookNode

MAX_BYTES = 50_000_000  # a larger file is not read


class Unusable(Exception):
    """One submission that cannot be graded; the message is the sentence for the instructor."""


@dataclass(frozen=True)
class Submission:
    """A notebook that a learner handed in. `master` is None where `problem` says why it cannot be graded."""

    learner: str
    path: Path
    master: Master | None
    problem: str = ""

    @property
    def assignment(self) -> str:
        """The lab's folder, which is what nbgrader calls an assignment."""
        return self.master.assignment if self.master else ""

    @property
    def notebook(self) -> str:
        """The notebook's name without extension, as it can be written."""
        return _plain(self.path.stem)


def find(directory: Path, known: dict[str, Master]) -> list[Submission]:
    """Every submission in `directory`: it holds a folder for each learner, with notebooks or LAB/ in it.

    `known` maps notebook names to masters. CourseError where `directory` as a whole is not like that.
    """
    if not directory.is_dir():
        raise CourseError(f"{directory} is no folder; give the folder that holds one folder for each learner.")
    learners = sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))
    assignments = {master.assignment for master in known.values()}
    if assignments.intersection(path.name for path in learners):
        raise CourseError(f"{directory} is one learner's folder; give the folder above it.")
    found = [submission for learner in learners for submission in _of_learner(learner, known)]
    if not any(submission.master for submission in found):
        raise CourseError(f"{directory} holds no notebook of this course, neither in LEARNER/ nor in LEARNER/LAB/.")
    return found


def _of_learner(folder: Path, known: dict[str, Master]) -> Iterator[Submission]:
    name = _plain(folder.name)
    if name != folder.name:
        yield Submission(name, folder, None, "The folder's name has bytes that are no characters: rename it.")
        return
    if not os.access(folder, os.R_OK | os.X_OK):
        yield Submission(folder.name, folder, None, "The folder cannot be read: mend its permissions.")
        return
    graded = {name for name, master in known.items() if master.script}  # by a script, with or without the notebook
    paths = [path for place in ("*", "[!.]*/*") for path in sorted(folder.glob(place)) if path.is_file()]
    paths = [path for path in paths if path.suffix == ".ipynb" or (path.suffix == ".py" and graded)]
    linked = {path.parent for path in paths if path.parent != folder and path.parent.is_symlink()}
    for place in sorted(linked):
        yield Submission(folder.name, place, None, f"{_plain(place.name)} is a link: ask for the folder itself.")
    paths = [path for path in paths if path.parent not in linked]
    right: dict[str, dict[Path, None]] = {}
    for path in paths:
        if path.stem in (known if path.suffix == ".ipynb" else graded):
            right.setdefault(path.stem, {})[path.with_suffix(".ipynb")] = None
    for name, (path, *more) in right.items():
        if not more:
            yield Submission(folder.name, path, known[name])
        else:
            yield Submission(folder.name, path, None, "It was handed in more than once; keep one.")
    # A scratch notebook is nobody's business; a renamed one must not get lost.
    others = [path for path in paths if path.stem not in known]
    missing = {".ipynb": [name for name in known if name not in right], ".py": sorted(graded.difference(right))}
    renamed = [(path, name) for path in others if (name := _like(path, missing[path.suffix]))]
    for path, name in renamed:
        yield Submission(folder.name, path, None, f"It seems to be {name}{path.suffix}; give it that name.")
    if not right and not renamed and not linked:
        names = [_plain(path.name) for path in others if path.suffix == ".ipynb"]
        only = f" of this course, only {', '.join(names)}" if names else ""
        yield Submission(folder.name, folder, None, f"No notebook{only} was handed in.")


def _plain(name: str) -> str:
    """A file's name as it can be written and shown: bytes that are no characters are spelled out."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _like(path: Path, missing: list[str]) -> str | None:
    inside = [name for name in missing if name in path.stem]
    return next(iter(inside or difflib.get_close_matches(path.stem, missing, 1, 0.6)), None)


def sanitise(path: Path, master: Master) -> NotebookNode:
    """The notebook to grade: nbgrader's source with the learner's exercises and editable cells in it.

    Nothing else is taken: locked cells and tests stay as the course has them, added cells are gone. Where a script
    is graded, nothing is taken at all, and the tests alone are run: other cells train for show.
    Unusable: the file is no notebook, or an exercise is missing or there twice.
    """
    notebook = masters.source(master)
    kinds = {cell.id: cell.kind for cell in master.cells}
    if master.script:
        notebook.cells = [cell for cell in notebook.cells if kinds[cell.id] in ("prose", "hidden")]
        return notebook
    theirs = _cells(path)
    for cell in notebook.cells:
        if kinds[cell.id] not in ("exercise", "editable"):
            continue
        sources = list(dict.fromkeys(source for name, source in theirs if name == cell.id))
        if kinds[cell.id] == "editable":
            cell.source = sources[0] if sources else cell.source
        elif not sources:
            raise Unusable(f"The cell of exercise {cell.id} is missing; it has to be the course's own cell.")
        elif len(sources) > 1:
            raise Unusable(f"The cell of exercise {cell.id} is there {len(sources)} times; keep one.")
        else:
            cell.source = sources[0]
    return notebook


def scripts(submission: Submission, notebook: NotebookNode, names: list[str]) -> dict[str, bytes]:
    """The learner's files among `names` that this notebook speaks of; the script alone where that is what is graded.

    Unusable where one is missing.
    """
    text = "\n".join(cell.source for cell in notebook.cells)
    script = submission.master.script
    found = {}
    for name in [script] if script else [name for name in names if name in text]:
        path = submission.path.parent / name
        if not path.is_file():
            raise Unusable(f"{name} was not handed in with the notebook.")
        found[name] = _read(path)
    return found


def _read(path: Path) -> bytes:
    try:
        if path.is_symlink() or path.stat().st_size > MAX_BYTES:
            raise Unusable(f"{path.name} is a link or larger than {MAX_BYTES // 1_000_000} MB.")
        return path.read_bytes()
    except OSError as error:
        raise Unusable(f"{path.name} cannot be read ({error.strerror}).") from None


def _cells(path: Path) -> list[tuple[str, str]]:
    """(identifier, source) of every cell. The identifier is nbgrader's, else the cell's own."""
    try:
        cells = json.loads(_read(path))["cells"]
        return [(_name(cell), "".join(cell["source"]).encode().decode()) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"{path.name} is no readable notebook; ask for it to be handed in again.") from None


def _name(cell: dict[str, Any]) -> str:
    return cell["metadata"].get("nbgrader", {}).get("grade_id") or cell.get("id", "")
