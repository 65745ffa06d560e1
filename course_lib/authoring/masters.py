"""Generate notebooks from masters (see `master_format`).

The solution notebook has all cells; it is for instructors and is never committed. nbgrader's source notebook is the
same without instructor cells. nbgrader's preprocessors make the learner's notebook from it, which is committed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from course_lib.authoring import conversions
from course_lib.authoring.leaks import leaks, visible
from course_lib.authoring.master_format import FURTHER, Cell, Master, find, read
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT

if TYPE_CHECKING:
    from nbformat import NotebookNode

STUB = "# Your code here\nraise NotImplementedError()"
NAMED_STUB = 'raise NotImplementedError("`{}` is not written yet")'  # `notebook.cell_errors` searches for this text
FOLD = "jp-MarkdownHeadingCollapsed"  # JupyterLab's metadata of a heading cell whose section is folded
FOLD_SENTENCE = (
    "*Further: the shorter ways through the course leave this section out. Click “cells hidden” to open it.*"
)


def solution(master: Master) -> NotebookNode:
    """The instructor's notebook, with all cells and markers."""
    return _notebook(master.cells)


def source(master: Master, kinds: Collection[str] = ()) -> NotebookNode:
    """nbgrader's source notebook: all cells except instructor cells, or only cells of `kinds` if given."""
    return _notebook(cell for cell in master.cells if cell.kind in kinds or (not kinds and cell.kind != "instructor"))


def learner(master: Master) -> NotebookNode:
    """The learner's notebook, made from the source by nbgrader. Raises CourseError if a line of a solution is left.

    Its metadata has the edition, and the digest of each exercise, which the grader of a class compares (see `digests`).
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
        advice = "is part of an answer, but the learner's notebook would show it: move it into a solution"
        raise CourseError(f"{master.path}: `{leaked[0]}` {advice}.")
    return notebook


def _cut(notebook: NotebookNode, *steps: type) -> NotebookNode:
    for step in steps:
        notebook, _ = step(config=nbgrader_config()).preprocess(notebook, {})
    return notebook


def _stubs_named(source: str) -> str:
    """The source of a cell, with the name of the function or class in the error of each stub."""
    lines, name = [], ""
    for line in source.split("\n"):
        definition = re.match(r"(?:def|class) (\w+)", line)
        name = definition[1] if definition else name
        lines.append(line.replace(STUB.split("\n")[-1], NAMED_STUB.format(name)))
    return "\n".join(lines)


def digests(master: Master) -> dict[str, str]:
    """Id of each exercise → digest of its stub and its hidden test."""
    tests = {cell.name: cell.source for cell in master.cells if cell.kind == "hidden"}
    exercises = (cell for cell in master.cells if cell.kind == "exercise")
    return {cell.id: _digest(visible(cell), tests.get(cell.name, "")) for cell in exercises}


def edition(master: Master) -> str:
    """The edition of a notebook: a digest of all its exercises and hidden tests."""
    return _digest(*digests(master).values(), *(cell.source for cell in master.cells if cell.kind == "hidden"))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def nbgrader_config() -> Any:
    """The settings with which `build` and nbgrader's generate step make the learner's notebook."""
    from traitlets.config import Config

    config = Config()
    config.ClearSolutions.code_stub = {"python": STUB}
    return config


def to_text(notebook: NotebookNode) -> str:
    """The text of a notebook file: keys are sorted, and nothing depends on the time or on a version."""
    import nbformat

    return nbformat.writes(notebook).rstrip("\n") + "\n"


def learner_notebooks(root: Path) -> Iterator[tuple[Path, str]]:
    """Producer for `build`: path and text of every learner's notebook."""
    for path in find(root):
        master = read(path)
        yield master.notebook, to_text(learner(master))


# The producers of `build`: each yields (path, text) of generated files in a course folder.
PRODUCERS: list[Callable[[Path], Iterable[tuple[Path, str]]]] = [learner_notebooks, conversions.references]


def build(check: bool = False, root: Path = ROOT) -> list[Path]:
    """Generate all notebooks and converted scripts; return the paths that were out of date.

    Args:
        check: write nothing.

    Raises CourseError for an invalid master, before anything is written.
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
        if cell.further:
            new.source += f"\n\n{FOLD_SENTENCE}"
            new.metadata.update({"tags": [FURTHER], FOLD: True})
        made.append(new)
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = v4.new_notebook(cells=made, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    notebook.nbformat_minor = 5
    return notebook
