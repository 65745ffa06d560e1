"""The labs' notebooks as tests need them.

Their solutions, as they are or with mistakes made in them; what they say; the recorded tables of which they say it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from course_lib.authoring import master_format
from course_lib.system.paths import ROOT

SLOW = {"1c", "2d", "4a"}  # checks that train


def marks(notebook: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that asks a notebook's checks."""
    return [pytest.mark.slow] if notebook in SLOW else []


def path(notebook: str) -> Path:
    """Where the master of a notebook stands; "3d" is enough."""
    (found,) = ROOT.glob(f"labs/*/{notebook}*.py")
    return found


@lru_cache
def master(notebook: str) -> master_format.Master:
    """The master of a notebook, read."""
    return master_format.read(path(notebook))


@lru_cache
def exercises(notebook: str) -> dict[str, str]:
    """The solved cells of the exercises, by the name of what the hidden test hands over: `points(LARS, 3)`."""
    cells = {(cell.kind, cell.name): cell.source for cell in master(notebook).cells}
    names = [name for kind, name in cells if kind == "exercise"]
    return {ast.parse(cells["hidden", name]).body[-1].value.args[0].id: cells["exercise", name] for name in names}


@lru_cache
def solved(notebook: str) -> dict[str, Any]:
    """What a notebook's imports and the solutions of its exercises define. Copy before you change it."""
    code = [node for cell in master(notebook).cells if not cell.markdown for node in ast.parse(cell.source).body]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("\n".join(ast.unparse(node) for node in code if isinstance(node, (ast.Import, ast.ImportFrom))), names)
    for name, source in exercises(notebook).items():
        exec(compile(source, name, "exec"), names)
    return names


def answer(notebook: str, exercise: str, *edits: tuple[str, str]) -> Callable:
    """What the solution of an exercise defines after edits (old, new) of its code.

    For example answer("1a", "loss", ("np.mean", "np.sum")). Old is a whole expression, or whole statements, and is
    replaced wherever it stands; formatting does not count. One that does not stand there is an error.
    """
    tree = ast.parse(exercises(notebook)[exercise])
    for old, new in edits:
        edit = _Edit(old, new)
        tree = edit.visit(tree)
        assert edit.places, f"{old!r} is not in the solution of {exercise}"
        tree = ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
    names = dict(solved(notebook))
    exec(compile(tree, exercise, "exec"), names)
    return names[exercise]


def named(exercise: str, answer: Callable) -> Callable:
    """This function or class, as an answer to an exercise: of its name."""
    if isinstance(answer, type):
        return type(exercise, (answer,), {})

    def given(*arguments: Any, **settings: Any) -> Any:
        return answer(*arguments, **settings)

    given.__name__ = exercise
    return given


def changed(right: dict, **changes: Any) -> Callable[..., dict]:
    """An answer that returns a dict, as the right one but for these entries; None leaves one out."""
    entries = {name: value for name, value in {**right, **changes}.items() if value is not None}
    return lambda *arguments: dict(entries)


class _Edit(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self.old, self.new, self.places = _parsed(old), _parsed(new), 0
        if isinstance(self.old, list) or isinstance(self.new, list):
            self.old, self.new = (code if isinstance(code, list) else [ast.Expr(code)] for code in (self.old, self.new))

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(self.old, list) and isinstance(node, ast.expr) and _meaning(node) == _meaning(self.old):
            self.places += 1
            return self.new
        node = self.generic_visit(node)
        for name in ("body", "orelse", "finalbody") if isinstance(self.old, list) else ():
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, self._replaced(body))
        return node

    def _replaced(self, body: list[ast.stmt]) -> list[ast.stmt]:
        length = len(self.old)
        for start in range(len(body) - length + 1):
            if list(map(_meaning, body[start : start + length])) == list(map(_meaning, self.old)):
                self.places += 1
                return [*body[:start], *self.new, *self._replaced(body[start + length :])] or [ast.Pass()]
        return body


def _parsed(text: str) -> ast.expr | list[ast.stmt]:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ast.parse(textwrap.dedent(text)).body


def _meaning(node: ast.AST) -> str:
    """What a node says, whether it is read or stored to."""
    return re.sub(r"ctx=(Load|Store|Del)\(\)", "ctx", ast.dump(node))


@lru_cache
def text(notebook: str) -> str:
    """All that a notebook's cells say, with single spaces between words."""
    return " ".join(" ".join(cell.source for cell in master(notebook).cells).split())


def recorded(table: str, **how: Any) -> pd.DataFrame:
    """The recorded table of this name; `how` goes to `pandas.read_csv`."""
    (found,) = ROOT.glob(f"labs/*/recorded/{table}.csv")
    return pd.read_csv(found, comment="#", **how)


def by_seed(
    rows: pd.DataFrame, keys: str | list[str], column: str = "test accuracy", scale: float = 1
) -> dict[Any, np.ndarray]:
    """The numbers of a column for each value of the keys, in the order of the seeds: what pairs are made of."""
    return {key: scale * part[column].to_numpy() for key, part in rows.sort_values("seed").groupby(keys)}


def plus_minus(interval: tuple[float, float], digits: int = 1, scale: float = 1, signed: bool = True) -> str:
    """Mean and half width as the notebooks write them: −1.2 ± 0.3."""
    mean, half = (scale * value for value in interval)
    return f"{mean if signed else abs(mean):.{digits}f} ± {half:.{digits}f}".replace("-", "−")
