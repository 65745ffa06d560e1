"""Learners' answers: the solutions of the notebooks, as they are or with a mistake made in them."""

from __future__ import annotations

import ast
from functools import lru_cache

import pytest

from course_lib.classroom import ROOT, parsing


@lru_cache
def master(notebook):
    (path,) = ROOT.glob(f"labs/*/{notebook}.py")
    return parsing.read(path)


@lru_cache
def imports(notebook):
    """The import statements of a notebook's cells, solutions included."""
    cells = [cell.source for cell in master(notebook).cells if not cell.markdown]
    found = [node for source in cells for node in ast.parse(source).body]
    return "\n".join(ast.unparse(node) for node in found if isinstance(node, (ast.Import, ast.ImportFrom)))


@pytest.fixture(scope="session")
def answer():
    """answer(notebook, exercise, (old, new), …): what the exercise's solution defines, after these edits of its text.

    For example answer("1a_linear_model", "loss", ("np.mean", "np.sum")). An edit that does not apply is an error.
    """

    def make(notebook, exercise, *edits):
        (cell,) = [cell for cell in master(notebook).cells if cell.kind == "exercise" and cell.name == exercise]
        source = cell.source
        for old, new in edits:
            assert old in source, f"{old!r} is not in the solution of {exercise}"
            source = source.replace(old, new)
        names = {}
        exec(imports(notebook), names)
        exec(source, names)
        return names[exercise]

    return make
