"""The solution of each exercise gets full points from its hidden test, in silence; a stub gets none."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from course_lib.system.paths import ROOT
from tests.labs import notebooks

HIDDEN = [
    pytest.param(path.stem[:2], name, id=f"{path.stem[:2]}-{name}", marks=notebooks.marks(path.stem[:2]))
    for path in sorted(ROOT.glob("labs/*/[0-9]*.py"))
    for name in re.findall(r'(?m)^# %% exercise="(.+?)"', path.read_text(encoding="utf-8"))
]


def graded(notebook, name, names):
    """What the hidden test of an exercise gives, and the points that it has."""
    (cell,) = [cell for cell in notebooks.master(notebook).cells if (cell.kind, cell.name) == ("hidden", name)]
    (test,) = ast.parse(cell.source).body
    return eval(ast.unparse(test), names), cell.points


@pytest.mark.parametrize(("notebook", "name"), HIDDEN)
def test_the_solution_gets_full_points(notebook, name, capsys):
    points, most = graded(notebook, name, dict(notebooks.solved(notebook)))
    assert points == most and type(points) is float
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("notebook", "name"), HIDDEN)
def test_a_stub_gets_nothing(notebook, name, capsys):
    (cell,) = [cell for cell in notebooks.master(notebook).cells if (cell.kind, cell.name) == ("exercise", name)]
    stub = re.sub(r"(?s)### BEGIN SOLUTION.*?### END SOLUTION", "raise NotImplementedError()", cell.source)
    names = dict(notebooks.solved(notebook))
    exec(stub, names)
    assert graded(notebook, name, names)[0] == 0.0
    assert "is not written yet" in capsys.readouterr().out


def of_notebooks(*names):
    """Each exercise of these notebooks."""
    return [
        pytest.param(notebook, exercise, marks=notebooks.marks(notebook))
        for notebook in names
        for exercise in notebooks.exercises(notebook)
    ]


@pytest.mark.parametrize(("notebook", "exercise"), of_notebooks("1a", "2c"))
def test_doing_nothing_earns_nothing(notebook, exercise):
    for result in (None, 0, 0.0, "", [], (0.0, 0.0)):

        def lazy(*arguments, result=result):
            return result

        lazy.__name__ = exercise
        assert notebooks.solved(notebook)["points"](lazy, 10) == 0.0


@pytest.mark.parametrize(("notebook", "exercise"), of_notebooks("1b", "3d"))
def test_no_function_of_the_checks_is_an_answer(notebook, exercise):
    folder = notebooks.path(notebook).parent.name
    checks = importlib.import_module(f"labs.{folder}.lessons.checks_{notebook}")
    for function in [value for value in vars(checks).values() if callable(value)]:

        def answer(*arguments, function=function, **settings):
            return function(*arguments, **settings)

        answer.__name__ = exercise
        assert checks.points(answer, 3) < 1, function
