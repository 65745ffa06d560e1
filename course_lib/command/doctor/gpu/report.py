"""The results of the tests: lines, and a report with all of them as JSON and as one HTML page."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import html
import json
import platform
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any, Union

from course_lib.command.doctor.gpu.devices import Host
from course_lib.notebook.report import as_html
from course_lib.system.files import require_place, write

PASSED, FAILED, UNTESTED = "passed", "failed", "not tested"
MARKS = {PASSED: "✓", FAILED: "✗", UNTESTED: "–"}
CSS = Path(__file__).with_name("report.css")
PUBLIC_NAMES = ("root", "localhost", "learner")  # the last one is the account in all images of the course
NO_GPU = 2  # exit code: nothing failed, but no GPU was tested

Value = Union[float, int, str, None]


@dataclass(frozen=True)
class Line:
    """The result of one test.

    Attributes:
        title: the test, in a few words.
        state: PASSED, FAILED or UNTESTED.
        text: one sentence: the result, the reason of a failure and its fix, or why it was not tested.
        values: measured values, with the unit in the name: {"images/s": 21300.0}.
    """

    title: str
    state: str
    text: str
    values: Mapping[str, Value] = field(default_factory=dict)


def passed(title: str, text: str, **values: Value) -> Line:
    """A line of a passed test; `values` as in `Line`."""
    return Line(title, PASSED, text, values)


def failed(title: str, text: str, **values: Value) -> Line:
    """A line of a failed test; `text`: one sentence with the reason and the fix."""
    return Line(title, FAILED, text, values)


def untested(title: str, text: str, **values: Value) -> Line:
    """A line of a test that could not run, or not on a GPU; `text`: one sentence with the reason."""
    return Line(title, UNTESTED, text, values)


def tested(title: str, good: bool, if_good: str, if_bad: str, **values: Value) -> Line:
    """A line of a passed test with the sentence `if_good`, or of a failed test with `if_bad`."""
    return Line(title, PASSED, if_good, values) if good else Line(title, FAILED, if_bad, values)


@dataclass(frozen=True)
class Section:
    """The lines of one step; `step`: its name in the JSON, `title`: its title on the page."""

    step: str
    title: str
    lines: tuple[Line, ...]


@dataclass
class Report:
    """All results on a host."""

    host: Host
    sections: list[Section] = field(default_factory=list)
    seconds: float = 0.0
    began: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc))

    def count(self, state: str) -> int:
        """Number of lines with this state."""
        return sum(line.state == state for section in self.sections for line in section.lines)

    @property
    def code(self) -> int:
        """Exit code: 1 if a test failed, else NO_GPU if there was no GPU to test, else 0."""
        return 1 if self.count(FAILED) else 0 if self.host.visible else NO_GPU

    @property
    def headline(self) -> str:
        """The result in a few words."""
        result = {0: "Nothing failed", 1: "Something failed", NO_GPU: "No GPU was tested"}[self.code]
        return f"{result}: {', '.join(f'{self.count(state)} {state}' for state in MARKS)}."

    @property
    def devices(self) -> str:
        """The GPUs by name."""
        names = [gpu.name for gpu in self.host.gpus]
        return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "no GPU"

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object, without the names of the user, the host and the home folder."""
        table = {
            "course": metadata.version("one-model-many-gpus"),
            "date": self.began.isoformat(timespec="minutes"),
            "seconds": round(self.seconds),
            "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
            "host": self.host.as_json(),
            "failed": self.count(FAILED),
            "passed": self.count(PASSED),
            "not_tested": self.count(UNTESTED),
            "code": self.code,
            "lines": [{"step": section.step, **asdict(line)} for section in self.sections for line in section.lines],
        }
        return _private(table)


def _private(value: Any) -> Any:
    """Apply `private` to each string in a JSON value, except keys."""
    if isinstance(value, dict):
        return {key: _private(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_private(one) for one in value]
    return private(value) if isinstance(value, str) else value


def private(text: str) -> str:
    """Remove the home folder, the account and the host's name from a text."""
    names = {str(Path.home()): "~", socket.gethostname(): "HOST"}
    with contextlib.suppress(OSError, KeyError):  # an account without a name
        names[getpass.getuser()] = "USER"
    for name, replacement in names.items():
        if len(name) > 2 and name not in PUBLIC_NAMES:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", replacement, text)
    return text


def paths(file: Path) -> tuple[Path, Path]:
    """The paths of a report's JSON and page: the name of `file` with .json and .html."""
    stem = file.with_suffix("") if file.suffix in (".json", ".html", ".htm") else file
    return stem.parent / f"{stem.name}.json", stem.parent / f"{stem.name}.html"


def require_places(file: Path) -> None:
    """Raise CourseError if a report can't be written; call this before the tests, which take a quarter of an hour."""
    for path in paths(file):
        require_place(path)


def save(report: Report, file: Path) -> tuple[Path, Path]:
    """Write the report's JSON and its page; return their paths."""
    table = report.as_json()
    json_path, page_path = paths(file)
    write(json_path, json.dumps(table, indent=1, ensure_ascii=False).encode())
    write(page_path, page(report, table).encode())
    return json_path, page_path


def page(report: Report, table: Mapping[str, Any]) -> str:
    """The report as a self-contained HTML page, which includes the JSON."""
    titles = {section.step: section.title for section in report.sections}
    sections = "".join(
        f"<section><h2>{html.escape(titles[step])}</h2><ul>{''.join(map(_row, lines))}</ul></section>"
        for step, lines in groupby(table["lines"], key=lambda line: line["step"])
    )
    facts = {"GPUs": report.devices, "Driver": report.host.driver or "none", "System": table["system"]}
    facts |= {"Date": table["date"], "Course": table["course"], "Took": f"{report.seconds:.0f} s"}
    terms = "".join(f"<dt>{name}</dt><dd>{html.escape(private(text))}</dd>" for name, text in facts.items())
    state = {0: "passed", 1: "failed"}.get(report.code, "untested")
    title = html.escape(f"One Model, Many GPUs on {report.devices if report.host.gpus else 'a host without a GPU'}")
    embedded = json.dumps(table, ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>'
        f"<style>{CSS.read_text(encoding='utf-8')}</style></head><body>"
        f'<h1>{title}</h1><p class="headline {state}">{html.escape(report.headline)}</p><dl>{terms}</dl>{sections}'
        f'<script type="application/json" id="report">{embedded}</script></body></html>\n'
    )


def _row(line: Mapping[str, Any]) -> str:
    values = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(number(value))}</td></tr>"
        for name, value in line["values"].items()
    )
    measured = f"<details><summary>measured</summary><table>{values}</table></details>" if values else ""
    return (
        f'<li class="{line["state"].replace(" ", "-")}"><b aria-hidden="true">{MARKS[line["state"]]}</b>'
        f"<div><strong>{html.escape(line['title'])}</strong> <em>{line['state']}</em><br>"
        f"{as_html(line['text'])}{measured}</div></li>"
    )


def number(value: Value) -> str:
    """The text of a measured value."""
    return f"{value:.4g}" if isinstance(value, float) else "unknown" if value is None else str(value)
