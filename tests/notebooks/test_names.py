"""What the notebooks, the experiments and their cells that are not executed here use of the library is there."""

from __future__ import annotations

import ast
import importlib
import types

import pytest

from course_lib.system.paths import ROOT

PATTERNS = ("labs/*/[0-9]*.py", "labs/*/experiments/*.py", "assessment/master/*.py")
FILES = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_name_is_there(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("course_lib", "labs"):
            exec(ast.unparse(node), modules)  # fails where a name is missing
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found = {name: it for name, it in modules.items() if isinstance(it, types.ModuleType) and name not in taken}
    assert found or modules
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in found:
            module = found[node.value.id]
            assert hasattr(module, node.attr) or importlib.import_module(f"{module.__name__}.{node.attr}")
