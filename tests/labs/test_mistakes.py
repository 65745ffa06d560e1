"""Mistakes that learners make cost points and are named; answers that are right in another way cost none.

They stand beside the lab's other tests, in `mistakes_3d.py`, by exercise:

    MISTAKES = {exercise: {mistake: (answer, words of the reason)}}
    RIGHT = {exercise: {which: answer}}

where an answer is a function, or edits of the solution; a third entry is the points of 10 that remain, where the
mistake is to cost just so many. The scripts of 2b and 2e are no functions: `tests/real_ranks/test_conversion.py` and
`lab2/test_checks_2e.py` have their mistakes.
"""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path

import pytest

from course_lib.system.paths import ROOT
from tests.labs import notebooks

TABLES = {path.stem[-2:]: path.parent.name for path in sorted(Path(__file__).parent.glob("lab*/mistakes_*.py"))}


def cases(table):
    """The rows of this table in all notebooks."""
    for notebook, lab in TABLES.items():
        module = importlib.import_module(f"tests.labs.{lab}.mistakes_{notebook}")
        for exercise, answers in getattr(module, table, {}).items():
            for which, row in answers.items():
                name = f"{notebook}-{exercise}-{which}"
                yield pytest.param(notebook, exercise, row, id=name, marks=notebooks.marks(notebook))


def points(notebook, exercise, answer):
    """Of 10, for a function, or for the solution with edits."""
    edited = isinstance(answer, dict)
    given = notebooks.answer(notebook, exercise, *answer.items()) if edited else notebooks.named(exercise, answer)
    return scorer(notebook, exercise)(given)


@functools.lru_cache
def scorer(notebook, exercise):
    """What the hidden test of an exercise calls, as a function of the answer: of 10 points in place of the test's."""
    calls = [
        ast.parse(cell.source).body[-1].value for cell in notebooks.master(notebook).cells if cell.kind == "hidden"
    ]
    (call,) = [call for call in calls if getattr(call.args[0], "id", None) == exercise]
    settings = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    return functools.partial(notebooks.solved(notebook)[call.func.id], **{**settings, "maximum": 10})


@pytest.mark.parametrize("notebook", [path.stem[:2] for path in sorted(ROOT.glob("labs/*/[0-9]*.py"))])
def test_each_exercise_has_a_mistake(notebook):
    with_mistakes = {case.values[1] for case in cases("MISTAKES") if case.values[0] == notebook}
    assert with_mistakes == set(notebooks.exercises(notebook))


@pytest.mark.parametrize(("notebook", "exercise", "row"), [*cases("MISTAKES")])
def test_a_mistake_costs_points_and_is_named(notebook, exercise, row, capsys):
    answer, reason, *remain = row
    left = points(notebook, exercise, answer)
    said = capsys.readouterr()
    assert said.out and reason in said.out
    assert left == pytest.approx(remain[0], abs=0.01) if remain else left < 10
    assert said.err == ""  # nbgrader gives nothing for a cell that warns


@pytest.mark.parametrize(("notebook", "exercise", "answer"), [*cases("RIGHT")])
def test_another_right_answer_gets_all_points_in_silence(notebook, exercise, answer, capsys):
    assert points(notebook, exercise, answer) == 10.0
    assert capsys.readouterr() == ("", "")
