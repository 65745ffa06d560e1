"""Each check of each exercise, given odd values, answers with a reason: it neither raises nor fails."""

from __future__ import annotations

import contextlib
import decimal
import fractions
import importlib
import io
import math
import sys

import numpy as np
import pandas as pd
import pytest

from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import CheckFailed
from course_lib.system.paths import ROOT
from tests.labs import notebooks

CHECKS = sorted(
    path
    for kind in ("checks", "diagnosis")
    for path in ROOT.glob(f"labs/*/lessons/{kind}_*.py")
    if path.stem != "checks_2e"  # a script is its only exercise
)
FEW = {
    "EpochTimer",
    "Throughput",
    "TimeToTarget",
    "Checkpoint",
    "Store",
    "pruned_share",
    "verdicts",
}  # a check takes long
EVERY = 8  # of so many odd values those are given one: a check of theirs takes long


class RaisesWhenCompared:
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("no comparison")


class RaisesAsArray:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no array")


class RaisesWhenShown:
    def __repr__(self):
        raise RuntimeError("nothing to show")


async def _coroutine():
    return 1


def _of_tensorflow(make):
    def made():
        import tensorflow as tf

        return make(tf)

    return made


def _holding_itself():
    held = []
    held.append(held)
    return held


# A value may be used up: each is made anew.
ODD = {
    "None": lambda: None,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "True": lambda: True,
    "0": lambda: 0,
    "a string": lambda: "odd",
    "bytes": lambda: b"odd",
    "an empty list": list,
    "a ragged list": lambda: [[1, 2], [3]],
    "a list that holds itself": _holding_itself,
    "a dict": lambda: {"a": 1},
    "an empty dict": dict,
    "a set": lambda: {1, 2},
    "a generator": lambda: (number for number in (1, 2)),
    "a tensor": _of_tensorflow(lambda tf: tf.constant(1.0)),
    "a tensor of two": _of_tensorflow(lambda tf: tf.constant([1.0, 2.0])),
    "a variable": _of_tensorflow(lambda tf: tf.Variable([1.0])),
    "a symbolic tensor": _of_tensorflow(lambda tf: tf.keras.Input((3,))),
    "float64": lambda: np.float64(1.5),
    "objects": lambda: np.array([None, "a", 3], object),
    "numbers as objects": lambda: np.array([1, 2.5, fractions.Fraction(1, 2)], object),
    "complex": lambda: 1j,
    "huge": lambda: 10**400,
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "a series": lambda: pd.Series([1.0, 2.0]),
    "a table": lambda: pd.DataFrame({"a": [1, 2]}),
    "a class": lambda: RaisesAsArray,
    "a function": lambda: len,
    "a lambda": lambda: lambda: 0,
    "raises when compared": RaisesWhenCompared,
    "raises as an array": RaisesAsArray,
    "raises when shown": RaisesWhenShown,
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [True, False]),
    "no numbers": lambda: np.zeros((0, 3)),
    "another shape": lambda: np.ones((2, 3, 4)),
    "uint8": lambda: np.array([250, 3], np.uint8),
    "texts": lambda: np.array(["a", "b"]),
    "a coroutine": _coroutine,
    "a pair": lambda: (1, 2),
    "a pair of nothing": lambda: (None, None),
    "three": lambda: (1, 2, 3),
    "NotImplemented": lambda: NotImplemented,
    "Ellipsis": lambda: ...,
    "a module": lambda: math,
    "a moment": lambda: np.datetime64("2020-01-01"),
}


def _recursion(*args, **kwargs):
    return _recursion(*args, **kwargs)


def _spoil(value, depth=4):
    """Change an argument in place, and what it holds."""
    if isinstance(value, np.ndarray):
        with contextlib.suppress(ValueError):  # it is for reading only
            value[...] = 0 if value.dtype.kind in "biufc" else None
    elif isinstance(value, pd.DataFrame):
        value.iloc[:, :] = 0
    elif isinstance(value, (list, dict)) and depth:
        for held in value.values() if isinstance(value, dict) else value:
            _spoil(held, depth - 1)
        value.clear()
    elif hasattr(value, "__dict__") and not callable(value) and depth:
        for name, held in vars(value).items():
            if not name.startswith("_"):
                _spoil(held, depth - 1)


def _mutates(*args, **kwargs):
    for value in (*args, *kwargs.values()):
        _spoil(value)


def _raising(error):
    def answer(*args, **kwargs):
        raise error

    return answer


ANSWERS = {
    "no parameters": lambda: 0,
    "too many parameters": lambda a, b, c, d, e, f, g, h, i, j: 0,
    "keywords only": lambda *, keyword: 0,
    "divides by 0": lambda *args, **kwargs: 1 / 0,
    "KeyError": _raising(KeyError("x")),
    "StopIteration": _raising(StopIteration()),
    "leaves": lambda *args, **kwargs: sys.exit(3),
    "recursion without end": _recursion,
    "mutates": _mutates,
    "writes to stderr": lambda *args, **kwargs: print("odd", file=sys.stderr),
    "its first argument": lambda *args, **kwargs: args[0] if args else None,
    "its arguments": lambda *args, **kwargs: args,
    "a stub": _raising(NotImplementedError()),
}


