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

STUB = "raise NotImplementedError()"


class Unusable(Exception):
    """One submission that cannot be graded; the message is the sentence for the instructor.

    `fault` is the traceback, where the course itself failed.
    """

    def __init__(self, sentence: str, fault: str = "") -> None:
        super().__init__(sentence)
        self.fault = fault


@dataclass(frozen=True)
class LearnersNotebook:
    """What counts of a notebook.

    Attributes:
        cells: (id, text) of each cell of code, and of each exercise whatever its cell has become, in their order. The
            id is nbgrader's, else the cell's own.
        digests: id of an exercise → digest of what it asked, where the notebook has one (see `masters.digests`).
        edition: see `masters.edition`; empty in a notebook that was handed out before there were editions.
    """

    cells: tuple[tuple[str, str], ...]
    digests: Mapping[str, str]
    edition: str

    def refusals(self, master: Master) -> dict[str, str]:
        """Which tests cannot be run, as their exercises were others when the notebook was handed out: id → sentence."""
        today, edition = masters.digests(master), masters.edition(master)
        refused = {}
        for exercise, test in tested(master):
            asked = self.digests.get(exercise.id)
            lacking = not any(name == exercise.id for name, _ in self.cells)
            if (asked or today[exercise.id]) != today[exercise.id] or (lacking and self.edition not in ("", edition)):
                refused[test.id] = (
                    f"the notebook is of edition {self.edition or 'unknown'}, and this exercise "
                    f"another one in today's, {edition}. Grade it with the version of the course that handed it out, "
                    "or ask for the exercise in today's notebook."
                )
        return refused

    def page(self, master: Master) -> NotebookNode:
        """The notebook that nbgrader marks: its source, with the learner's exercises in it."""
        notebook = masters.source(master)
        for exercise, cell in ((one, new) for one in master.cells for new in notebook.cells if new.id == one.id):
            if exercise.kind == "exercise":
                own = [source for name, source in self.cells if name == exercise.id]
                elsewhere = [source for _, source in self.cells if _defines(source, exercise)]
                cell.source = "\n\n".join(dict.fromkeys(own or elsewhere)) or "# The notebook has no such cell."
        return notebook


def read(content: bytes, name: str) -> LearnersNotebook:
    """Read a notebook file. Unusable where it is none; `name` is what it is called."""
    try:
        notebook = json.loads(content)
        found = [(_id(cell), "".join(cell["source"]).encode().decode(), cell) for cell in notebook["cells"]]
        digests = {name: text for name, _, cell in found if (text := _of_the_course(cell, "exercise"))}
        exercises = {name for name, _, cell in found if name in digests or _nbgrader(cell).get("solution")}
        cells = [(name, source) for name, source, cell in found if cell.get("cell_type") == "code" or name in exercises]
        return LearnersNotebook(tuple(cells), digests, _of_the_course(notebook, "edition"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"{name} is no readable notebook; ask for it to be handed in again.") from None


def untouched(content: bytes, given: bytes) -> bool:
    """Whether a notebook holds no work: it is as it was given, all its exercises are stubs, or it is none."""
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
    """Each exercise with its test; they have the same name."""
    tests = {cell.name: cell for cell in master.cells if cell.kind == "hidden"}
    return [(cell, tests[cell.name]) for cell in master.cells if cell.kind == "exercise" and cell.name in tests]


def _defines(source: str, exercise: Cell) -> bool:
    """Whether a text defines what an exercise does, as far as that can be seen without running it."""
    names = re.findall(r"(?m)^(?:def|class) (\w+)", exercise.source)
    return any(re.search(rf"(?m)^\s*((async )?def|class) {name}\b|^\s*{name}\s*=", source) for name in names)


def _id(cell: dict[str, Any]) -> str:
    return str(_nbgrader(cell).get("grade_id") or cell.get("id", ""))


def _nbgrader(cell: dict[str, Any]) -> dict[str, Any]:
    return cell["metadata"].get("nbgrader", {})


def _of_the_course(part: dict[str, Any], key: str) -> str:
    about = part.get("metadata", {}).get("course")
    text = about.get(key) if isinstance(about, dict) else None
    return text if isinstance(text, str) else ""
