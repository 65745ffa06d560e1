"""Ways through the course for an afternoon, a day, two days, a term or a subject, from `labs/paths.toml`.

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
        """Total hours of all parts without breaks, rounded to quarters, as a text: "7¾"."""
        return _hours(sum(part.minutes for part in self.parts))


def read(files: Mapping[str, bytes], root: Path = ROOT) -> dict[str, Way]:
    """All ways by id; empty if the course has no `labs/paths.toml`.

    Args:
        files: the files for learners (see `released.course_files`).

    Raises CourseError for an invalid way.
    """
    path = root / PATHS
    if not path.is_file():
        return {}
    notebooks = _notebooks(files)
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


def plan(name: str | None, files: Mapping[str, bytes], root: Path = ROOT) -> Iterator[str]:
    """The lines that `course plan` prints.

    Args:
        name: a way, for its timetable; a lab ("7") or a notebook ("7b"), for what it needs; None for all ways.
        files: as in `read`.

    Raises CourseError for another name.
    """
    if name is None:
        return _listing(read(files, root).values())
    notebooks = list(_notebooks(files).values())
    if lab := [notebook for notebook in notebooks if notebook.path.startswith(f"lab{name}_")]:
        return _preparation(f"Lab {name}", lab, notebooks)
    if single := [notebook for notebook in notebooks if notebook.code == name]:
        return _preparation(f"Notebook {name}", single, notebooks)
    return timetable(named(name, files, root))


def _listing(ways: Iterable[Way]) -> Iterator[str]:
    """The lines on all ways, and how to see and choose one."""
    yield "Ways through the course, with hours without breaks:"
    yield ""
    yield from (f"  {way.id:9}  {way.hours:>3} h  {way.audience}" for way in ways)
    yield ""
    yield "To see one, run `course plan day`. To choose it, run `course plan day --choose` in a terminal of the lab."
    yield "What a lab or a notebook needs: `course plan 7`, `course plan 7b`."


def _preparation(name: str, own: Sequence[Notebook], notebooks: Sequence[Notebook]) -> Iterator[str]:
    """The lines on a lab or a notebook, and on the notebooks that it needs, directly and through others.

    Args:
        name: of the lab or the notebook: "Lab 7".
        own: its notebooks.
        notebooks: all of them; each comes after those that it needs.
    """
    codes = {code for notebook in own for code in notebook.needs}
    for notebook in reversed(notebooks):
        if notebook.code in codes:
            codes.update(notebook.needs)
    before = [notebook for notebook in notebooks if notebook.code in codes and notebook not in own]
    for heading, group in ((f"Before {name.lower()}", before), (name, own)):
        if group:
            yield heading
            yield from (f"  {notebook.minutes:3} min  {notebook.title}" for notebook in group)
            yield ""
    own_hours, hours_before = (_in_hours(sum(notebook.minutes for notebook in group)) for group in (own, before))
    needs = f"what it needs before, {hours_before}" if before else "it needs no other notebook"
    yield f"{name} takes {own_hours}; {needs}. Breaks are not included."


def _hours(minutes: int) -> str:
    """Hours, rounded to quarters: "7¾"."""
    whole, quarters = divmod(round(minutes / 15), 4)
    return f"{whole or ''}{('', '¼', '½', '¾')[quarters]}"


def _in_hours(minutes: int) -> str:
    """As `_hours`, with the unit: "7¾ hours", "1 hour"."""
    return f"{_hours(minutes)} {'hour' if round(minutes / 15) <= 4 else 'hours'}"


def table(ways: Iterable[Way]) -> str:
    """The ways as a Markdown table, with a link to each notebook; "" without any."""
    rows = [
        f"| **{way.title}** (`{way.id}`) | {way.hours} | {way.audience} | {' '.join(map(_link, way.parts))} |"
        for way in ways
    ]
    heading = "| way | hours, without breaks | for | notebooks (*in part: `course plan` names the sections*) |"
    return "\n".join([heading, "|---|---|---|---|", *rows]) if rows else ""


def _link(part: Part) -> str:
    link = f"[{part.notebook.code}]({part.notebook.path})"
    return f"*{link}*" if part.only else link


def timetable(way: Way) -> Iterator[str]:
    """The lines of a way's timetable: days with times and breaks, or weeks with minutes."""
    yield f"{way.title}, {way.hours} hours without breaks: {way.audience}."
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


def _notebooks(files: Mapping[str, bytes]) -> dict[str, Notebook]:
    """All notebooks by code, in the order of the course."""
    notebooks = {}
    for path, content in files.items():
        if path.endswith(".ipynb"):
            cells = [
                "".join(cell["source"]) for cell in json.loads(content)["cells"] if cell["cell_type"] == "markdown"
            ]
            title, time, needs = opening(cells[0]) or ("", "", "")
            sections = [heading for cell in cells for heading in section_headings(cell)]
            code = code_of(path)
            notebooks[code] = Notebook(code, path, title or code, minutes(time), tuple(_needs(needs)), tuple(sections))
    return dict(sorted(notebooks.items()))


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
