"""Read and check masters.

A master is a Python file in jupytext's percent format with prose, code, solutions and hidden tests. The `# %%` line
gives the kind of a cell:

    # %% [markdown]                prose
    # %% [markdown] tags=["further"]
                                   the heading `## …` of a section that shorter ways leave out, alone in its cell;
                                   the section is folded in the learner's notebook
    # %%                           code; locked in the learner's notebook
    # %% exercise="name"           the learner writes the part between
                                   `### BEGIN SOLUTION` and `### END SOLUTION`
    # %% hidden="name" points=4    a hidden test, between `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS`;
                                   its last expression is the score, a float in [0, points]
    # %% instructor=true           not in the learner's notebook
    # %% editable=true             the learner may change it

The first cell is the opening: `# Title` and the lines `**Time:** …` and `**Needs:** …`.

The notebook is in the folder of its master. If only a script of the same name is graded, the script has this place, and
the master is in a subfolder `master/`.

nbgrader ignores a misspelt marker, and would leave the solution in the learner's notebook. Therefore every deviation
from this format is an error, which names file, line and fix.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import itertools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MARKERS = ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")

FURTHER = "further"  # the tag of a heading
KINDS = ("exercise", "hidden", "instructor", "editable")
_HEADER = re.compile(r"# %%( |$)")
_ALMOST_HEADER = re.compile(r"\s*#\s*%%(\s|\[|\w*=|$)")
_OPENING = re.compile(
    r"^[-*\s]*\*\*(Time|Needs):\*\*\s+(.+?)(?=\n[-*\s]*\n|\n[-*] |\n\*\*|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Cell:
    """One cell of a master.

    Attributes:
        kind: prose, code, exercise, hidden, instructor or editable.
        id: id of the cell, also for nbgrader. It depends only on the cell's content or name, so that other cells of a
            committed notebook do not change.
        name: name of an exercise or a hidden test, else "".
        line: line number of the cell's `# %%`.
        further: whether it is the heading of a folded section.
    """

    kind: str
    id: str
    name: str
    points: float
    markdown: bool
    source: str
    line: int
    further: bool


@dataclass(frozen=True)
class Master:
    """A valid master. `title`, `time` and `needs` are from its opening cell."""

    path: Path
    cells: tuple[Cell, ...]
    title: str
    time: str
    needs: str

    @property
    def folder(self) -> Path:
        """The lab's folder."""
        return notebook_of(self.path).parent

    @property
    def assignment(self) -> str:
        """The name of the lab's folder, which is nbgrader's assignment."""
        return self.folder.name

    @property
    def notebook(self) -> Path:
        """The path of the learner's notebook."""
        return notebook_of(self.path)

    @property
    def script(self) -> str:
        """The file name of the graded script, if a script is graded instead of the notebook; else ""."""
        return self.path.name if self.path.parent != self.folder else ""


def notebook_of(master: Path) -> Path:
    """The path of a master's notebook: in the master's folder, or in the parent of a folder `master/`."""
    folder = master.parent.parent if master.parent.name == "master" else master.parent
    return folder / f"{master.stem}.ipynb"


def find(root: Path = ROOT) -> list[Path]:
    """Every master under labs/ and assessment/: a .py file with `# %%` cells."""
    scripts = sorted(path for part in ("labs", "assessment") for path in (root / part).rglob("*.py"))
    return [path for path in scripts if re.search(r"^# %%", path.read_text(encoding="utf-8"), re.MULTILINE)]


class _Wrong(Exception):
    """An error in a master, with its fix: _Wrong(line, text)."""


def read(path: Path) -> Master:
    """Read and check a master. Raises CourseError with file, line and fix of the first error."""
    try:
        return _read(path)
    except _Wrong as wrong:
        line, text = wrong.args
        raise CourseError(f"{path}, line {line}: {text}.") from None


