"""Ways through the course for a day, two days, a term or a subject, from `labs/paths.toml`.

A way is valid if each notebook comes after the notebooks that it needs, and if the sections that it names exist.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.authoring.master_format import opening
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PATHS = Path("labs/paths.toml")
START_MINUTE = 9 * 60  # of a day
BREAK_MINUTES, LUNCH_MINUTES = 10, 60
LUNCH_FROM = 12 * 60
LONGEST_SITTING = 100  # minutes without a break, unless one notebook takes longer
_CODE = r"\b\d[a-z]\b"  # short name of a notebook
# Marks a clause in `**Needs:**` as optional.
_OPTIONAL = re.compile(r"\bhelps?\b|another view|^\s*for the ")


@dataclass(frozen=True)
class Notebook:
    """A notebook of the course.

    Attributes:
        code: short name, such as "3d".
        path: in the workspace.
        needs: codes of the notebooks that it needs.
        sections: headings of its sections.
    """

    code: str
    path: str
    title: str
    minutes: int
    needs: tuple[str, ...]
    sections: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A notebook on a way; `only`: the sections to do, empty for the whole notebook."""

    notebook: Notebook
    minutes: int
    only: tuple[str, ...] = ()

    @property
    def extent(self) -> str:
        """The sections to do, as a text: ", only: The model; Mini-batches"; "" for the whole notebook."""
        return f", only: {'; '.join(self.only)}" if self.only else ""


@dataclass(frozen=True)
class Session:
    """A session of a way: a day or a week."""

    title: str
    parts: tuple[Part, ...]

    @property
    def minutes(self) -> int:
        """Total minutes of all parts."""
        return sum(part.minutes for part in self.parts)


@dataclass(frozen=True)
class Way:
    """A way through the course; `outcome`: what learners can do at its end."""

    id: str
    title: str
    audience: str
    outcome: str
    unit: str
    sessions: tuple[Session, ...]

    @property
    def headings(self) -> list[str]:
        """Headings of the sessions: "First day", "Week 3: Ranks"."""
        if self.unit == "day":
            return [session.title for session in self.sessions]
        return [
            f"{self.unit.capitalize()} {number}: {session.title}" for number, session in enumerate(self.sessions, 1)
        ]

    @property
    def parts(self) -> list[Part]:
        """The parts of all sessions."""
        return [part for session in self.sessions for part in session.parts]

    @property
    def hours(self) -> str:
        """Total hours of all parts, rounded to quarters, as a text: "7¾"."""
        whole, quarters = divmod(round(sum(part.minutes for part in self.parts) / 15), 4)
        return f"{whole}{('', '¼', '½', '¾')[quarters]}"


def read(files: Mapping[str, bytes], root: Path = ROOT) -> dict[str, Way]:
    """All ways by id; empty if the course has no `labs/paths.toml`.

    Args:
        files: the files for learners (see `released.course_files`).

    Raises CourseError for an invalid way.
    """
    path = root / PATHS
    if not path.is_file():
        return {}
    notebooks = {notebook.code: notebook for notebook in _notebooks(files)}
    ways = {}
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["way"]:
        sessions = tuple(
            Session(session["title"], tuple(_part(row["id"], part, notebooks) for part in session["parts"]))
            for session in row["session"]
        )
        way = Way(row["id"], row["title"], row["for"], row["outcome"], row["unit"], sessions)
        _check_needs(way)
        ways[way.id] = way
    return ways


def named(way: str | None, files: Mapping[str, bytes], root: Path = ROOT) -> Way:
    """The way with this id. Raises CourseError, with all ids, for an unknown id."""
    known = read(files, root)
    if way not in known:
        raise CourseError(f"Name a way through the course: {', '.join(known)}.")
    return known[way]


def table(ways: Iterable[Way]) -> str:
    """The ways as a Markdown table, with a link to each notebook; "" without any."""
    rows = [
        f"| **{way.title}** (`{way.id}`) | {way.hours}\u00a0h | {way.audience} | {' '.join(map(_link, way.parts))} |"
        for way in ways
    ]
    heading = "| way | time | for | notebooks (*in part: `course plan` names the sections*) |"
    return "\n".join([heading, "|---|---|---|---|", *rows]) if rows else ""


def _link(part: Part) -> str:
    link = f"[{part.notebook.code}]({part.notebook.path})"
    return f"*{link}*" if part.only else link


