"""Each test asserts something."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("test_*.py"))


def asserts(node):
    """This statement or call fails where something is wrong."""
    if isinstance(node, ast.Assert):
        # A picture is never empty, and a constant never false.
        drawn = isinstance(node.test, ast.Call) and getattr(node.test.func, "attr", "") == "png"
        return not drawn and not isinstance(node.test, (ast.Constant, ast.Tuple))
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    name = called.rpartition(".")[2]
    return (
        called in {"pytest.raises", "pytest.warns", "pytest.fail"}
        or name == "check_returncode"
        or name.startswith("assert_")  # of NumPy's testing and of mocks
        or any(keyword.arg == "check" and ast.unparse(keyword.value) == "True" for keyword in node.keywords)
    )


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def used(function):
    """The names that a function calls, and those of its fixtures."""
    arguments = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    called = {getattr(call, "id", getattr(call, "attr", "")) for call in calls}
    return called | {argument.arg for argument in arguments}


def asserting(functions, helpers=frozenset()):
    """The names of the functions that assert, by themselves or by one that they use; `helpers` are known to."""
    names = {function.name for function in functions if any(map(asserts, ast.walk(function)))} | helpers
    while more := {function.name for function in functions if used(function) & names} - names:
        names |= more
    return names


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def without_assertion(path):
    shared = [folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").is_file()]
    helpers = frozenset(asserting([function for file in shared for function in functions(parsed(file))]))
    found = functions(parsed(path))
    names = asserting(found, helpers)
    return [function.name for function in found if function.name.startswith("test_") and function.name not in names]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(TESTS)) for path in FILES])
def test_each_test_asserts_something(path):
    assert without_assertion(path) == []


@pytest.mark.parametrize(
    ("body", "enough"),
    [
        ("print(1)", False),
        ("assert True", False),
        ("assert figure.png()", False),
        ("assert len(figure.png()) == 3", True),
        ("with pytest.raises(ValueError):\n        int('x')", True),
        ("np.testing.assert_allclose(1, 1)", True),
        ("subprocess.run(['true'], check=True)", True),
        ("subprocess.run(['true'])", False),
        ("helper(3)", True),
        ("other(3)", False),
    ],
)
def test_what_counts_as_an_assertion(tmp_path, body, enough):
    path = tmp_path / "test_some.py"
    path.write_text(f"def helper(x):\n    assert x\n\n\ndef other(x):\n    print(x)\n\n\ndef test_one():\n    {body}\n")
    assert (without_assertion(path) == []) is enough
