"""Compare the course's solutions with the learner's, after the learner has solved all exercises of a notebook."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib.authoring import master_format, ways, welcome
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

MAX_NAMES = 4  # of functions in a sentence that only one of the solutions calls


@dataclass(frozen=True)
class Pair:
    """The learner's and the course's solution of an exercise as code, and one sentence on the difference."""

    exercise: str
    learners: str
    courses: str
    difference: str


def pairs(code: str, workspace: Path, root: Path = ROOT) -> list[Pair]:
    """Both solutions of each exercise of a notebook.

    Args:
        code: short name of the notebook, such as "3d".
        workspace: the learner's workspace.

    Raises CourseError (code 1) if this installation has no solutions, for an unknown notebook, or if not all checks of
    the notebook have passed in this workspace.
    """
    masters = {ways.code_of(path.name): path for path in master_format.find(root)}
    if not masters:
        raise CourseError("This installation is for learners and has no solutions.")
    if code not in masters:
        raise CourseError(f"There is no notebook {code}; there are {', '.join(masters)}.")
    master = master_format.read(masters[code])
    path = workspace / master.assignment / master.notebook.name
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        raise CourseError(f"There is no notebook {path}: give the workspace with --dir.") from None
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    asked = {line for source in sources for line in welcome.checks(source)}
    if not asked:
        raise CourseError(f"Notebook {code} has no exercises, so there is nothing to compare.")
    missing = asked - welcome.read_progress(workspace).get(code, welcome.Progress()).passed
    if missing:
        listed = ", ".join(sorted(missing))
        raise CourseError(
            f"Pass all {len(asked)} checks of {code} before you compare solutions. Not passed yet: {listed}."
        )
    return list(_pairs(master, cells))


def _pairs(master: master_format.Master, cells: list[dict]) -> Iterator[Pair]:
    written = {cell["metadata"].get("nbgrader", {}).get("grade_id"): "".join(cell["source"]) for cell in cells}
    for cell in master.cells:
        if cell.kind == "exercise":
            solution = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", cell.source, flags=re.MULTILINE).rstrip()
            learners = written.get(cell.name, "").rstrip()
            yield Pair(cell.name, learners, solution, difference(learners, solution))


def difference(learners: str, courses: str) -> str:
    """One sentence on the difference of two solutions: lines of code, loops, called functions."""
    try:
        own, other = _Facts.of(learners), _Facts.of(courses)
    except SyntaxError:
        return "Your code is not valid Python."
    if own == other:
        return "Both have the same number of lines and loops, and call the same functions."
    lines = f"The course's solution has {_count(other.lines, 'line')} of code, yours {own.lines}"
    loops = f"it has {_count(other.loops, 'loop')}, yours {own.loops}" if own.loops != other.loops else ""
    calls = f"it calls {_listed(other.calls - own.calls)}" if other.calls - own.calls else ""
    own_calls = f"yours calls {_listed(own.calls - other.calls)}" if own.calls - other.calls else ""
    return "; ".join(filter(None, [lines, loops, calls, own_calls])) + "."


@dataclass(frozen=True)
class _Facts:
    lines: int
    loops: int
    calls: frozenset[str]

    @classmethod
    def of(cls, code: str) -> _Facts:
        tree = ast.parse(code)
        nodes = list(ast.walk(tree))
        loops = sum(isinstance(node, (ast.For, ast.While, ast.comprehension)) for node in nodes)
        calls = frozenset(ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))
        lines = {node.lineno for node in nodes if isinstance(node, (ast.stmt, ast.expr))}
        return cls(len(lines), loops, calls)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(calls: frozenset[str]) -> str:
    shown = [f"`{name}`" for name in sorted(calls, key=lambda name: (len(name), name))[:MAX_NAMES]]
    return ", ".join(shown) + (" and more" if len(calls) > MAX_NAMES else "")
