"""Find the statements of a notebook that some names need, and no others.

    notebook = Notebook(cells, Notebook(cells_of_the_course))
    for statements in notebook.slices(["loss"], after=12):  # cells
        for statement in statements:
            statement.run(namespace)

A name may be bound more than once, and cells may have been run in any order, so there may be several slices. The first
is that of a run from top to bottom up to the exercise's test; a name that is only bound below the test is taken from
there. The others use definitions elsewhere in the notebook.

A statement that binds no needed name is in no slice: a check, a figure, an assertion.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import dis
import inspect
import itertools
import linecache
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

MAX_SLICES = 6  # each requires a run of the test
# Cell magics whose text is not Python for this notebook. After other magics, such as %%time, the text is Python.
_FOREIGN = {
    *("bash", "cmd", "file", "html", "HTML", "javascript", "js", "latex", "markdown", "perl", "pypy", "python"),
    *("python2", "python3", "ruby", "script", "sh", "svg", "SVG", "sx", "system", "writefile", "!"),
}
_SHOWS = {"print", "display", "check", "predict", "measured"}  # functions that change none of their arguments
_AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # code objects that run with their statement
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Cell:
    """A cell's text; `name` is its name in tracebacks."""

    name: str
    source: str


@dataclass(eq=False)
class Statement:
    """A statement at a notebook's top level, with its effects on the notebook's names.

    Attributes:
        position: in the notebook; the course's statements, which replace missing ones, have lower positions.
        end: the position after the last statement of its cell.
        binds: names that it binds; `certainly`: whether it always binds them.
        sets: global names that its functions bind when they are called.
        now: names that it reads; `later`: names that its functions read when they are called.
        changes: names whose object it changes, as by `x[0] = 1` or `x.append(1)`; `may_change`: names whose object it
            passes to a function.
    """

    node: ast.stmt
    code: CodeType
    position: int
    end: int = 0
    certainly: bool = True
    binds: set[str] = field(default_factory=set)
    sets: set[str] = field(default_factory=set)
    now: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    may_change: set[str] = field(default_factory=set)

    def run(self, namespace: dict[str, Any]) -> None:
        """Run it as IPython does, with top-level `await`."""
        result = eval(self.code, namespace)
        if self.code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(result)