def _read(path: Path) -> Master:
    import jupytext

    lines = path.read_text(encoding="utf-8").splitlines()
    starts = _cell_starts(lines)
    notebook = jupytext.reads("\n".join(lines), fmt="py:percent")
    if len(notebook.cells) != len(starts):
        raise _Wrong(1, "there is text outside the cells, or a string with a `# %%` line; put the text into a cell")
    cells: list[Cell] = []
    for cell, start, end in zip(notebook.cells, starts, [*starts[1:], len(lines)]):
        metadata = {key: value for key, value in cell.metadata.items() if key != "lines_to_next_cell"}
        markdown = cell.cell_type == "markdown"
        further = _opens_further(start + 1, metadata.pop("tags", None), cell.source if markdown else "")
        kind, name, points = _role(start + 1, metadata)
        if cell.cell_type == "raw" or (markdown and kind in ("exercise", "hidden")):
            raise _Wrong(start + 1, f"{kind} cells are code cells; remove `[{cell.cell_type}]`")
        _check_markers(kind, markdown, list(enumerate(lines[start + 1 : end], start + 2)))
        source = cell.source
        if kind == "hidden":
            _check_score(start + 1, source)
            if source.startswith("### BEGIN"):  # else the learner's cell would be empty
                source = f"# Hidden test: {points:g} point{'' if points == 1 else 's'}\n{source}"
        kind = "prose" if kind == "code" and markdown else kind
        identifier = _identifier(start + 1, kind, name, source, cells)
        cells.append(Cell(kind, identifier, name, points, markdown, source, start + 1, further))
    _check_folds(cells)
    master = Master(path, tuple(cells), *_opening_of(cells))
    if master.script:
        _check_marks(master)
    return master


def _cell_starts(lines: list[str]) -> list[int]:
    starts = []
    for number, line in enumerate(lines):
        if _HEADER.match(line):
            starts.append(number)
        elif _ALMOST_HEADER.match(line):
            raise _Wrong(number + 1, "a cell starts with `# %%` at the beginning of a line, followed by a space")
    return starts


def _role(line: int, metadata: dict[str, Any]) -> tuple[str, str, float]:
    unknown = [key for key in metadata if key not in (*KINDS, "points")]
    if unknown:
        word = metadata[unknown[0]] if unknown[0] in ("incorrectly_encoded_metadata", "title") else unknown[0]
        known = 'exercise="…", hidden="…" points=N, instructor=true, editable=true or tags=["further"]'
        raise _Wrong(line, f"`{word}` is not known; use {known}")
    kinds = [key for key in metadata if key in KINDS]
    if len(kinds) > 1:
        raise _Wrong(line, f"a cell has only one kind; keep one of {' and '.join(kinds)}")
    kind = kinds[0] if kinds else "code"
    value = metadata.get(kind, "")
    if kind in ("exercise", "hidden") and not (isinstance(value, str) and re.fullmatch(r"[a-z0-9_-]+", value)):
        raise _Wrong(line, f'{kind}={value!r} is not a name; write {kind}="small_letters_and_digits"')
    if kind in ("instructor", "editable") and value is not True:
        raise _Wrong(line, f"{kind} can only be true; write {kind}=true or remove it")
    points = metadata.get("points")
    if kind != "hidden" and points is not None:
        raise _Wrong(line, "points belong to a hidden test; remove points=… here")
    if kind == "hidden" and not (type(points) in (int, float) and points > 0):
        raise _Wrong(line, f"the hidden test {value} has no points; add points=N with N above 0")
    return kind, value if isinstance(value, str) else "", float(points or 0)


def _opens_further(line: int, tags: Any, text: str) -> bool:
    """Whether a cell with these tags and this text is the heading of a folded section."""
    if tags is None:
        return False
    if tags != [FURTHER]:
        raise _Wrong(line, f'the only tag is `{FURTHER}`; write tags=["{FURTHER}"]')
    if not re.fullmatch(r"## .+", text):
        raise _Wrong(line, f"`{FURTHER}` is for the heading of a section, alone in its cell: `# ## Title`")
    return True


def _check_folds(cells: list[Cell]) -> None:
    """Check that a folded section ends at the start of a cell: text before the next heading would not be folded."""
    folded = False
    for cell in cells:
        heading = re.search(r"^## ", cell.source, re.MULTILINE) if cell.markdown else None
        if heading and heading.start() and folded:
            raise _Wrong(cell.line, "a section that is folded ends here; begin a cell with the next heading")
        folded = cell.further if heading else folded


