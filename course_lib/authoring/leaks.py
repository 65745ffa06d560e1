"""What learners must not see, searched for in what they get."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator

from course_lib.authoring.master_format import MARKERS, Cell, Master


def leaks(
    master: Master, texts: Iterable[str], kinds: Iterable[str] = ("exercise", "hidden", "instructor")
) -> list[str]:
    """The lines that learners must not see, and markers, that stand in one of `texts`.

    Such lines are the solutions of exercises, hidden tests and instructor cells, or those of `kinds` alone.
    JSON is looked at decoded, HTML without its tags. Lines that say nothing (brackets, a lone `return`) or
    that the learner sees anyway do not count.
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
    """(is it kept from the learner, line) for every line of a cell but the markers."""
    inside = cell.kind == "instructor"
    for line in cell.source.split("\n"):
        if re.match(r"\s*### (BEGIN|END) ", line) and cell.kind in ("exercise", "hidden"):
            inside = "BEGIN" in line
        else:
            yield inside, line


def visible(cell: Cell) -> str:
    """What learners see of a cell."""
    return "\n".join(line for hidden, line in _regions(cell) if not hidden)


def _secret(master: Master, kinds: Iterable[str]) -> Iterator[str]:
    cells = [cell for cell in master.cells if cell.kind in kinds]
    return (_squeeze(line) for cell in cells for hidden, line in _regions(cell) if hidden)


def _squeeze(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def _tells(line: str) -> bool:
    return not re.fullmatch(r"\W*(pass|return|else|try|finally|break|continue|None|True|False)?[\W\d]*", line)


def _occurs(line: str, text: str) -> bool:
    """As a whole line; a longer one also within a line. Both are squeezed."""
    return line in text if len(line) > 15 else f"\n{line}\n" in f"\n{text}\n"


def _strings(text: str) -> Iterator[str]:
    """The text, and what a reader of it sees: the strings within JSON, HTML without tags and entities."""
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
            # A notebook may hold a cell's source, and always holds mimebundles, as a list of lines.
            stack += ["".join(value)] if all(isinstance(item, str) for item in value) else value
