"""What a learner's code has that no exercise and no training needs: found by reading it, without running it.

A finding proves nothing, and costs nothing: code that has one waits until a person has looked at it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# By their first names; of the course's own package what trains.
_MODULES = _words(
    "__future__ abc argparse bisect collections contextlib copy csv dataclasses datetime decimal enum fractions "
    "functools heapq horovod itertools json keras logging math matplotlib numbers numpy os pandas pathlib "
    "pprint random re shutil statistics string sys tempfile tensorflow textwrap time typing warnings"
)
_COURSE = _words("data layers models noise optimizers schedules")
_BUILT_INS = _words(
    "__builtins__ __import__ __loader__ __spec__ breakpoint compile delattr eval exec getattr globals input locals "
    "setattr vars"
)
_OF_MODULES = {
    "os": _words(
        "PathLike cpu_count environ fsdecode fspath fsync getcwd getenv getpid linesep listdir makedirs mkdir path "
        "remove rename replace scandir sep stat unlink urandom walk"
    ),
    "sys": _words("argv exit float_info maxsize platform stderr stdout version version_info"),
}
# Ways from a module or an object into the interpreter.
_ATTRIBUTES = _words(
    "attrgetter builtins cr_frame ctypes ctypeslib eval exec f_back f_builtins f_globals f_locals f2py gc "
    "get_type_hints gi_frame importlib inspect methodcaller modules os runstring subprocess sys tb_frame tb_next"
)
_SPECIAL = _words(
    "__call__ __contains__ __doc__ __enter__ __eq__ __exit__ __file__ __getitem__ __init__ __iter__ __len__ __name__ "
    "__next__ __repr__ __setitem__ __str__ __version__"
)


def findings(source: str) -> list[str]:
    """A phrase for each thing that a person should look at, with its line; none for what is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [f"line {line} {what}" for line, what in dict.fromkeys(sorted(_found(tree)))]


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    own, modules = set(_bound(tree)), dict(_modules(tree))
    owners = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((node.lineno, f"imports {name}") for name in _imported(node) if not _is_known(name))
        elif isinstance(node, ast.Name):
            if node.id in _BUILT_INS or (modules.get(node.id) in _OF_MODULES and id(node) not in owners):
                yield node.lineno, f"uses {node.id}"
        elif type(node).__name__ == "MatchClass":  # Python 3.9 has none
            hidden = [name for name in node.kwd_attrs if name.startswith("_") or name in _ATTRIBUTES]
            yield from ((node.lineno, f"reaches for {name}") for name in hidden)
        elif isinstance(node, ast.Attribute):
            if _is_inner(node, modules):
                yield node.lineno, f"reaches for {_written(node)}"
            elif isinstance(node.ctx, (ast.Store, ast.Del)) and (root := _root(node)) and root not in own:
                yield node.lineno, f"changes {_written(node)}"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    return [f"{module}.{alias.name}" for alias in node.names]


def _is_known(name: str) -> bool:
    first, *rest = name.split(".")
    if first == "course_lib":
        return bool(rest) and rest[0] in _COURSE
    if first in _OF_MODULES and rest:
        return rest[0] in _OF_MODULES[first]
    return first in _MODULES and not any(part in _ATTRIBUTES or part.startswith("_") for part in rest)


def _modules(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, module) of what is imported whole, and of `os` and `sys`, which the notebook may have imported."""
    yield from ((name, name) for name in _OF_MODULES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname, alias.name) for alias in node.names if alias.asname)


def _is_inner(node: ast.Attribute, modules: dict[str, str]) -> bool:
    root = node.value.id if isinstance(node.value, ast.Name) else ""
    if modules.get(root) in _OF_MODULES:
        return node.attr not in _OF_MODULES[modules[root]]
    if node.attr.startswith("__"):
        return node.attr not in _SPECIAL
    return node.attr in _ATTRIBUTES or (node.attr.startswith("_") and root not in ("self", "cls"))


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that the code itself gives to what it makes; another name for something that is there is none."""
    renamed = {
        id(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute))
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in renamed:
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ClassDef):
            yield node.name


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _written(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"….{node.attr}"
