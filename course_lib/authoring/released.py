"""What learners get: notebooks, starter scripts, recorded results and the welcome page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template

from course_lib.authoring import ways
from course_lib.authoring.master_format import find, notebook_of, opening
from course_lib.system.paths import ROOT

HANDOUT = "handout"  # replaces labs/ and assessment/ where the course is a learner's (see `command.classroom.handout`)
_WELCOME = Path(__file__).with_name("welcome.md")


def course_files(root: Path = ROOT) -> dict[str, bytes]:
    """What learners get, by its path in the workspace.

    Notebooks, starter scripts, recorded results and Welcome.md: masters, solutions and what else stands in
    a lab's folder are not taken.
    """
    if (handout := root / HANDOUT).is_dir():
        paths = (path for path in sorted(handout.rglob("*")) if path.is_file())
        return {str(path.relative_to(handout)): path.read_bytes() for path in paths}
    files = {}
    masters = find(root)
    notebooks = [notebook_of(path) for path in masters]
    for folder in _folders(root):
        for path in sorted(folder.iterdir()):
            if path in notebooks or (path.suffix == ".py" and path not in masters):
                files[f"{folder.name}/{path.name}"] = path.read_bytes()
        for path in sorted((folder / "recorded").rglob("*")):
            if path.is_file():
                files[f"{folder.name}/{path.relative_to(folder)}"] = path.read_bytes()
    files["Welcome.md"] = _welcome(files, ways.table(ways.read(files, root).values())).encode()
    return files


def _folders(root: Path) -> Iterator[Path]:
    yield from sorted(path for path in root.glob("labs/*") if path.is_dir())
    if (root / "assessment").is_dir():
        yield root / "assessment"


def _welcome(files: dict[str, bytes], ways_through: str) -> str:
    syllabus, heading = [], ""
    for name in files:
        if not name.endswith(".ipynb"):
            continue
        folder = name.split("/")[0]
        if folder != heading:
            heading = folder
            syllabus += ["", f"## {_title(folder)}", "", "| notebook | time | needs |", "|---|---|---|"]
        cell = json.loads(files[name])["cells"][0]
        title, time, needs = opening("".join(cell["source"])) or (Path(name).stem, "", "")
        syllabus.append(f"| [{title}]({name}) | {_first_sentence(time)} | {_first_sentence(needs)} |")
    text = _WELCOME.read_text(encoding="utf-8")
    return Template(text).substitute(syllabus="\n".join(syllabus).strip(), ways=ways_through)


def _title(folder: str) -> str:
    """lab2_horovod → Lab 2: Horovod"""
    lab_name, _, topic = folder.partition("_")
    if not lab_name.startswith("lab"):
        return folder.replace("_", " ").capitalize()
    return f"Lab {lab_name[3:]}: {topic.replace('_', ' ').capitalize()}"


def _first_sentence(text: str) -> str:
    return re.split(r"\.(?=\s|$)", text)[0]