def timetable(way: Way) -> Iterator[str]:
    """The lines of a way's timetable: days with times and breaks, or weeks with minutes."""
    yield f"{way.title}, {way.hours} hours: {way.audience}."
    yield f"At the end, learners can {way.outcome}."
    for heading, session in zip(way.headings, way.sessions):
        yield ""
        if way.unit == "day":
            yield heading
            yield from _day(session.parts)
        else:
            yield f"{heading} ({session.minutes} minutes)"
            yield from (f"  {part.minutes:3} min  {_described(part)}" for part in session.parts)


def _day(parts: Sequence[Part]) -> Iterator[str]:
    """The lines of a day: notebooks with breaks between them, and lunch at noon."""
    minute = sat_down = START_MINUTE
    lunch = False
    for part in parts:
        noon = not lunch and minute + part.minutes / 2 > LUNCH_FROM
        if noon or (minute > sat_down and minute + part.minutes - sat_down > LONGEST_SITTING):
            end = minute + (LUNCH_MINUTES if noon else BREAK_MINUTES)
            yield f"  {_clock(minute)}–{_clock(end)}  {'lunch' if noon else 'break'}"
            minute = sat_down = end
            lunch = lunch or noon
        yield f"  {_clock(minute)}–{_clock(minute + part.minutes)}  {_described(part)}"
        minute += part.minutes


def _clock(minute: int) -> str:
    return f"{minute // 60:2}:{minute % 60:02}"


def _described(part: Part) -> str:
    return part.notebook.title + part.extent


def _notebooks(files: Mapping[str, bytes]) -> Iterator[Notebook]:
    for path, content in files.items():
        if path.endswith(".ipynb"):
            cells = [
                "".join(cell["source"]) for cell in json.loads(content)["cells"] if cell["cell_type"] == "markdown"
            ]
            title, time, needs = opening(cells[0]) or ("", "", "")
            sections = [heading for cell in cells for heading in section_headings(cell)]
            code = code_of(path)
            yield Notebook(code, path, title or code, minutes(time), tuple(_needs(needs)), tuple(sections))


def section_headings(text: str) -> list[str]:
    """The headings of sections in a cell of prose."""
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def code_of(path: str) -> str:
    """lab3_large_batch/3d_layer_wise_rates.ipynb → 3d"""
    return Path(path).stem.split("_")[0]


def minutes(time: str) -> int:
    """The minutes of a notebook, from its opening cell: "80 minutes; …", "two hours, …"."""
    if minutes := re.match(r"(\d+) minutes", time):
        return int(minutes[1])
    return 120 if time.startswith("two hours") else 0


def _needs(text: str) -> list[str]:
    """The codes of the notebooks that one needs, from its opening cell: "1a to 1c. 4b helps" needs 1a, 1b and 1c."""
    clauses = [clause for clause in re.split(r"[.;]", text) if not _OPTIONAL.search(clause)]
    codes = set(re.findall(_CODE, " ".join(clauses)))
    for first, last in re.findall(rf"({_CODE}) to ({_CODE})", " ".join(clauses)):
        codes |= {first[0] + chr(letter) for letter in range(ord(first[1]), ord(last[1]) + 1)}
    return sorted(codes)


def _part(way: str, row: str | Mapping[str, Any], notebooks: Mapping[str, Notebook]) -> Part:
    code = row if isinstance(row, str) else row["notebook"]
    if code not in notebooks:
        raise CourseError(f"{PATHS}, way {way}: there is no notebook {code}; there are {', '.join(notebooks)}.")
    notebook = notebooks[code]
    if isinstance(row, str):
        return Part(notebook, notebook.minutes)
    for section in row["only"]:
        if section not in notebook.sections:
            raise CourseError(f"{PATHS}, way {way}: notebook {code} has no section “{section}”.")
    if not 0 < row["minutes"] < notebook.minutes:
        raise CourseError(f"{PATHS}, way {way}: a part of {code} must take less than {notebook.minutes} minutes.")
    return Part(notebook, row["minutes"], tuple(row["only"]))


def _check_needs(way: Way) -> None:
    codes = [part.notebook.code for part in way.parts]
    for before, part in zip(itertools.accumulate(([code] for code in codes), initial=[]), way.parts):
        if missing := [code for code in part.notebook.needs if code not in before]:
            raise CourseError(
                f"{PATHS}, way {way.id}: notebook {part.notebook.code} needs {' and '.join(missing)} before it."
            )