class Notebook:
    """The statements of a notebook, in order, by the names that they bind.

    Names that the notebook does not bind are taken from `course`. The course's cells in the notebook do not bind the
    `exercises`, even if they have variables of these names. `broken` has the error of each cell that is not valid
    Python: name → "SyntaxError: invalid syntax (line 3 of your cell)".
    """

    def __init__(self, cells: Sequence[Cell], course: Notebook | None = None, exercises: Collection[str] = ()) -> None:
        self.broken: dict[str, str] = {}
        self.statements: list[Statement] = []
        self._sources = {cell.source for cell in cells}
        self._first = len(course.statements) if course else 0  # position of the notebook's first statement
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._ends = [self._first]  # positions: before the first cell, after it, …
        for cell in cells:
            statements = self._parse(cell, self._ends[-1])
            if course and cell.source in course._sources:
                for statement in statements:
                    statement.binds.difference_update(exercises)
            self.statements += statements
            self._ends.append(self._first + len(self.statements))
        self._given = course._binding if course else {}
        all_statements = [*self.statements, *(course.statements if course else [])]
        self._modules = set(_by_name(each for each in all_statements if isinstance(each.node, _IMPORTS)))
        self._defined = set(_by_name(each for each in all_statements if isinstance(each.node, _DEFINITIONS)))
        self._stars = [each for each in self.statements if _is_star(each.node)]
        for statement in self.statements:
            self._follow_calls(statement)
        self._binding = _by_name(self.statements)
        for statement in self.statements:
            self._reduce_changes(statement)

    def binds(self, name: str) -> bool:
        """Return whether a cell of the notebook itself binds the name."""
        return name in self._binding

    def imports(self) -> list[Statement]:
        """Return all import statements."""
        return [each for each in self.statements if isinstance(each.node, _IMPORTS)]

    def reads(self) -> set[str]:
        """Return the names that the notebook reads but does not bind."""
        return {name for each in self.statements for name in each.now | each.later if not self.binds(name)}

    def slices(self, names: Sequence[str], after: int = -1) -> list[list[Statement]]:
        """Return up to MAX_SLICES lists of the statements that `names` need, in the order of a run, likeliest first.

        `after` is the number of cells before the names' test (-1: all).
        """
        here, end = self._ends[after], self._ends[-1]
        others = {each.position + 1 for name in names for each in self._binding.get(name, [])}
        positions = [here, end, *sorted(others, reverse=True)]
        slices: dict[tuple[int, ...], list[Statement]] = {}
        for widely, at in itertools.product((False, True), positions):
            statements = self._slice(names, at, widely)
            slices.setdefault(tuple(each.position for each in statements), statements)
        return list(slices.values())[:MAX_SLICES]

    def _slice(self, names: Iterable[str], end: int, widely: bool) -> list[Statement]:
        """Return the statements that `names` need at the position `end`; `widely`: also those that may change them."""
        before: dict[Statement, set[Statement]] = {}  # statement → statements that must run before it

        def provide(name: str, at: int, ready: set[Statement]) -> None:
            """Add to `ready` all statements that `name` needs at the position `at`."""
            for statement in self._bound(name, at, widely):
                if statement in ready:
                    continue
                ready.add(statement)
                if statement not in before:
                    before[statement] = set()
                    for used in sorted(statement.now):
                        provide(used, statement.position, before[statement])
                ready |= before[statement]
                for used in sorted(statement.later):
                    provide(used, at, ready)

        needed: set[Statement] = set()
        for name in names:
            provide(name, end, needed)
        return _in_order(needed, before)

    def _bound(self, name: str, at: int, widely: bool) -> list[Statement]:
        """Return the last statements that bind `name` before a position, and those that then change its object."""
        own = self._binding.get(name, [])
        earlier = [each for each in own if each.position < at]
        if not earlier:
            later = next((each for each in own if each.position > at), None) or next((each for each in own), None)
            if later is None:  # `import *` may bind it, even if it is a built-in
                return self._stars + self._given.get(name, [])[:1]
            return self._bound(name, max(later.end, later.position + 1), widely)
        last = next((each for each in reversed(earlier) if each.certainly), earlier[0])
        binding = [each for each in earlier if each.position >= last.position]
        widely = widely and name not in self._modules | self._defined
        return binding + [
            each
            for each in self.statements[last.position + 1 - self._first : at - self._first]
            if name in each.changes or (widely and name in each.may_change)
        ]

    def _parse(self, cell: Cell, start: int) -> list[Statement]:
        """Return the statements of a cell, from the position `start` on; [] if it is not valid Python."""
        file = f"<{cell.name}>"
        try:
            source = python(cell.source)
            nodes = [_WithoutIPython().visit(node) for node in ast.parse(source).body]
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    self._flags |= sum(getattr(__future__, alias.name).compiler_flag for alias in node.names)
        except SyntaxError as error:
            self._note(cell, error)
            return []
        except (ValueError, RecursionError, MemoryError) as error:
            self.broken[cell.name] = f"{type(error).__name__}: {error}"
            return []
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        statements: list[Statement] = []
        for node in nodes:
            try:
                module = ast.fix_missing_locations(ast.Module([node], []))
                code = compile(module, file, "exec", flags=self._flags, dont_inherit=True)
                statements.append(_statement(node, code, start + len(statements)))
            except SyntaxError as error:  # such as `return` outside a function; IPython runs the statements above it
                self._note(cell, error)
        for statement in statements:
            statement.end = start + len(statements)
        return statements

    def _note(self, cell: Cell, error: SyntaxError) -> None:
        self.broken.setdefault(cell.name, f"SyntaxError: {error.msg} (line {error.lineno or 1} of your cell)")

    def _follow_calls(self, statement: Statement) -> None:
        """Let a statement that calls a function bind the global names that the function binds."""
        calls = [one.func for one in _at_once(statement.node) if isinstance(one, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        for one in self.statements:
            if one.sets and not called.isdisjoint(one.binds):
                statement.binds |= one.sets
                statement.certainly = False

    def _reduce_changes(self, statement: Statement) -> None:
        """Count a call on a module as a change only if it uses no other name of the notebook: `np.random.seed(0)`."""
        for node in _at_once(statement.node):
            if isinstance(node, ast.Expr) and (name := _called_on(node)) in self._modules:
                used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                if used & self._binding.keys() - self._modules:
                    statement.changes.discard(name)


def python(source: str) -> str:
    """Return a cell's text as Python: without IPython's magics, but with the code that they would run."""
    while match := re.match(r"\s*%%(\S+).*\n?", source):
        if match[1] in _FOREIGN:
            return ""
        source = "\n" * match[0].count("\n") + source[match.end() :]
    source = re.sub(r"(?m)^([ \t]*)%time[ \t]+(?=\S)", r"\1", source)
    try:
        ast.parse(source)
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        blank = len(source) - len(source.lstrip("\n"))  # IPython drops these lines
        return "\n" * blank + TransformerManager().transform_cell(source)
    return source


class _WithoutIPython(ast.NodeTransformer):
    """Replaces calls on `get_ipython()` by None."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace the call if it is one on `get_ipython()`."""
        root = node
        while isinstance(root, (ast.Call, ast.Attribute)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and root.id == "get_ipython":
            return ast.copy_location(ast.Constant(None), node)
        return self.generic_visit(node)


def _in_order(needed: Iterable[Statement], before: dict[Statement, set[Statement]]) -> list[Statement]:
    """Return statements in the order of their positions, each after those that must run `before` it."""
    order: dict[Statement, None] = {}
    started: set[Statement] = set()

    def append(statement: Statement) -> None:
        if statement not in started:
            started.add(statement)
            for earlier in sorted(before[statement], key=_position):
                append(earlier)
            order[statement] = None

    for statement in sorted(needed, key=_position):
        append(statement)
    return list(order)


def _statement(node: ast.stmt, code: CodeType, position: int) -> Statement:
    """Return the statement of a node, with its effects on names."""
    statement = Statement(node, code, position)
    _read(code, statement, at_once=True, names=statement.binds)
    simple = (*_FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.ImportFrom, ast.Expr, ast.With, ast.AsyncWith)
    statement.certainly = isinstance(node, simple)  # `import a.b` binds `a` once more, and is needed as well
    for one in _at_once(node):
        if isinstance(one, (ast.Attribute, ast.Subscript)) and not isinstance(one.ctx, ast.Load):
            statement.changes.add(_root(one))
        elif isinstance(one, ast.Expr):
            statement.changes.add(_called_on(one))
        elif isinstance(one, (*_FUNCTIONS[:2], ast.ClassDef)):
            decorators = (one.func if isinstance(one, ast.Call) else one for one in one.decorator_list)
            statement.changes.update(
                _root(decorator) for decorator in decorators if isinstance(decorator, ast.Attribute)
            )
    for one in ast.walk(node):  # annotations that are strings at run time
        annotations = (getattr(one, "annotation", None), getattr(one, "returns", None))
        statement.later.update(
            name.id for part in annotations if part for name in ast.walk(part) if isinstance(name, ast.Name)
        )
    shows = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value.func) in _SHOWS
    if not (shows or isinstance(node, (*_FUNCTIONS, *_IMPORTS, ast.ClassDef, ast.Assert))):
        statement.may_change = set(statement.now)
    statement.changes.discard(None)
    return statement


def _read(code: CodeType, into: Statement, at_once: bool, names: set[str] | None = None) -> None:
    """Add the global names that this code, and the functions in it, read and bind to the statement `into`.

    `names` gets the names that the code stores at the top level; in a class these are attributes.
    """
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"):
            (into.now if at_once else into.later).add(step.argval)
        elif step.opname == "STORE_GLOBAL":
            (into.binds if at_once else into.sets).add(step.argval)
        elif step.opname == "STORE_NAME" and names is not None:
            names.add(step.argval)
    for inner in filter(inspect.iscode, code.co_consts):
        of_class = not inner.co_flags & inspect.CO_OPTIMIZED
        _read(inner, into, at_once and (of_class or inner.co_name in _AT_ONCE))


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with their statement: of a function its decorators and defaults, not its body."""
    yield node
    for name, value in ast.iter_fields(node):
        if not (isinstance(node, _FUNCTIONS) and name == "body"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _at_once(child)


def _called_on(node: ast.Expr) -> str | None:
    """Return the name on which a method is called: `x` in `x.y.append(1)`."""
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    return _root(call.func) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def _root(node: ast.AST) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_star(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _by_name(statements: Iterable[Statement]) -> dict[str, list[Statement]]:
    by_name: dict[str, list[Statement]] = defaultdict(list)
    for statement in statements:
        for name in statement.binds:
            by_name[name].append(statement)
    return dict(by_name)


def _position(statement: Statement) -> int:
    return statement.position
