"""Which statements of a notebook some names need, and no others.

    notebook = Notebook(cells, Notebook(cells_of_the_course))
    for statements in notebook.slices(["loss"], after=12):  # cells
        for statement in statements:
            statement.run(namespace)

A name may be bound more than once, and cells may have been run in any order. So there may be several slices. The first
is what the notebook has when it is run from top to bottom as far as the exercise's test; a name that is bound only
further down is taken from there. The others are for definitions elsewhere in the notebook.

A statement of a notebook that binds nothing that is needed is in no slice: a check, a figure, an assertion.
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

MAX_SLICES = 6
# Cell magics whose text is no Python of the notebook's own; that of all others is, as with %%time.
_FOREIGN = {
    *("bash", "cmd", "file", "html", "HTML", "javascript", "js", "latex", "markdown", "perl", "pypy", "python"),
    *("python2", "python3", "ruby", "script", "sh", "svg", "SVG", "sx", "system", "writefile", "!"),
}
_SHOWS = {"print", "display", "check", "predict", "measured"}  # functions that change none of their arguments
_AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # code that runs where it stands
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Cell:
    """A cell's text; `name` is what tracebacks call it."""

    name: str
    source: str


@dataclass(eq=False)
class Statement:
    """A statement at a notebook's top level, with what it does to the notebook's names.

    Attributes:
        position: in the notebook; the course's, which stand in for what a notebook lacks, come before.
        end: the position after the last statement of its cell.
        binds: names that hold something else when it has run. `certainly`: under no condition.
        sets: global names that its functions bind when they are called.
        now: names that it reads; `later`: names that its functions read when they are called.
        changes: names whose object it changes, as by `x[0] = 1` or `x.append(1)`; `may_change`: that it hands over.
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
        """Run it, as IPython does: also what awaits."""
        result = eval(self.code, namespace)
        if self.code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(result)


class Notebook:
    """The statements of a notebook, in order, by the names that they bind.

    `course` stands in for what the notebook does not bind itself; its cells, which the notebook has too, do not bind
    the `exercises`, whatever they call their own variables. `broken` says what is wrong with a cell that is no Python:
    name → "SyntaxError: invalid syntax (line 3 of your cell)".
    """

    def __init__(self, cells: Sequence[Cell], course: Notebook | None = None, exercises: Collection[str] = ()) -> None:
        self.broken: dict[str, str] = {}
        self.statements: list[Statement] = []
        self._sources = {cell.source for cell in cells}
        self._first = len(course.statements) if course else 0  # position; those before it are the course's
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._ends = [self._first]  # positions: before the first cell, after it, …
        for cell in cells:
            statements = self._of(cell, self._ends[-1])
            if course and cell.source in course._sources:
                for statement in statements:
                    statement.binds.difference_update(exercises)
            self.statements += statements
            self._ends.append(self._first + len(self.statements))
        self._given = course._binding if course else {}
        everything = [*self.statements, *(course.statements if course else [])]
        self._modules = set(_by_name(one for one in everything if isinstance(one.node, _IMPORTS)))
        self._defined = set(_by_name(one for one in everything if isinstance(one.node, _DEFINITIONS)))
        self._stars = [one for one in self.statements if _is_star(one.node)]
        for statement in self.statements:
            self._follow_calls(statement)
        self._binding = _by_name(self.statements)
        for statement in self.statements:
            self._reduce_changes(statement)

    def binds(self, name: str) -> bool:
        """Whether a cell of the notebook's own binds the name."""
        return name in self._binding

    def imports(self) -> list[Statement]:
        """Every import."""
        return [one for one in self.statements if isinstance(one.node, _IMPORTS)]

    def reads(self) -> set[str]:
        """The names that are read here and bound elsewhere."""
        return {name for one in self.statements for name in one.now | one.later if not self.binds(name)}

    def slices(self, names: Sequence[str], after: int = -1) -> list[list[Statement]]:
        """What `names` need, in the order in which it is to be run; the likeliest first, MAX_SLICES at most.

        `after` is how many cells stand before the names' test (-1: all).
        """
        here, end = self._ends[after], self._ends[-1]
        others = {one.position + 1 for name in names for one in self._binding.get(name, [])}
        views = [here, end, *sorted(others, reverse=True)]
        found: dict[tuple[int, ...], list[Statement]] = {}
        for widely, view in itertools.product((False, True), views):
            statements = self._slice(names, view, widely)
            found.setdefault(tuple(one.position for one in statements), statements)
        return list(found.values())[:MAX_SLICES]

    def _slice(self, names: Iterable[str], view: int, widely: bool) -> list[Statement]:
        before: dict[Statement, set[Statement]] = {}  # what must have run before a statement

        def provide(name: str, at: int, ready: set[Statement]) -> None:
            """Add to `ready` all that there must be so that `name` can be used at the position `at`."""
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
            provide(name, view, needed)
        order: dict[Statement, None] = {}
        started: set[Statement] = set()

        def place(statement: Statement) -> None:
            if statement not in started:
                started.add(statement)
                for one in sorted(before[statement], key=_position):
                    place(one)
                order[statement] = None

        for statement in sorted(needed, key=_position):
            place(statement)
        return list(order)

    def _bound(self, name: str, at: int, widely: bool) -> list[Statement]:
        """The statements that make what `name` is at a position: the last that binds it, and those that change it."""
        own = self._binding.get(name, [])
        earlier = [one for one in own if one.position < at]
        if not earlier:
            later = next((one for one in own if one.position > at), None) or next((one for one in own), None)
            if later is None:  # a star may import it, even where it is a built-in
                return self._stars + self._given.get(name, [])[:1]
            return self._bound(name, max(later.end, later.position + 1), widely)
        last = next((one for one in reversed(earlier) if one.certainly), earlier[0])
        found = [one for one in earlier if one.position >= last.position]
        widely = widely and name not in self._modules | self._defined
        return found + [
            one
            for one in self.statements[last.position + 1 - self._first : at - self._first]
            if name in one.changes or (widely and name in one.may_change)
        ]

    def _of(self, cell: Cell, start: int) -> list[Statement]:
        """The statements of a cell; none where it is no Python."""
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
            except SyntaxError as error:  # as `return` outside a function; IPython runs what stands above it
                self._note(cell, error)
        for statement in statements:
            statement.end = start + len(statements)
        return statements

    def _note(self, cell: Cell, error: SyntaxError) -> None:
        self.broken.setdefault(cell.name, f"SyntaxError: {error.msg} (line {error.lineno or 1} of your cell)")

    def _follow_calls(self, statement: Statement) -> None:
        """A function that binds global names binds them where it is called."""
        calls = [one.func for one in _at_once(statement.node) if isinstance(one, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        for one in self.statements:
            if one.sets and not called.isdisjoint(one.binds):
                statement.binds |= one.sets
                statement.certainly = False

    def _reduce_changes(self, statement: Statement) -> None:
        """Of calls on modules, those alone count as changes that ask for nothing else: `np.random.seed(0)`."""
        for node in _at_once(statement.node):
            if isinstance(node, ast.Expr) and (name := _called_on(node)) in self._modules:
                used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                if used & self._binding.keys() - self._modules:
                    statement.changes.discard(name)


def python(source: str) -> str:
    """A cell's text without IPython's syntax: what its magics would run in the notebook stands there alone."""
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
    """Puts None in the place of what IPython itself would do."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        root = node
        while isinstance(root, (ast.Call, ast.Attribute)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and root.id == "get_ipython":
            return ast.copy_location(ast.Constant(None), node)
        return self.generic_visit(node)


def _statement(node: ast.stmt, code: CodeType, position: int) -> Statement:
    made = Statement(node, code, position)
    _read(code, made, at_once=True, names=made.binds)
    simple = (*_FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.ImportFrom, ast.Expr, ast.With, ast.AsyncWith)
    made.certainly = isinstance(node, simple)  # `import a.b` binds `a` once more, and is needed as well
    for one in _at_once(node):
        if isinstance(one, (ast.Attribute, ast.Subscript)) and not isinstance(one.ctx, ast.Load):
            made.changes.add(_root(one))
        elif isinstance(one, ast.Expr):
            made.changes.add(_called_on(one))
        elif isinstance(one, (*_FUNCTIONS[:2], ast.ClassDef)):
            decorators = (one.func if isinstance(one, ast.Call) else one for one in one.decorator_list)
            made.changes.update(_root(decorator) for decorator in decorators if isinstance(decorator, ast.Attribute))
    for one in ast.walk(node):  # annotations that are kept as text
        written = (getattr(one, "annotation", None), getattr(one, "returns", None))
        made.later.update(name.id for part in written if part for name in ast.walk(part) if isinstance(name, ast.Name))
    shows = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _root(node.value.func) in _SHOWS
    if not (shows or isinstance(node, (*_FUNCTIONS, *_IMPORTS, ast.ClassDef, ast.Assert))):
        made.may_change = set(made.now)
    made.changes.discard(None)
    return made


def _read(code: CodeType, into: Statement, at_once: bool, names: set[str] | None = None) -> None:
    """Note the global names that this code reads and binds, and so for the functions in it.

    `names` takes what it stores by name, at the top level: in a class that is an attribute.
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
    """The nodes of what runs where it stands: a function's decorators and defaults, not its body."""
    yield node
    for name, value in ast.iter_fields(node):
        if not (isinstance(node, _FUNCTIONS) and name == "body"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _at_once(child)


def _called_on(node: ast.Expr) -> str | None:
    """The name that a method is called on: `x` of `x.y.append(1)`."""
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    return _root(call.func) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def _root(node: ast.AST) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_star(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


def _by_name(statements: Iterable[Statement]) -> dict[str, list[Statement]]:
    found: dict[str, list[Statement]] = defaultdict(list)
    for statement in statements:
        for name in statement.binds:
            found[name].append(statement)
    return dict(found)


def _position(statement: Statement) -> int:
    return statement.position
