"""Masters → notebooks (`master_format` tells what a master is).

The solution notebook has everything; it is for instructors and never committed. nbgrader's source notebook is the
same without instructor cells. From it nbgrader's own preprocessors make the learner's notebook, which is committed
beside the master.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from course_lib.authoring import conversions
from course_lib.authoring.leaks import leaks, visible
from course_lib.authoring.master_format import Cell, Master, find, read
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT

if TYPE_CHECKING:
    from nbformat import NotebookNode

STUB = "# Your code here\nraise NotImplementedError()"
NAMED_STUB = 'raise NotImplementedError("`{}` is not written yet")'  # what `notebook.cell_errors` knows it by


def solution(master: Master) -> NotebookNode:
    """The instructor's notebook: everything, markers included."""
    return _notebook(master.cells)


def source(master: Master, kinds: Collection[str] = ()) -> NotebookNode:
    """What nbgrader calls the source: the solution notebook without the instructor's cells; of `kinds`, where given."""
    return _notebook(cell for cell in master.cells if cell.kind in kinds or (not kinds and cell.kind != "instructor"))


def learner(master: Master) -> NotebookNode:
    """The learner's notebook, cut from the source by nbgrader. CourseError if a line of an answer is left.

    It says which edition it is of, and each exercise what it was: the grader of a class compares (see `digests`).
    """
    from nbgrader import preprocessors as steps

    notebook = _cut(source(master), steps.LockCells, steps.ClearSolutions)
    for cell in notebook.cells:
        cell.source = _stubs_named(cell.source)
    notebook = _cut(
        notebook,
        steps.ClearOutput,
        steps.CheckCellMetadata,
        steps.ClearHiddenTests,
        steps.ComputeChecksums,
        steps.CheckCellMetadata,
    )
    asked = digests(master)
    for cell in notebook.cells:
        if cell.id in asked:
            cell.metadata["course"] = {"exercise": asked[cell.id]}
    notebook.metadata["course"] = {"edition": edition(master)}
    if leaked := leaks(master, [to_text(notebook)]):
        raise CourseError(f"{master.path}: the learner's notebook would show `{leaked[0]}`, a part of an answer.")
    return notebook


def _cut(notebook: NotebookNode, *steps: type) -> NotebookNode:
    for step in steps:
        notebook, _ = step(config=nbgrader_config()).preprocess(notebook, {})
    return notebook


def _stubs_named(source: str) -> str:
    """The source of a cell, in which each stub names the function or class that is to be written."""
    lines, name = [], ""
    for line in source.split("\n"):
        definition = re.match(r"(?:def|class) (\w+)", line)
        name = definition[1] if definition else name
        lines.append(line.replace(STUB.split("\n")[-1], NAMED_STUB.format(name)))
    return "\n".join(lines)


def digests(master: Master) -> dict[str, str]:
    """Id of each exercise → digest of what it asks: of its stub, and of its test."""
    tests = {cell.name: cell.source for cell in master.cells if cell.kind == "hidden"}
    exercises = (cell for cell in master.cells if cell.kind == "exercise")
    return {cell.id: _digest(visible(cell), tests.get(cell.name, "")) for cell in exercises}


def edition(master: Master) -> str:
    """The edition of a notebook: a digest of all its exercises and hidden tests."""
    return _digest(*digests(master).values(), *(cell.source for cell in master.cells if cell.kind == "hidden"))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def nbgrader_config() -> Any:
    """The settings under which both our build and nbgrader's own generate step cut a notebook."""
    from traitlets.config import Config

    config = Config()
    config.ClearSolutions.code_stub = {"python": STUB}
    return config


def to_text(notebook: NotebookNode) -> str:
    """The bytes of a notebook file: sorted keys, nothing that depends on the time or on a version."""
    import nbformat

    return nbformat.writes(notebook).rstrip("\n") + "\n"


def learner_notebooks(root: Path) -> Iterator[tuple[Path, str]]:
    """Producer for `build`: every master's learner notebook."""
    for path in find(root):
        master = read(path)
        yield master.notebook, to_text(learner(master))


# What `build` keeps fresh: each producer yields (path, content) for a course folder.
PRODUCERS: list[Callable[[Path], Iterable[tuple[Path, str]]]] = [learner_notebooks, conversions.references]


def build(check: bool = False, root: Path = ROOT) -> list[Path]:
    """Generate whatever comes from masters; return what was out of date. With `check`, write nothing.

    CourseError where a master is wrong; then nothing is written at all.
    """
    stale = []
    for produce in PRODUCERS:
        for path, text in produce(root):
            if not path.exists() or path.read_bytes() != text.encode():
                stale.append((path, text))
    if not check:
        for path, text in stale:
            write(path, text.encode())
    return [path for path, _ in stale]


def _notebook(cells: Iterable[Cell]) -> NotebookNode:
    from nbformat import v4

    made = []
    for cell in cells:
        new = (v4.new_markdown_cell if cell.markdown else v4.new_code_cell)(cell.source, id=cell.id)
        if cell.kind not in ("editable", "instructor"):
            new.metadata["nbgrader"] = {
                "grade": cell.kind == "hidden",
                "grade_id": cell.id,
                "locked": cell.kind != "exercise",
                "schema_version": 3,
                "solution": cell.kind == "exercise",
                "task": False,
            }
        if cell.kind == "hidden":
            new.metadata.nbgrader["points"] = cell.points
        made.append(new)
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    notebook.nbformat_minor = 5
    return notebook
