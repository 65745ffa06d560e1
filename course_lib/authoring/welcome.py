"""The welcome page of a workspace: the next notebook, ways through the course, labs with progress, guesses.

If the learner has chosen a way, the page starts with it, session by session, and ends with the other ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from course_lib.authoring import ways
from course_lib.authoring.master_format import opening
from course_lib.system.files import write
from course_lib.system.paths import ROOT

NAME = "Welcome.md"
PROGRESS = ".course/progress"  # a folder in the workspace, with a file for each notebook that was started
WAY = ".course/way"  # a file in the workspace with the id of the learner's way
RIGHT = "right"  # the start of the text of `predictions.off_by` for a right guess
_TEMPLATE = Path(__file__).with_name("welcome.md")
_CHECK = re.compile(r"^check\w*\(.*\)$", re.MULTILINE)
_BAR = 6  # characters
NO_BREAK = "\u00a0"  # no-break space
_IN_A_TERMINAL = "in a terminal (*File*, *New*, *Terminal*)"


@dataclass(frozen=True)
class Progress:
    """A learner's progress in one notebook.

    Attributes:
        passed: lines of the passed checks.
        guesses: question → how far off the guess was.
        time: last change, in seconds since the epoch; 0 if the notebook was not started.
    """

    passed: frozenset[str] = frozenset()
    guesses: Mapping[str, str] = field(default_factory=dict)
    time: float = 0.0


def read_progress(workspace: Path) -> dict[str, Progress]:
    """The progress in each notebook that was started, by the notebook's code ("3d")."""
    done = {}
    for path in (workspace / PROGRESS).glob("*.json"):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            done[path.stem] = Progress(frozenset(content["passed"]), dict(content["guesses"]), path.stat().st_mtime)
        except (OSError, ValueError, KeyError, TypeError):  # ignore an invalid file
            continue
    return done


def read_way(workspace: Path) -> str:
    """The id of the learner's way; "" if there is none."""
    path = workspace / WAY
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""


def workspace_of(path: Path) -> Path | None:
    """The workspace that contains, or is, this file or folder; None if there is none."""
    return next((folder for folder in (path, *path.parents) if (folder / WAY).parent.is_dir()), None)


def write_page(workspace: Path, files: Mapping[str, bytes], root: Path = ROOT) -> None:
    """Update the welcome page of a workspace; `files` as in `page`. Raises OSError if it can't be written."""
    text = page(files, read_progress(workspace), root, read_way(workspace)).encode()
    path = workspace / NAME
    if not path.is_file() or path.read_bytes() != text:
        write(path, text)


def checks(code: str) -> list[str]:
    """The lines of a cell that check an exercise: "check(lars)"."""
    return _CHECK.findall(code)


