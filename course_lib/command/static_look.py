"""What a learner's code has that no exercise and no training needs: found by reading it, without running it.

A finding proves nothing, and costs nothing: code that has one waits until a person has looked at it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# By their first names; of the course's own package what trains.
_MODULES = _words(
    "__future__ abc argparse bisect collections contextlib copy csv dataclasses datetime decimal enum fractions "
    "functools gc glob h5py hashlib heapq horovod io itertools json keras logging math matplotlib numbers numpy os "
    "pandas pathlib pprint queue random re shutil statistics sys tempfile tensorflow textwrap time tqdm typing uuid "
    "warnings"
)
_COURSE = _words("collectives compression data layers models noise optimizers precision schedules statistics")
_NOT = ("course_lib.data.marks", "logging.config", "logging.handlers")
_USUAL = _words("np tf hvd pd plt")  # names of modules, which the notebook may have imported
_BUILT_INS = _words(
    "__builtins__ __import__ __loader__ __spec__ breakpoint compile delattr eval exec getattr globals locals setattr "
    "vars"
)
_OF_MODULES = {
    "gc": _words("collect"),
    "os": _words(
        "PathLike cpu_count devnull environ fsdecode fspath fsync getcwd getenv getpid linesep listdir makedirs mkdir "
        "name path remove rename replace scandir sched_getaffinity sep stat unlink urandom walk"
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
_OF_NAMED_TUPLES = _words("_asdict _fields _replace")
_STREAMS = ("sys.stdout", "sys.stderr")  # which anybody may put elsewhere
# In a string: what `format` takes for a way into an object, and who asks for the marks on the images.
_WAYS = re.compile(
    r"\{[^{}]*[.\[]_|\b(?:f_(?:back|builtins|globals|locals)|tb_(?:frame|next))\b|COURSE_MARKS"
    r"|__(?:bases|builtins|closure|code|dict|globals|import|mro|subclasses|traceback)__"
)


def findings(source: str) -> list[str]:
    """A phrase for each thing that a person should look at, with its line; none for what is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [f"line {line} {what}" for line, what in dict.fromkeys(sorted(_found(tree)))]


def _found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    modules = dict(_modules(tree))
    own = set(_bound(tree, modules))
    owners = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((node.lineno, f"imports {name}") for name in _imported(node) if not _is_known(name))
        elif isinstance(node, ast.Name):
            if node.id in _BUILT_INS or (node.id in modules and id(node) not in owners and node.id not in own):
                yield node.lineno, f"uses {node.id}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (way := _WAYS.search(node.value)):
            yield node.lineno, f"has {way[0][:40]} in a string"
        elif type(node).__name__ == "MatchClass":  # Python 3.9 has none
            hidden = [name for name in node.kwd_attrs if name.startswith("_") or name in _ATTRIBUTES]
            yield from ((node.lineno, f"reaches for {name}") for name in hidden)
        elif isinstance(node, ast.Attribute):
            if _is_inner(node, modules) and (node.attr, owners.get(id(node))) != ("__class__", "__name__"):
                yield node.lineno, f"reaches for {_written(node)}"
            elif _changes(node, own):
                yield node.lineno, f"changes {_written(node)}"


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    return [f"{module}.{alias.name}" for alias in node.names]


def _is_known(name: str) -> bool:
    first, *rest = name.split(".")
    if name.startswith(_NOT):
        return False
    if first == "course_lib":
        return bool(rest) and rest[0] in _COURSE
    if first in _OF_MODULES and rest:
        return rest[0] in _OF_MODULES[first]
    return first in _MODULES and not any(part in _ATTRIBUTES or part.startswith("_") for part in rest)


def _modules(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, module) of what is imported whole, and of what the notebook may have imported."""
    yield from ((name, name) for name in (*_OF_MODULES, *_USUAL))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2 for alias in node.names
            )


def _is_inner(node: ast.Attribute, modules: dict[str, str]) -> bool:
    root = node.value.id if isinstance(node.value, ast.Name) else ""
    if modules.get(root) in _OF_MODULES:
        return node.attr not in _OF_MODULES[modules[root]]
    if (root, node.attr) in (("data", "marks"), ("logging", "config")):
        return True
    if node.attr in ("format", "format_map"):
        return not isinstance(node.value, (ast.Constant, ast.JoinedStr))
    mine = root in ("self", "cls")
    if node.attr.startswith("__"):
        return node.attr not in _SPECIAL and (node.attr.endswith("__") or not mine)
    return node.attr in _ATTRIBUTES or (node.attr.startswith("_") and not mine and node.attr not in _OF_NAMED_TUPLES)


def _changes(node: ast.Attribute, own: set[str]) -> bool:
    """Whether an attribute is given to what is not the code's own."""
    root = _root(node) if isinstance(node.ctx, (ast.Store, ast.Del)) else ""
    return bool(root) and root not in own and ast.unparse(node) not in _STREAMS


def _bound(tree: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    """Names that the code itself gives to what it makes; another name for something that is there is none, unless that
    is a part of what it makes."""
    strange = {*modules, *(alias.asname or alias.name for alias in _aliases(tree))}
    made = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made.update(*map(_stored, node.targets))
    taken = {"self", "cls", *made} - strange
    renamed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            renamed.update(() if _root(node.value) in taken else map(id, _targets(node.targets)))
        elif isinstance(node, (ast.For, ast.comprehension)) and _shows(node.iter, strange):
            renamed.update(map(id, _targets([node.target])))
        elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Tuple, ast.List)):
            renamed.update(map(id, _targets(node.targets)) if _shows(node.value, strange) else ())
    yield from made
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in renamed:
            yield node.id


def _aliases(tree: ast.AST) -> Iterator[ast.alias]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from node.names


def _targets(nodes: list[ast.expr]) -> Iterator[ast.Name]:
    for node in nodes:
        yield from (part for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))


def _stored(node: ast.expr) -> set[str]:
    return {name.id for name in _targets([node])}


def _shows(node: ast.expr, strange: set[str]) -> bool:
    """Whether something strange itself, or a part of it that is not called, is among the values."""
    called = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    values = [node, *(element for part in ast.walk(node) for element in getattr(part, "elts", ()))]
    return any(
        isinstance(value, (ast.Name, ast.Attribute)) and _root(value) in strange and id(value) not in called
        for value in values
    )


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _written(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"….{node.attr}"
