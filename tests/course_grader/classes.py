"""Classes of learners: what they hand in, of the tiny notebook or of another."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

from course_lib.authoring import masters
from course_lib.system.paths import ROOT

FIXTURES = (ROOT / "tests" / "notebooks" / "fixtures").resolve()
NAME, LAB = "0a_two_exercises", "lab0_tiny"
TINY = masters.read(FIXTURES / "labs" / LAB / f"{NAME}.py")
SLOPE = "def slope(x, y):\n    return sum(b / a for a, b in zip(x, y)) / len(x)"
SHOUT = 'def shout(text):\n    return text.upper() + "!!!"'
SCRIPT = "print(42)\n"
RIGHT = {"slope": SLOPE, "shout": SHOUT}


def notebook(**written: str) -> nbformat.NotebookNode:
    """The learner's tiny notebook with these texts in its cells `slope` and `shout`; the others as handed out."""
    made = masters.learner(TINY)
    for cell in made.cells:
        cell.source = written.get(cell.id, cell.source)
    return made


def solved(master: masters.Master) -> nbformat.NotebookNode:
    """A notebook with every exercise solved."""
    made = masters.source(master)
    for cell in made.cells:
        cell.source = re.sub(r"(?m)^\s*### (BEGIN|END) SOLUTION\n?", "", cell.source)
    return made


def hand_in(
    directory: Path,
    learner: str,
    made: nbformat.NotebookNode | str,
    script: str | None = SCRIPT,
    name: str = NAME,
    folder: str = LAB,
) -> Path:
    """Put a notebook and its script, if there is one, into a folder of a learner's; return that folder."""
    place = directory / learner / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.ipynb").write_text(made if isinstance(made, str) else nbformat.writes(made))
    if script is not None:
        (place / "script.py").write_text(script)
    return place