def page(files: Mapping[str, bytes], done: Mapping[str, Progress], root: Path = ROOT, way: str = "") -> str:
    """The welcome page as Markdown.

    Args:
        files: the files for learners (see `released.course_files`).
        done: from `read_progress`.
        way: id of the learner's way; "" or an unknown id for none.
    """
    notebooks = sorted((path for path in files if path.endswith(".ipynb")), key=lambda path: (path[:3] != "lab", path))
    rows = [_Row.read(path, files, done) for path in notebooks]
    known = ways.read(files, root)
    chosen = known.get(way)
    sessions = [
        [_Row.read(part.notebook.path, files, done, part) for part in session.parts]
        for session in (chosen.sessions if chosen else ())
    ]
    parts = {
        "ways": "\n".join(_chosen(chosen, sessions, known) if chosen else _all_ways(known)),
        "syllabus": "\n".join(_syllabus(rows)).strip(),
        "go_on": _continue_line([row for session in sessions for row in session] or rows),
        "guesses": _guesses(rows),
        "other_ways": _other_ways(chosen, known),
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(parts)


@dataclass(frozen=True)
class _Row:
    """A notebook on the page; `extent`: as in `ways.Part`."""

    path: str
    title: str
    time: str
    needs: str
    extent: str
    minutes: int
    passed: int
    checks: int
    progress: Progress

    @classmethod
    def read(
        cls, path: str, files: Mapping[str, bytes], done: Mapping[str, Progress], part: ways.Part | None = None
    ) -> _Row:
        """The row of the notebook at `path`, or of a part of it."""
        cells = json.loads(files[path])["cells"]
        title, time, needs = opening("".join(cells[0]["source"])) or (Path(path).stem, "", "")
        extent, minutes = (part.extent, part.minutes) if part else ("", ways.minutes(time))
        lines = _check_lines(cells, part.only if part else ())
        progress = done.get(ways.code_of(path), Progress())
        return cls(path, title, time, needs, extent, minutes, len(lines & progress.passed), len(lines), progress)

    @property
    def link(self) -> str:
        return f"[{self.title}]({self.path})"

    @property
    def solved(self) -> str:
        """A bar and the number of solved exercises; "" for a notebook without exercises."""
        if not self.checks:
            return ""
        full = _BAR * self.passed // self.checks
        return f"{'▰' * full}{'▱' * (_BAR - full)} {self.passed} of {self.checks}".replace(" ", NO_BREAK)

    @property
    def minutes_left(self) -> int:
        """Remaining minutes, rounded to five; all exercises are assumed to take the same time."""
        share = 1 - self.passed / self.checks if self.checks else 1
        return 5 * round(share * self.minutes / 5)


def _check_lines(cells: list[dict], only: Collection[str]) -> set[str]:
    """The lines of a notebook that check an exercise, only those of the sections `only` if it is not empty."""
    section, lines = "", set()
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            section = [section, *ways.section_headings(source)][-1]
        elif not only or section in only:
            lines |= set(checks(source))
    return lines


def _continue_line(rows: list[_Row]) -> str:
    """A line on the next notebook: the last one with progress, or the one after it if it is solved; "" if none."""
    begun = [row for row in rows if row.progress.time]
    if not begun:
        return ""
    last = rows.index(max(begun, key=lambda row: row.progress.time))
    row = next((row for row in rows[last:] if row.passed < row.checks), None)
    if row is None:
        return ""
    left = f"{row.passed} of {row.checks} solved, about {row.minutes_left} minutes left"
    return f"**Continue here:** {row.link}, {left}.\n"


def _all_ways(known: Mapping[str, ways.Way]) -> Iterator[str]:
    """The lines on all ways; none if the course has no ways."""
    if known:
        yield from (
            "You don't need all the notebooks. These are ways through the course:",
            "",
            ways.table(known.values()),
            "",
        )
        yield (
            f"To choose one, run `course plan day --choose` {_IN_A_TERMINAL}, with `day` or another name from the "
            "table. This page then starts with your way and your progress on it."
        )


def _chosen(way: ways.Way, sessions: list[list[_Row]], known: Iterable[str]) -> Iterator[str]:
    """The lines on the learner's way, with a table for each session; `known`: ids of all ways."""
    yield f"## Your way: {way.title} ({way.hours}{NO_BREAK}h without breaks)"
    yield from ("", f"At the end, you can {way.outcome}.")
    for heading, rows in zip(way.headings, sessions):
        yield from ("", f"### {heading}", "", "| notebook | minutes | solved |", "|---|---|---|")
        yield from (f"| {row.link}{row.extent} | {row.minutes} | {row.solved} |" for row in rows)
    others = ", ".join(identifier for identifier in known if identifier != way.id)
    yield from ("", f"To change it, run `course plan WAY --choose` {_IN_A_TERMINAL}; WAY is one of {others}.")


def _other_ways(chosen: ways.Way | None, known: Mapping[str, ways.Way]) -> str:
    """A table of the ways besides the chosen one; "" if none is chosen."""
    if not chosen:
        return ""
    others = ways.table(way for way in known.values() if way != chosen)
    return f"## Other ways through the course\n\n{others}\n"


def _syllabus(rows: list[_Row]) -> Iterator[str]:
    heading = ""
    for row in rows:
        folder = row.path.split("/")[0]
        if folder != heading:
            heading = folder
            yield from ("", f"## {_title(folder)}", "", "| notebook | time | needs | solved |", "|---|---|---|---|")
        yield f"| {row.link} | {_first_sentence(row.time)} | {row.needs} | {row.solved} |"


def _guesses(rows: list[_Row]) -> str:
    """A table of the guesses by notebook; "" if there are none."""
    guessed = [row for row in rows if row.progress.guesses]
    if not guessed:
        return ""
    lines = ["## Your guesses", "", "| notebook | right | off by |", "|---|---|---|"]
    for row in guessed:
        wrong = [f"{question}: {off}" for question, off in row.progress.guesses.items() if not off.startswith(RIGHT)]
        right = f"{len(row.progress.guesses) - len(wrong)} of {len(row.progress.guesses)}"
        lines.append(f"| {row.link} | {right} | {'<br>'.join(wrong).replace('|', '∣')} |")
    return "\n".join([*lines, ""])


def _title(folder: str) -> str:
    """lab2_horovod → Lab 2: Horovod"""
    lab_name, _, topic = folder.partition("_")
    if not lab_name.startswith("lab"):
        return folder.replace("_", " ").capitalize()
    return f"Lab {lab_name[3:]}: {topic.replace('_', ' ').capitalize()}"


def _first_sentence(text: str) -> str:
    return re.split(r"\.(?=\s|$)", text)[0]
