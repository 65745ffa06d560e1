"""A lab's script in every stage of its conversion: serial, with some steps done, with all of them.

`labs/<lab>/reference/steps.toml` holds the conversion as edits (`old` → `new`), grouped in steps that can be
taken one by one or left out one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from course_lib.classroom import ROOT
from course_lib.errors import CourseError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LAB2 = ROOT / "labs" / "lab2_horovod"
SCRIPT = "fashion_mnist.py"


def steps(lab: Path = LAB2) -> dict[str, list[dict[str, str]]]:
    """The conversion's steps in order: name → edits, each with `old` and `new`."""
    text = (lab / "reference" / "steps.toml").read_text(encoding="utf-8")
    return {step["name"]: step["edit"] for step in tomllib.loads(text)["step"]}


def converted(done: Iterable[str] | None = None, lab: Path = LAB2) -> str:
    """The script's text with the steps in `done` taken (default: all).

    Raises CourseError for an unknown step, or an edit whose `old` is not found exactly once.
    """
    known = steps(lab)
    done = list(known) if done is None else list(done)
    text = (lab / SCRIPT).read_text(encoding="utf-8")
    for name in done:
        if name not in known:
            raise CourseError(f"There is no step '{name}' in {lab.name}: it is one of {', '.join(known)}.")
        for edit in known[name]:
            if text.count(edit["old"]) != 1:
                raise CourseError(f"Step '{name}' of {lab.name} does not fit {SCRIPT}: mend reference/steps.toml.")
            text = text.replace(edit["old"], edit["new"])
    return text


def write(target: str | Path, upto: str | None = None, without: str | None = None) -> None:
    """Write the script with the steps up to and including `upto` (default: all), less `without`."""
    names = list(steps())
    done = names[: names.index(upto) + 1] if upto else names
    Path(target).write_text(converted([name for name in done if name != without]), encoding="utf-8")


def references(root: Path = ROOT) -> list[tuple[Path, str]]:
    """Producer for `build`: every lab's converted script."""
    labs = [path.parent.parent for path in sorted(root.glob("labs/*/reference/steps.toml"))]
    return [(lab / "reference" / SCRIPT, converted(lab=lab)) for lab in labs]
