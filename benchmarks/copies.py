"""Count how many copies of a script are listed, and how many independent scripts are listed as copies.

    python benchmarks/copies.py

Prints the table of docs/copies.md. The pairs are those of the ten independently written conversions in
tests/course_grader/conversions, and of copies of them with several changes. It takes some seconds.
"""

from __future__ import annotations

import ast
import builtins
import functools
import io
import itertools
import keyword
import platform
import random
import re
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import numpy as np

from course_grader.classroom import copies
from course_lib.authoring import conversions
from course_lib.system.paths import ROOT

REFERENCE = "reference/assessment.py"
FOLDER = ROOT / "tests" / "course_grader" / "conversions"
DUMMIES = (
    "checked = 3 * 7 + 1\n",
    "extra_output = False\n",
    "numbers = [1, 2, 3]\n",
    "assert len(str(5)) == 1\n",
    "setting = {'a': 1}.get('a')\n",
)


def independent() -> dict[str, str]:
    """Return the ten conversions: name → text."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}


def renamed(text: str, most: int | None = None) -> str:
    """Change the names that the script defines, at most the first `most` of them; default: all."""
    nodes = list(ast.walk(ast.parse(text)))
    given = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    given |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    given |= {node.asname for node in nodes if isinstance(node, ast.alias) and node.asname}
    fixed = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    fixed |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    fixed |= set(re.findall(r"\w+", " ".join(strings))) | set(dir(builtins)) | set(keyword.kwlist) | {"self"}
    names = sorted(name for name in given - fixed if not name.startswith("_"))[:most]
    new = {name: f"thing_{number}" for number, name in enumerate(names)}
    return re.sub(r"(?<![.\w])\w+\b", lambda found: new.get(found[0], found[0]), text)


def laid_out_anew(text: str) -> str:
    """Remove comments and docstrings; change quotes, brackets, line breaks and blank lines."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree) + "\n"


