"""Find the parts of a script that an instructor must review, without running it. `flags.toml` lists them."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FLAGS = Path(__file__).with_name("flags.toml")
_BUILT_IN = ("eval", "exec", "compile", "__import__")


def findings(source: str | bytes) -> list[str]:
    """Return a phrase with a line number for each flag in a script, sorted by line; [] if it is not valid Python.

    Bytes are decoded as Python decodes a file, with the encoding that they declare.
    """
    try:
        tree = ast.parse(source)
        flags = sorted(set(_find_flags(tree, _aliases(tree))))
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        return ["line 1 starts code that is nested too deeply to be checked"]
    return list(dict.fromkeys(f"line {line} {effect}" for line, effect in flags))


@functools.cache
def _flags() -> dict[str, dict[str, str]]:
    return tomllib.loads(FLAGS.read_text(encoding="utf-8"))


def _find_flags(tree: ast.Module, aliases: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield (line, phrase) for each flag."""
    flags = _flags()
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}  # `a.b` of `a.b.c`
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        table, names = _names(node, aliases)
        for name in names:
            if effect := _effect(name, flags[table]):
                yield node.lineno, f"{effect} ({name.rstrip('.')})"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for prefix, effect in flags["files"].items():
                if node.value.startswith(prefix):
                    yield node.lineno, f"{effect} ({node.value[:40]})"


def _names(node: ast.AST, aliases: dict[str, str]) -> tuple[str, list[str]]:
    """Return the table of flags.toml for a node, and the full names that the node uses."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return "names", list(_imported(node).values())
    if isinstance(node, ast.Call) and _full_name(node.func, aliases) == "builtins.setattr" and node.args:
        return "patches", [f"{_full_name(node.args[0], aliases) or ''}."]
    if isinstance(node, (ast.Name, ast.Attribute)) and (name := _full_name(node, aliases)):
        is_patch = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        return "patches" if is_patch else "names", [name]
    return "names", []


def _effect(name: str, table: dict[str, str]) -> str:
    """Return the phrase of the table's first entry that is the name or a parent of it; "" if there is none."""
    return next((effect for entry, effect in table.items() if name == entry or name.startswith(_prefixes(entry))), "")


def _prefixes(entry: str) -> tuple[str, ...]:
    """Return the prefixes of names that an entry covers; "os.exec" also covers `os.execv`."""
    return (f"{entry}.", entry) if entry in ("os.exec", "os.spawn") else (f"{entry}.",)


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Return name in the script → full name, for imported names and built-in functions."""
    aliases = {name: f"builtins.{name}" for name in (*_BUILT_IN, "setattr")}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            aliases.update(_imported(node))
    return aliases


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return name in the script → full name, for one import statement."""
    if isinstance(node, ast.ImportFrom):
        module = f"{node.module}." if node.module and not node.level else ""
        return {alias.asname or alias.name: f"{module}{alias.name}" for alias in node.names}
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for alias in node.names
    } | {alias.name: alias.name for alias in node.names if not alias.asname}


def _full_name(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """Return the full name of `a.b.c` if `a` is imported or built in, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(parts)])
