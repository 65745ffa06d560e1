"""A notebook that a learner handed in: its cells, its edition, and which of its exercises can be graded today."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib.authoring import masters
from course_lib.authoring.master_format import Cell, Master

if TYPE_CHECKING:
    from nbformat import NotebookNode

STUB = "raise NotImplementedError("


class Unusable(Exception):
    """A submission cannot be graded; the message is a sentence for the instructor.

    `fault` is the traceback if the course itself failed.
    """

    def __init__(self, sentence: str, fault: str = "") -> None:
        super().__init__(sentence)
        self.fault = fault


@dataclass(frozen=True)
class LearnersNotebook:
    """The graded parts of a notebook.

    Attributes:
        cells: (id, text) of each code cell, and of each exercise, even if the learner changed its cell type. The id is
            nbgrader's, else the cell's own.
        digests: id of an exercise → digest of its task, if the notebook has one (see `masters.digests`).
        edition: see `masters.edition`; "" in a notebook that is older than editions.
    """

    cells: tuple[tuple[str, str], ...]
    digests: Mapping[str, str]
    edition: str

    def refusals(self, master: Master) -> dict[str, str]:
        """Return the tests whose exercises have changed since the notebook was handed out: id → sentence."""
        today, edition = masters.digests(master), masters.edition(master)
        refused = {}
        for exercise, test in tested(master):
            current = today[exercise.id]
            missing = not any(name == exercise.id for name, _ in self.cells)
            changed = self.digests.get(exercise.id, current) != current
            if changed or (missing and self.edition not in ("", edition)):
                refused[test.id] = (
                    f"the edition of the notebook is {self.edition or 'unknown'}, and this exercise has changed in the "
                    f"current edition, {edition}. Grade the notebook with the version of the course that handed it "
                    "out, or ask the learner to solve the exercise in the current notebook."
                )
        return refused

    def page(self, master: Master) -> NotebookNode:
        """Return the notebook that nbgrader marks: the master's source with the learner's exercises in it."""
        notebook = masters.source(master)
        cells = {cell.id: cell for cell in notebook.cells}
        for exercise in master.cells:
            if exercise.kind == "exercise" and exercise.id in cells:
                own = [source for name, source in self.cells if name == exercise.id]
                elsewhere = [source for _, source in self.cells if _defines(source, exercise)]
                text = "\n\n".join(dict.fromkeys(own or elsewhere))
                cells[exercise.id].source = text or "# The notebook has no such cell."
        return notebook


def read(content: bytes, name: str) -> LearnersNotebook:
    """Read a notebook file; `name` is its name in messages. Raises Unusable if it is not a notebook."""
    try:
        notebook = json.loads(content)
        rows = [(_id(cell), "".join(cell["source"]).encode().decode(), cell) for cell in notebook["cells"]]
        digests = {name: text for name, _, cell in rows if (text := _course_metadata(cell, "exercise"))}
        exercises = {name for name, _, cell in rows if name in digests or _nbgrader(cell).get("solution")}
        cells = [(name, source) for name, source, cell in rows if cell.get("cell_type") == "code" or name in exercises]
        return LearnersNotebook(tuple(cells), digests, _course_metadata(notebook, "edition"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"{name} is not a valid notebook: ask the learner to hand it in again.") from None


def untouched(content: bytes, given: bytes) -> bool:
    """Return whether a notebook contains no work: it is unchanged, has only stubs, or is not a notebook."""
    try:
        notebook, handed_out = read(content, ""), read(given, "")
    except Unusable:
        return True
    exercises = {name for name, source in handed_out.cells if STUB in source}
    answers = [source for name, source in notebook.cells if name in exercises]
    stubs = bool(answers) and all(STUB in source for source in answers)
    known = {source.strip() for _, source in handed_out.cells}
    return stubs or all(not source.strip() or source.strip() in known for _, source in notebook.cells)


def tested(master: Master) -> list[tuple[Cell, Cell]]:
    """Return each exercise with its test, which has the same name."""
    tests = {cell.name: cell for cell in master.cells if cell.kind == "hidden"}
    return [(cell, tests[cell.name]) for cell in master.cells if cell.kind == "exercise" and cell.name in tests]


def _defines(source: str, exercise: Cell) -> bool:
    """Return whether a cell defines a function, class or variable with the name of one of the exercise's."""
    names = re.findall(r"(?m)^(?:def|class) (\w+)", exercise.source)
    return any(re.search(rf"(?m)^\s*((async )?def|class) {name}\b|^\s*{name}\s*=", source) for name in names)


def _id(cell: dict[str, Any]) -> str:
    return str(_nbgrader(cell).get("grade_id") or cell.get("id", ""))


def _nbgrader(cell: dict[str, Any]) -> dict[str, Any]:
    return cell["metadata"].get("nbgrader", {})


def _course_metadata(part: dict[str, Any], key: str) -> str:
    metadata = part.get("metadata", {}).get("course")
    text = metadata.get(key) if isinstance(metadata, dict) else None
    return text if isinstance(text, str) else ""
