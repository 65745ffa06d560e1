"""The files for learners: notebooks, starter scripts, recorded results. (`welcome` writes the welcome page.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from course_lib.authoring.master_format import find, notebook_of
from course_lib.system.paths import ROOT

HANDOUT = "handout"  # replaces labs/ and assessment/ in an installation for learners (see `command.classroom.handout`)


def course_files(root: Path = ROOT) -> dict[str, bytes]:
    """The files for learners: path in the workspace → content.

    These are notebooks, starter scripts and recorded results; masters, solutions and other files of a lab are left out.
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
    return files


def _folders(root: Path) -> Iterator[Path]:
    yield from sorted(path for path in root.glob("labs/*") if path.is_dir())
    if (root / "assessment").is_dir():
        yield root / "assessment"
