"""What a person should read in a script before it counts, found without running it: the list is `flags.toml`."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FLAGS = Path(__file__).with_name("flags.toml")
_BUILT_IN = ("eval", "exec", "compile", "__import__")


def findings(source: str | bytes) -> list[str]:
    """A phrase with its line for each thing that is on the list, in the order of the lines; none for what is no Python.

    Bytes are read as Python reads a file, in the encoding that they name.
    """
    try:
        tree = ast.parse(source)
        found = sorted(set(_found(tree, _aliases(tree))))
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        return ["line 1 begins what is nested too deeply to be read"]
    return list(dict.fromkeys(f"line {line} {what}" for line, what in found))


@functools.cache
def _flags() -> dict[str, dict[str, str]]:
    return tomllib.loads(FLAGS.read_text(encoding="utf-8"))


def _found(tree: ast.Module, aliases: dict[str, str]) -> Iterator[tuple[int, str]]:
    flags = _flags()
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}  # of a longer name
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in _imported(node).values():
                yield from ((node.lineno, f"{what} ({name})") for what in _listed(name, flags["names"]))
        elif isinstance(node, (ast.Name, ast.Attribute)) and (name := _name(node, aliases)):
            if isinstance(node.ctx, ast.Store) and isinstance(node, ast.Attribute):
                yield from ((node.lineno, f"{what} ({name})") for what in _listed(name, flags["patches"]))
            else:
                yield from ((node.lineno, f"{what} ({name})") for what in _listed(name, flags["names"]))
        elif isinstance(node, ast.Call) and _name(node.func, aliases) == "builtins.setattr" and node.args:
            name = _name(node.args[0], aliases) or ""
            yield from ((node.lineno, f"{what} ({name})") for what in _listed(f"{name}.", flags["patches"]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for start, what in flags["files"].items():
                if node.value.startswith(start):
                    yield node.lineno, f"{what} ({node.value[:40]})"


def _listed(name: str, table: dict[str, str]) -> list[str]:
    """What the list says of a name: that of the first entry that the name is, or is below."""
    return [what for entry, what in table.items() if name == entry or name.startswith((f"{entry}.", _cut(entry)))][:1]


def _cut(entry: str) -> str:
    """How names begin that an entry stands for as a part of a word, as "os.exec"; else what no name begins with."""
    return entry if entry in ("os.exec", "os.spawn") else "\0"


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Name in the script → what it was imported as."""
    known: dict[str, str] = {**{name: f"builtins.{name}" for name in (*_BUILT_IN, "setattr")}}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            known.update(_imported(node))
    return known


def _imported(node: Any) -> dict[str, str]:
    """Name in the script → full name, of an import statement."""
    if isinstance(node, ast.ImportFrom):
        module = f"{node.module}." if node.module and not node.level else ""
        return {alias.asname or alias.name: f"{module}{alias.name}" for alias in node.names}
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for alias in node.names
    } | {alias.name: alias.name for alias in node.names if not alias.asname}


def _name(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """The full name of `a.b.c`, where `a` is imported or built in; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(parts)])
