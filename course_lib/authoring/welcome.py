"""The welcome page of a workspace: where to go on, ways through the course, labs with what is solved, the guesses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from course_lib.authoring import ways
from course_lib.authoring.master_format import opening
from course_lib.system.paths import ROOT

NAME = "Welcome.md"
PROGRESS = ".course/progress"  # a folder in the workspace, with a file for each notebook that was begun
RIGHT = "right"  # how what `predictions.off_by` says of a right guess begins
_TEMPLATE = Path(__file__).with_name("welcome.md")
_CHECK = re.compile(r"^check\w*\(.*\)$", re.MULTILINE)
_BAR = 6  # characters
NO_BREAK = "\u00a0"  # a space at which no line ends


@dataclass(frozen=True)
class Progress:
    """What a learner has done in one notebook: checks passed, question → how far off the guess was, when (seconds)."""

    passed: frozenset[str] = frozenset()
    guesses: Mapping[str, str] = field(default_factory=dict)
    time: float = 0.0


def read_progress(workspace: Path) -> dict[str, Progress]:
    """The progress of each notebook that was begun, by its code ("3d")."""
    done = {}
    for path in (workspace / PROGRESS).glob("*.json"):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            done[path.stem] = Progress(frozenset(content["passed"]), dict(content["guesses"]), path.stat().st_mtime)
        except (OSError, ValueError, KeyError, TypeError):  # not whole: as if it were not there
            continue
    return done


def checks(code: str) -> list[str]:
    """The lines of a cell that check an exercise: "check(lars)"."""
    return _CHECK.findall(code)


def page(files: Mapping[str, bytes], done: Mapping[str, Progress], root: Path = ROOT) -> str:
    """The welcome page as Markdown.

    Args:
        files: what learners get (see `released.course_files`).
        done: as `read_progress` gives it.
    """
    notebooks = sorted((path for path in files if path.endswith(".ipynb")), key=lambda path: (path[:3] != "lab", path))
    rows = [_Row.read(path, files[path], done) for path in notebooks]
    parts = {
        "ways": ways.table(ways.read(files, root).values()),
        "syllabus": "\n".join(_syllabus(rows)).strip(),
        "go_on": _go_on(rows),
        "guesses": _guesses(rows),
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(parts)


@dataclass(frozen=True)
class _Row:
    """A notebook on the page."""

    path: str
    title: str
    time: str
    needs: str
    passed: int
    checks: int
    progress: Progress

    @classmethod
    def read(cls, path: str, content: bytes, done: Mapping[str, Progress]) -> _Row:
        cells = json.loads(content)["cells"]
        title, time, needs = opening("".join(cells[0]["source"])) or (Path(path).stem, "", "")
        lines = {line for cell in cells if cell["cell_type"] == "code" for line in checks("".join(cell["source"]))}
        progress = done.get(ways.code_of(path), Progress())
        return cls(path, title, time, needs, len(lines & progress.passed), len(lines), progress)

    @property
    def link(self) -> str:
        return f"[{self.title}]({self.path})"

    @property
    def solved(self) -> str:
        """A bar and the exercises that are solved; "" for a notebook without."""
        if not self.checks:
            return ""
        full = _BAR * self.passed // self.checks
        return f"{'▰' * full}{'▱' * (_BAR - full)} {self.passed} of {self.checks}".replace(" ", NO_BREAK)

    @property
    def minutes_left(self) -> int:
        """To five minutes, if all exercises take the same time."""
        share = 1 - self.passed / self.checks if self.checks else 1
        return 5 * round(share * ways.minutes(self.time) / 5)


def _go_on(rows: list[_Row]) -> str:
    """The notebook that was worked on last, or the one after it if all of it is solved; "" before the first check."""
    begun = [row for row in rows if row.progress.time]
    if not begun:
        return ""
    last = rows.index(max(begun, key=lambda row: row.progress.time))
    row = next((row for row in rows[last:] if row.passed < row.checks), None)
    if row is None:
        return ""
    return f"**Go on here:** {row.link}, {row.passed} of {row.checks} solved, about {row.minutes_left} minutes left.\n"


def _syllabus(rows: list[_Row]) -> Iterator[str]:
    heading = ""
    for row in rows:
        folder = row.path.split("/")[0]
        if folder != heading:
            heading = folder
            yield from ("", f"## {_title(folder)}", "", "| notebook | time | needs | solved |", "|---|---|---|---|")
        yield f"| {row.link} | {_first_sentence(row.time)} | {_first_sentence(row.needs)} | {row.solved} |"


def _guesses(rows: list[_Row]) -> str:
    """How many guesses were right, by notebook; "" without any."""
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
