"""What was found, for people and programs: lines in the terminal, JSON, and one page that can be sent."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import html
import json
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import Any

from course_lib.command.doctor.gpu.host import Host
from course_lib.command.doctor.gpu.lines import FAILED, PASSED, STATES, UNTESTED, Line
from course_lib.command.doctor.gpu.steps import Step
from course_lib.notebook.report import as_html
from course_lib.system.files import require_place, write

MARKS = {PASSED: "✓", FAILED: "✗", UNTESTED: "–"}
CSS = Path(__file__).with_name("report.css")
PUBLIC_NAMES = ("root", "localhost", "learner")  # the last is the account in every image of the course
NO_GPU = 2  # exit code: nothing failed, and nothing of GPUs was tested


@dataclass
class Report:
    """What was found on a host, line by line."""

    host: Host
    began: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.timezone.utc))
    lines: list[tuple[Step, Line]] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, state: str) -> int:
        """How many lines came out like this."""
        return sum(line.state == state for _, line in self.lines)

    @property
    def code(self) -> int:
        """Exit code: 1 where something failed, else NO_GPU where there was none to test, else 0."""
        return 1 if self.count(FAILED) else 0 if self.host.visible else NO_GPU

    @property
    def headline(self) -> str:
        """The result in a few words."""
        counts = ", ".join(f"{self.count(state)} {state}" for state in STATES)
        if self.count(FAILED):
            return f"Something failed: {counts}."
        return f"Nothing failed: {counts}." if self.host.visible else f"No GPU was tested: {counts}."

    @property
    def devices(self) -> str:
        """The GPUs by name."""
        names = [gpu.name for gpu in self.host.gpus]
        return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "no GPU"

    def as_json(self) -> dict[str, Any]:
        """The object that is written, without names of the user, the host and the home folder."""
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
            "lines": [
                {
                    "step": step.name,
                    "title": line.title,
                    "state": line.state,
                    "text": line.text,
                    "values": dict(line.values),
                }
                for step, line in self.lines
            ],
        }
        return _private_values(table)


def _private_values(value: Any) -> Any:
    """What JSON can hold, with each text in it `private`, and its keys as they are."""
    if isinstance(value, dict):
        return {key: _private_values(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_private_values(one) for one in value]
    return private(value) if isinstance(value, str) else value


def private(text: str) -> str:
    """`text` without what names its user: home folder, account, name of the host."""
    told = {str(Path.home()): "~"}
    told[socket.gethostname()] = "HOST"
    with contextlib.suppress(OSError, KeyError):  # an account without a name
        told[getpass.getuser()] = "USER"
    for name, other in told.items():
        if len(name) > 2 and name not in PUBLIC_NAMES:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", other, text)
    return text


def paths(file: Path) -> tuple[Path, Path]:
    """Where JSON and page of a report FILE go: its name, with .json and with .html."""
    stem = file.with_suffix("") if file.suffix in (".json", ".html", ".htm") else file
    return stem.parent / f"{stem.name}.json", stem.parent / f"{stem.name}.html"


def check(file: Path) -> None:
    """Raise CourseError where a report can't be written: before, not after a quarter of an hour."""
    for path in paths(file):
        require_place(path)


def save(report: Report, file: Path) -> tuple[Path, Path]:
    """Write the report's JSON and its page; return where."""
    table = report.as_json()
    first, second = paths(file)
    write(first, json.dumps(table, indent=1, ensure_ascii=False).encode())
    write(second, page(report, table).encode())
    return first, second


def page(report: Report, table: Mapping[str, Any]) -> str:
    """The report as one page that needs no other file; it holds the JSON too."""
    sections = []
    steps = {step.name: step for step, _ in report.lines}
    for name, lines in groupby(table["lines"], key=lambda line: line["step"]):
        rows = "".join(map(_row, lines))
        sections.append(f"<section><h2>{html.escape(steps[name].title)}</h2><ul>{rows}</ul></section>")
    state = {1: "failed", 0: "passed"}.get(report.code, "untested")
    facts = {"GPUs": report.devices, "Driver": report.host.driver or "none", "System": table["system"]}
    facts |= {"Date": table["date"], "Course": table["course"], "Took": f"{report.seconds:.0f} s"}
    told = "".join(f"<dt>{name}</dt><dd>{html.escape(private(text))}</dd>" for name, text in facts.items())
    held = json.dumps(table, ensure_ascii=False).replace("<", "\\u003c")
    title = f"One Model, Many GPUs on {report.devices if report.host.gpus else 'a host without a GPU'}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
        f"<style>{CSS.read_text(encoding='utf-8')}</style></head><body>"
        f'<h1>{html.escape(title)}</h1><p class="headline {state}">{html.escape(report.headline)}</p>'
        f"<dl>{told}</dl>{''.join(sections)}"
        f'<script type="application/json" id="report">{held}</script></body></html>\n'
    )


def _row(line: Mapping[str, Any]) -> str:
    kind = line["state"].replace(" ", "-")
    values = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(number(value))}</td></tr>"
        for name, value in line["values"].items()
    )
    measured = f"<details><summary>measured</summary><table>{values}</table></details>" if values else ""
    return (
        f'<li class="{kind}"><b aria-hidden="true">{MARKS[line["state"]]}</b>'
        f"<div><strong>{html.escape(line['title'])}</strong> <em>{line['state']}</em><br>"
        f"{as_html(line['text'])}{measured}</div></li>"
    )


def number(value: object) -> str:
    """A measured value for people."""
    return f"{value:.4g}" if isinstance(value, float) else "unknown" if value is None else str(value)


def summary(steps: Sequence[Step]) -> str:
    """The steps that run without a GPU, in words."""
    left = [f"“{step.title}”" for step in steps if not step.on_cpu]
    return f"{len(steps) - len(left)} of {len(steps)} steps on the CPU, all but {' and '.join(left)}"
