"""The directions of imports, as docs/ARCHITECTURE.md has them: downwards only, in no circle, never from lab to lab."""

from __future__ import annotations

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest

from course_lib.system.paths import ROOT

# From the bottom up: each imports what stands below it, and what stands beside it in no circle.
LAYERS = (
    ("course_lib.system",),
    *[("course_lib.data", "course_lib.models", "course_lib.optimizers", "course_lib.collectives", "course_lib.cost",
       "course_lib.precision", "course_lib.compression", "course_lib.parallel",
       "course_lib.statistics", "course_lib.bfloat16")],
    ("course_lib.ranks",),
    ("course_lib.notebook", "course_lib.authoring"),
    ("labs", "course_grader"),  # neither knows of the other
    ("course_lib.command",),
    ("containers.launcher",),
)  # fmt: skip
ROOTS = {
    ROOT: ("course_lib/**/*.py", "labs/*/lessons/*.py", "containers/launcher/**/*.py"),
    ROOT / "assessment": ("course_grader/**/*.py",),
}
MAX_ENTRIES = 16  # of a folder, to be read at a glance
MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root, patterns in ROOTS.items()
    for path in sorted(path for pattern in patterns for path in root.glob(pattern))
}


def imported(name: str) -> set[str]:
    """The project's modules that a module imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            both = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= both or {node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{name}: no relative imports"
    return found - {name}


IMPORTS = {name: imported(name) for name in MODULES}


def layer(name: str) -> int:
    return next(
        number
        for number, packages in enumerate(LAYERS)
        if any(name == package or name.startswith(f"{package}.") for package in packages)
    )


def lab(name: str) -> str:
    return (re.match(r"labs\.\w+", name) or [""])[0]


def test_the_modules_are_found():
    assert len(MODULES) > 150
    assert "course_lib.system.errors" in IMPORTS["course_lib.ranks.launch"]
    assert "course_lib.ranks.run_record" in IMPORTS["course_grader.script.criteria"]


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("course_lib", "labs")])
def test_imports_go_down(name):
    above = {other for other in IMPORTS[name] if other != "course_lib" and layer(other) > layer(name)}
    assert not above
    aside = {other for other in IMPORTS[name] if lab(other) != lab(name) and layer(other) == layer(name)}
    assert not aside, "a lab imports neither another lab nor the grader, nor the grader a lab"


def test_there_is_no_circle():
    try:
        tuple(TopologicalSorter(IMPORTS).static_order())
    except CycleError as circle:
        pytest.fail(" → ".join(reversed(circle.args[1])))


def test_folders_can_be_read_at_a_glance():
    """Notebooks' own files apart: a lab lists two for each notebook."""
    long = {}
    for folder in {path.parent for path in MODULES.values()}:
        entries = [path for path in folder.iterdir() if path.name not in ("__pycache__", "__init__.py")]
        entries = [path for path in entries if not re.match(r"(checks|figures)_\d[a-z]\.py", path.name)]
        if len(entries) > MAX_ENTRIES:
            long[str(folder.relative_to(ROOT))] = len(entries)
    assert long == {}