def reordered(text: str) -> str:
    """Reverse the order of the functions and classes at the top level."""
    lines = text.splitlines(keepends=True)
    blocks = [_span(node) for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    new, end = [], 0
    for (start, stop), (other_start, other_stop) in zip(blocks, reversed(blocks)):
        new += lines[end:start] + lines[other_start:other_stop]
        end = stop
    return "".join(new + lines[end:])


def padded(text: str) -> str:
    """Insert five lines that do nothing."""
    lines = text.splitlines(keepends=True)
    nodes = ast.parse(text).body
    places = sorted(random.Random(1).sample(range(1, len(nodes)), min(len(DUMMIES), len(nodes) - 1)))
    for place, dummy in reversed(list(zip(places, DUMMIES))):
        lines.insert(_span(nodes[place])[0], dummy)
    return "".join(lines)


def other_numbers(text: str) -> str:
    """Change every number."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token in reversed([token for token in tokens if token.type == tokenize.NUMBER]):
        row, place = token.start
        lines[row - 1] = lines[row - 1][:place] + "1" + lines[row - 1][place:]
    return "".join(lines)


def disguised(text: str) -> str:
    """Make all these changes, except that of the numbers."""
    return functools.reduce(lambda done, step: step(done), (renamed, laid_out_anew, reordered, padded), text)


DISGUISES: dict[str, Callable[[str], str]] = {
    "copies: all names changed": renamed,
    "copies: comments removed, code reformatted": laid_out_anew,
    "copies: functions in reverse order": reordered,
    "copies: five lines added that do nothing": padded,
    "copies: all four changes": disguised,
    "copies: every number changed": other_numbers,
}


def _span(node: ast.stmt) -> tuple[int, int]:
    """Return the first line of a statement, from 0, and the line after its last."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1, node.end_lineno


def by_the_recipe() -> dict[str, str]:
    """Return conversions that follow lab 2's steps exactly, with few or no changes."""
    folder = conversions.ASSESSMENT
    names = [name for name in conversions.steps(folder) if name not in copies.REFERENCE_ALONE]
    plain = conversions.converted(names, folder).replace("RATE, EPOCHS * steps", "RATE * hvd.size(), EPOCHS * steps")
    broadcast, metrics = (
        "BroadcastGlobalVariablesCallback(0)]\n",
        "callbacks.append(hvd.callbacks.MetricAverageCallback())\n",
    )
    sgd, adam = (
        "tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True)",
        "tf.keras.optimizers.Adam(0.001 * hvd.size())",
    )
    reworded = plain.replace("if hvd.rank() == 0 else 0", "* (hvd.rank() == 0)").replace(
        'if hvd.rank() == 0:\n    print(f"Accuracy', 'if hvd.rank() != 0:\n    raise SystemExit\nprint(f"Accuracy'
    )
    return {
        "plain": plain,
        "metrics": plain.replace(broadcast, broadcast + metrics),
        "adam": plain.replace(sgd, adam),
        "reworded": reworded,
    }


def measure() -> list[Row]:
    """Return the rows of the table. Each disguise has a class of twenty: the ten scripts and a copy of each."""
    texts, recipe = independent(), by_the_recipe()
    alone, alike = similarities(texts), similarities(recipe)
    classes = {
        kind: similarities({**texts, **{f"copy of {name}": disguise(text) for name, text in texts.items()}})
        for kind, disguise in DISGUISES.items()
    }
    reference = (conversions.ASSESSMENT / REFERENCE).read_text(encoding="utf-8")
    copied = similarities({"copy": disguised(reference)})
    each = itertools.combinations
    others = [(a, f"copy of {b}") for a, b in itertools.permutations(texts, 2)]
    return [
        Row("independent scripts, all pairs", [alone[pair] for pair in each(texts, 2)]),
        Row("independent scripts and the reference", [alone[name, REFERENCE] for name in texts]),
        Row(
            "independent scripts and copies of other scripts",
            [one[pair] for one in classes.values() for pair in others],
        ),
        Row("exactly lab 2’s steps, all pairs", [alike[pair] for pair in each(recipe, 2)]),
        Row("exactly lab 2’s steps, and the reference", [alike[name, REFERENCE] for name in recipe]),
        *(Row(kind, [one[name, f"copy of {name}"] for name in texts]) for kind, one in classes.items()),
        Row("copy of the reference: all four changes", [copied["copy", REFERENCE]]),
    ]


def similarities(scripts: Mapping[str, str]) -> dict[tuple[str, str], Found]:
    """Return the result for each pair of a class, and for each script with the reference."""
    raw = {name: text.encode() for name, text in scripts.items()}
    with tempfile.TemporaryDirectory() as folder:
        listed = {(pair.first.name, pair.second.name) for pair in copies.write(Path(folder), raw, {})}
        with mock.patch.multiple(copies, THRESHOLD=0.0, MIN_MATCH=1):
            pairs = copies.write(Path(folder), raw, {})
    names = ((pair.first.name, pair.second.name) for pair in pairs)
    return defaultdict(Found, {name: Found(pair.similarity, name in listed) for name, pair in zip(names, pairs)})


@dataclass(frozen=True)
class Found:
    """The similarity of a pair, and whether it is listed."""

    similarity: float = 0.0
    listed: bool = False


@dataclass(frozen=True)
class Row:
    """Pairs of one kind."""

    kind: str
    pairs: list[Found]

    @property
    def listed(self) -> int:
        return sum(pair.listed for pair in self.pairs)

    def __str__(self) -> str:
        low, middle, high = np.quantile([pair.similarity for pair in self.pairs], (0, 0.5, 1))
        return f"| {self.kind} | {len(self.pairs)} | {self.listed} | {low:.2f} | {middle:.2f} | {high:.2f} |"


def main() -> None:
    versions = f"copydetect {version('copydetect')}, pygments {version('pygments')}, Python {platform.python_version()}"
    print(f"{date.today().isoformat()}, {versions}, threshold {copies.THRESHOLD:.2f}\n")
    print("| pairs of scripts | pairs | listed | least similar | median | most similar |\n|---|---|---|---|---|---|")
    for row in measure():
        print(row)


if __name__ == "__main__":
    main()
