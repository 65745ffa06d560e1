"""Search the learners' files for solutions and hidden tests."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator

from course_lib.authoring.master_format import MARKERS, Cell, Master


def leaks(
    master: Master, texts: Iterable[str], kinds: Iterable[str] = ("exercise", "hidden", "instructor")
) -> list[str]:
    """The secret lines and markers that occur in one of `texts`.

    Secret lines are those of solutions, hidden tests and instructor cells. Trivial lines (brackets, a single `return`)
    and lines that learners see anyway are ignored. JSON is searched after decoding, HTML without its tags.

    Args:
        kinds: kinds of cells whose lines are secret.
    """
    shown = _squeeze("\n".join(map(visible, master.cells)))
    secret = {line for line in _secret(master, kinds) if _tells(line) and not _occurs(line, shown)}
    leaked: dict[str, None] = {}
    for text in texts:
        seen = "\n".join(_squeeze(part) for part in _strings(text))
        leaked.update(dict.fromkeys(line for line in sorted(secret) if _occurs(line, seen)))
        leaked.update(dict.fromkeys(marker for marker in MARKERS if marker in seen))
    return list(leaked)


def _regions(cell: Cell) -> Iterator[tuple[bool, str]]:
    """(whether the line is hidden from learners, line) for every line of a cell except the markers."""
    inside = cell.kind == "instructor"
    for line in cell.source.split("\n"):
        if re.match(r"\s*### (BEGIN|END) ", line) and cell.kind in ("exercise", "hidden"):
            inside = "BEGIN" in line
        else:
            yield inside, line


def visible(cell: Cell) -> str:
    """The lines of a cell that learners see."""
    return "\n".join(line for hidden, line in _regions(cell) if not hidden)


def _secret(master: Master, kinds: Iterable[str]) -> Iterator[str]:
    cells = [cell for cell in master.cells if cell.kind in kinds]
    return (_squeeze(line) for cell in cells for hidden, line in _regions(cell) if hidden)


def _squeeze(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def _tells(line: str) -> bool:
    return not re.fullmatch(r"\W*(pass|return|else|try|finally|break|continue|None|True|False)?[\W\d]*", line)


def _occurs(line: str, text: str) -> bool:
    """Whether a line occurs in a text: as a whole line, or, if it is long, also within a line. Both are squeezed."""
    return line in text if len(line) > 15 else f"\n{line}\n" in f"\n{text}\n"


def _strings(text: str) -> Iterator[str]:
    """The text, the strings in it if it is JSON, and its text without tags and entities if it is HTML."""
    yield text
    if re.search(r"</\w+>|&\w+;", text):
        yield html.unescape(re.sub(r"<[^>]*>", "", text))
    try:
        value = json.loads(text)
    except ValueError:
        return
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list):
            # In a notebook, a mimebundle is a list of lines, and a cell's source can be one.
            stack += ["".join(value)] if all(isinstance(item, str) for item in value) else value
