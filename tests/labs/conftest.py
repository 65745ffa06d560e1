"""Learners' answers: the solutions of the notebooks, as they are or with a mistake made in them; what a figure says."""

from __future__ import annotations

import ast
import re
import textwrap
from functools import lru_cache

import pytest
from matplotlib.legend import Legend

from course_lib.authoring import master_format
from course_lib.system.paths import ROOT


@lru_cache
def master(notebook):
    (path,) = ROOT.glob(f"labs/*/{notebook}.py")
    return master_format.read(path)


@lru_cache
def imports(notebook):
    """The import statements of a notebook's cells, solutions included."""
    cells = [cell.source for cell in master(notebook).cells if not cell.markdown]
    found = [node for source in cells for node in ast.parse(source).body]
    return "\n".join(ast.unparse(node) for node in found if isinstance(node, (ast.Import, ast.ImportFrom)))


def parsed(text):
    """A piece of Python as AST: an expression, or a list of statements."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ast.parse(textwrap.dedent(text)).body


def meaning(node):
    """What a node says, however it is written and whether it is read or stored to."""
    return re.sub(r"ctx=(Load|Store|Del)\(\)", "ctx", ast.dump(node))


class Edit(ast.NodeTransformer):
    """Puts one piece of code in the place of another, wherever that stands; formatting does not count."""

    def __init__(self, old, new):
        self.old, self.new, self.places = parsed(old), parsed(new), 0
        if isinstance(self.old, list) or isinstance(self.new, list):
            self.old, self.new = (code if isinstance(code, list) else [ast.Expr(code)] for code in (self.old, self.new))
            self.said = [meaning(node) for node in self.old]

    def visit(self, node):
        if not isinstance(self.old, list) and isinstance(node, ast.expr) and meaning(node) == meaning(self.old):
            self.places += 1
            return self.new
        node = self.generic_visit(node)
        for name in ("body", "orelse", "finalbody") if isinstance(self.old, list) else ():
            body = getattr(node, name, None)
            if isinstance(body, list):
                setattr(node, name, self._in(body))
        return node

    def _in(self, body):
        length = len(self.said)
        for start in range(len(body) - length + 1):
            if [meaning(node) for node in body[start : start + length]] == self.said:
                self.places += 1
                return [*body[:start], *self.new, *self._in(body[start + length :])] or [ast.Pass()]
        return body


@pytest.fixture(scope="session")
def answer():
    """answer(notebook, exercise, (old, new), …): what the exercise's solution defines, after these edits of its code.

    For example answer("1a_linear_model", "loss", ("np.mean", "np.sum")). An edit is a whole expression, or whole
    statements, and goes wherever that stands. One that does not apply is an error.
    """

    def make(notebook, exercise, *edits):
        name = exercise.lower()  # cells have lower-case names, also those of classes
        (cell,) = [cell for cell in master(notebook).cells if cell.kind == "exercise" and cell.name == name]
        tree = ast.parse(cell.source)
        for old, new in edits:
            edit = Edit(old, new)
            tree = edit.visit(tree)
            assert edit.places, f"{old!r} is not in the solution of {exercise}"
            tree = ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
        names = {}
        exec(imports(notebook), names)
        exec(compile(tree, exercise, "exec"), names)
        *_, last = (node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
        return names.get(exercise, names[last])  # a class has another name than its cell

    return make


@pytest.fixture(scope="session")
def titles():
    """titles(figure): what stands over its panels, on their left."""
    return lambda figure: [axis.get_title(loc="left") for axis in figure.axes]


@pytest.fixture(scope="session")
def legend():
    """legend(drawn): the texts of all legends of a figure, or of one panel."""
    return lambda drawn: [text.get_text() for box in drawn.findobj(Legend) for text in box.get_texts()]
