"""Generate the stages of a script that learners convert: the serial script with none, some or all conversion steps.

`<folder>/reference/steps.toml` names the script and has its conversion as edits (`old` → `new`), grouped into steps
that can be applied separately.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LAB2 = ROOT / "labs" / "lab2_horovod"
ASSESSMENT = ROOT / "assessment"


def steps(folder: Path = LAB2) -> dict[str, list[dict[str, str]]]:
    """The steps of the conversion in order: name → edits, each with `old` and `new`."""
    return {step["name"]: step["edit"] for step in _conversion(folder)["step"]}


def script(folder: Path = LAB2) -> Path:
    """The path of the serial script, which learners get."""
    return folder / _conversion(folder)["script"]


def converted(done: Iterable[str] | None = None, folder: Path = LAB2) -> str:
    """The script's text after the steps `done` (default: all).

    Raises CourseError for an unknown step, or if the `old` of an edit does not occur exactly once.
    """
    known = steps(folder)
    done = list(known) if done is None else list(done)
    path = script(folder)
    text = path.read_text(encoding="utf-8")
    for name in done:
        if name not in known:
            raise CourseError(f"There is no step '{name}' in {folder.name}: it is one of {', '.join(known)}.")
        for edit in known[name]:
            if text.count(edit["old"]) != 1:
                raise CourseError(f"Step '{name}' of {folder.name} does not fit {path.name}: fix reference/steps.toml.")
            text = text.replace(edit["old"], edit["new"])
    return text


def write(target: str | Path, upto: str | None = None, folder: Path = LAB2) -> None:
    """Write the script to `target`, after the steps up to and including `upto` (default: all)."""
    names = list(steps(folder))
    done = names[: names.index(upto) + 1] if upto else names
    Path(target).write_text(converted(done, folder), encoding="utf-8")


def references(root: Path = ROOT) -> list[tuple[Path, str]]:
    """Producer for `masters.build`: path and text of every fully converted script."""
    files = sorted([*root.glob("labs/*/reference/steps.toml"), *root.glob("assessment/reference/steps.toml")])
    folders = [path.parent.parent for path in files]
    return [(folder / "reference" / script(folder).name, converted(folder=folder)) for folder in folders]


def _conversion(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "reference" / "steps.toml").read_text(encoding="utf-8"))