def exercises(path):
    """The exercises of a module, and who asks of them."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for value in list(vars(module).values()):
        if isinstance(value, Exercises):
            yield from ((exercise, value) for exercise in value)
        elif isinstance(value, Exercise):
            yield value, value
        elif isinstance(value, dict):
            yield from ((exercise, exercise) for exercise in value.values() if isinstance(exercise, Exercise))


def called(name, function):
    """A function of its own by this name."""

    def answer(*args, **kwargs):
        return function(*args, **kwargs)

    answer.__name__ = name
    return answer


def problem_with(exercise, asked, answer):
    """What is wrong with what the test says of an answer; "" where nothing is."""
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
        try:
            points = asked.points(answer, 3)
        except CheckFailed as failed:
            return f"{failed} {failed.__cause__!r}"
    reasons = said.getvalue().splitlines()
    if type(points) is not float or not 0 <= points <= 3:
        return f"{points!r} points"
    if not (points < 3) <= len(reasons) <= len(exercise.criteria):
        return f"{len(reasons)} reasons"
    return ""


def some(name, table, every=1):
    """Of the odd values those that an exercise is given."""
    return list(table.items())[:: every * EVERY if name in FEW else every]


@pytest.fixture(
    scope="module",
    params=[pytest.param(path, marks=notebooks.marks(path.stem[-2:]), id=path.stem) for path in CHECKS],
)
def path(request):
    return request.param


def test_what_is_no_function_is_told_so(path):
    for exercise, asked in exercises(path):
        for told, make in ODD.items():
            if not callable(value := make()):
                report = asked.check(value) if isinstance(asked, Exercises) else asked.report(value)
                (reason,) = {verdict.reason for verdict in report.verdicts}
                assert "without calling it" in reason, (exercise.name, told)
                assert problem_with(exercise, asked, value) == ""


def test_an_odd_value_that_is_returned_has_a_reason(path):
    problems = {}
    for exercise, asked in exercises(path):
        for told, make in some(exercise.name, ODD):
            answer = called(exercise.name, lambda *args, make=make, **kwargs: make())
            problems[exercise.name, told] = problem_with(exercise, asked, answer)
    assert {what: problem for what, problem in problems.items() if problem} == {}


def test_an_odd_function_has_a_reason_and_spoils_no_check(path):
    problems = {}
    for exercise, asked in exercises(path):
        for told, function in some(exercise.name, ANSWERS):
            problems[exercise.name, told] = problem_with(exercise, asked, called(exercise.name, function))
        problem_with(exercise, asked, called(exercise.name, _mutates))
        if solution := notebooks.solved(path.stem[-2:]).get(exercise.name):
            for verdict in exercise.judge(solution):
                problems[exercise.name, verdict.title] = "" if verdict.passed else verdict.reason
    assert {what: problem for what, problem in problems.items() if problem} == {}


def test_an_odd_part_of_a_right_answer_has_a_reason(path):
    """The first or the last of several values is odd, or what is returned the second time; or a class's method is."""
    problems = {}
    for exercise, asked in exercises(path):
        solution = notebooks.solved(path.stem[-2:]).get(exercise.name)
        if solution is None:
            continue
        spoiled = methods_spoiled if isinstance(solution, type) else parts_spoiled
        for told, make in some(exercise.name, ODD, every=7):
            for where, answer in spoiled(solution, make):
                problems[exercise.name, where, told] = problem_with(exercise, asked, answer)
    assert {what: problem for what, problem in problems.items() if problem} == {}


def parts_spoiled(solution, make):
    def spoiled(where):
        calls = []

        def answer(*args, **kwargs):
            found = solution(*args, **kwargs)
            calls.append(found)
            if where == "later":
                return make() if len(calls) > 1 else found
            if isinstance(found, (list, tuple)) and found:
                parts = list(found)
                parts[where] = make()
                return tuple(parts) if isinstance(found, tuple) else parts
            if isinstance(found, dict) and found:
                return {**found, list(found)[where]: make()}
            return found

        return called(solution.__name__, answer)

    return [(where, spoiled(where)) for where in (0, -1, "later")]


def methods_spoiled(solution, make):
    def odd(*args, **kwargs):
        return make()

    names = [name for name in vars(solution) if not name.startswith("_") and callable(getattr(solution, name))]
    for name in names:
        yield name, type(solution.__name__, (solution,), {name: staticmethod(odd)})
    yield "all", type(solution.__name__, (), dict.fromkeys(names, staticmethod(odd)))
    yield "no methods", type(solution.__name__, (solution,), {name: make() for name in names})
