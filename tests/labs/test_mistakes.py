"""Mistakes that learners make cost points and are named.

The mistakes in a notebook's exercises stand beside the lab's other tests, in `mistakes_3d.py`:

    MISTAKES = {exercise: {mistake: (edits of the solution, words of the reason)}}

with a third entry, the points of 10 that remain, where the mistake is to cost just so many.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.labs import notebooks

TABLES = {path.stem[-2:]: path.parent.name for path in sorted(Path(__file__).parent.glob("lab*/mistakes_*.py"))}


def cases(notebook, lab):
    table = importlib.import_module(f"tests.labs.{lab}.mistakes_{notebook}").MISTAKES
    for exercise, mistakes in table.items():
        for mistake, (edits, reason, *remain) in mistakes.items():
            name, marks = f"{notebook}-{exercise}-{mistake}", notebooks.marks(notebook)
            yield pytest.param(notebook, exercise, edits, reason, remain, id=name, marks=marks)


@pytest.mark.parametrize(
    ("notebook", "exercise", "edits", "reason", "remain"),
    [case for notebook, lab in TABLES.items() for case in cases(notebook, lab)],
)
def test_a_mistake_costs_points_and_is_named(notebook, exercise, edits, reason, remain, capsys):
    wrong = notebooks.answer(notebook, exercise, *edits.items())
    points = notebooks.solved(notebook)["points"](wrong, 10)
    said = capsys.readouterr()
    assert reason in said.out
    assert points == pytest.approx(remain[0], abs=0.01) if remain else points < 10
    assert said.err == ""  # nbgrader gives nothing for a cell that warns