def _check_markers(kind: str, markdown: bool, lines: list[tuple[int, str]]) -> None:
    """Check that markers are exact, paired and in the right kind of cell. A line that resembles one is an error."""
    wanted = {"exercise": "SOLUTION", "hidden": "HIDDEN TESTS"}.get(kind)
    opened = regions = 0
    for number, line in lines:
        text = re.sub(r"^\s*#\s?", "", line, count=1) if markdown else line
        marker = re.fullmatch(r"\s*### (BEGIN|END) (SOLUTION|HIDDEN TESTS)\s*", text)
        if not marker:
            if _resembles_marker(text, markdown):
                raise _Wrong(
                    number,
                    f"`{text.strip()}` is not a marker; write one of "
                    + ", ".join(f"`### {marker}`" for marker in MARKERS),
                )
            if kind == "hidden" and not opened and text.strip() and not text.lstrip().startswith("#"):
                raise _Wrong(number, "learners would see this line; move it between the HIDDEN TESTS markers")
            continue
        edge, what = marker.groups()
        if what != wanted:
            raise _Wrong(
                number,
                f"`{text.strip()}` does not belong in a cell of kind {kind}; "
                "fix the cell's `# %%` line or remove the marker",
            )
        if (edge == "BEGIN") == bool(opened):
            fix = f"line {opened} is still open" if opened else "nothing is open"
            raise _Wrong(number, f"`{text.strip()}`: {fix}; write BEGIN and END alternately")
        opened = number if edge == "BEGIN" else 0
        regions += edge == "BEGIN"
    if opened:
        raise _Wrong(opened, f"this region is never closed; add `### END {wanted}`")
    if wanted and not regions:
        raise _Wrong(lines[0][0] - 1 if lines else 1, f"the cell has no `### BEGIN {wanted}` region; add it")


def _resembles_marker(line: str, markdown: bool) -> bool:
    comment = re.match(r"\s*(#+)\s*(.*?)\s*$", line)
    if not comment:
        return False
    hashes, text = comment.groups()
    if len(hashes) >= 3 and not markdown:
        return True
    return any(difflib.SequenceMatcher(None, text.upper(), marker).ratio() > 0.75 for marker in MARKERS)


def _check_score(line: int, source: str) -> None:
    """Check that a hidden test ends with an expression; without one, nbgrader gives full marks."""
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise _Wrong(line + (error.lineno or 0), f"this is not valid Python ({error.msg}); fix it") from None
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr) or ";" in source.split("\n")[last.end_lineno - 1][last.end_col_offset :]:
        raise _Wrong(line, "the hidden test must end with its score; make its last line an expression")


def _check_marks(master: Master) -> None:
    """If a script is graded, check that there are no exercises, and that the points are those of contract.toml."""
    for cell in master.cells:
        if cell.kind == "exercise":
            fix = "remove exercise=…"
            raise _Wrong(cell.line, f"this notebook hands in {master.script}, so it has no exercise cells; {fix}")
    path = master.folder / "contract.toml"
    if not path.exists():
        return
    try:
        asked = tomllib.loads(path.read_text(encoding="utf-8"))["points"]
    except (ValueError, KeyError) as error:
        raise CourseError(f"{path} cannot be read ({error}): correct it.", code=2) from None
    tests = {cell.name: cell for cell in master.cells if cell.kind == "hidden"}
    for name, points in asked.items():
        if name not in tests:
            raise _Wrong(1, f'{path} gives points to {name}; add a cell hidden="{name}" points={points:g}')
    for name, cell in tests.items():
        if cell.points != asked.get(name):
            fix = f"write points={asked[name]:g}" if name in asked else "remove the cell"
            raise _Wrong(cell.line, f"{path} gives different points to {name}; {fix}")


def _identifier(line: int, kind: str, name: str, source: str, before: list[Cell]) -> str:
    taken = {cell.id: cell for cell in before}
    if name:
        identifier = f"{name}-test" if kind == "hidden" else name
        if identifier in taken:
            raise _Wrong(line, f"line {taken[identifier].line} already uses the name {name}; choose another")
        return identifier
    digest = hashlib.sha256(f"{kind}\n{source}".encode()).hexdigest()[:12]
    return next(new for count in itertools.count(1) if (new := f"{digest}-{count}") not in taken)


def opening(text: str) -> tuple[str, str, str] | None:
    """Title, time and needs from the text of an opening cell; None if one of them is missing."""
    title = re.match(r"# (.+)", text)
    values = {word: " ".join(rest.split()) for word, rest in _OPENING.findall(text)}
    return (title[1].strip(), values["Time"], values["Needs"]) if title and len(values) == 2 else None


def _opening_of(cells: list[Cell]) -> tuple[str, str, str]:
    parts = opening(cells[0].source) if cells and cells[0].kind == "prose" else None
    if not parts:
        lines = "`# Title`, and the lines `**Time:** …` and `**Needs:** …`"
        raise _Wrong(cells[0].line if cells else 1, f"the first cell must have {lines}; add them")
    return parts
