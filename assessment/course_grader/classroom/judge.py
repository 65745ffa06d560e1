"""The step within nbgrader's pipeline that runs a learner's exercises: in the sandbox, outside of any notebook."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode, from_dict
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade

from course_grader.classroom import judge_process
from course_grader.sandbox import bubblewrap
from course_grader.sandbox.resource_monitor import ProcessTree
from course_grader.script import contract, static_analysis
from course_lib import data
from course_lib.authoring.master_format import Cell, Master
from course_lib.data.published import PUBLISHED
from course_lib.ranks import environment
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT
from course_lib.system.processes import Supervised

RANKS = 4  # that a notebook's scripts may start, at most
POLL_INTERVAL_S = 0.2
_KINDS = {"code": "course", "exercise": "exercise", "hidden": "test"}


class Judge(NbGraderPreprocessor):
    """Has each test judged (see `judge_process`), and puts what came of it into the test's cell.

    No cell of the notebook is run: marks come from the exercises alone, and a page without pictures is enough to say
    why points are lost.
    """

    master: Master  # set by whoever uses the class, as are the folder of the learner's files and
    folder: Path
    test_seconds: float  # that a test may take,
    seconds: float  # and all together

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Called by nbconvert for the notebook."""
        sources = {cell.id: cell.source for cell in nb.cells}
        accepted = bool(os.environ.get(environment.ACCEPTED))
        scripts = [] if accepted else list(_in_scripts(self.folder, self.master.path.parent))
        cells = [
            _described(cell, sources[cell.id], accepted, scripts)
            for cell in self.master.cells
            if cell.kind in _KINDS and not cell.markdown
        ]
        outputs = {answer["id"]: answer["outputs"] for answer in _answers(self._judge(cells))}
        dead = [judge_process.error("DeadKernelError", "")]
        for cell in filter(is_grade, nb.cells):
            cell.outputs = [from_dict(output) for output in outputs.get(cell.id, dead)]
        return nb, resources

    def _judge(self, cells: list[dict[str, Any]]) -> bytes:
        """What the process in the sandbox prints."""
        limits = contract.read().limits
        text = "".join(cell["source"] for cell in cells)
        text += "".join(path.read_text(errors="replace") for path in self.folder.glob("*.py"))
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary)
            spec = place / "spec.json"
            settings = {"folder": str(self.folder), "seconds": self.test_seconds, "total": self.seconds}
            spec.write_text(json.dumps({**settings, "memory": int(limits.memory * 2**30), "cells": cells}))
            readable = {spec: spec, self.folder: self.folder, **{path: path for path in _lessons(self.master)}}
            env = {**environment.TENSORFLOW, "MPLBACKEND": "agg"}
            if images := data.images_limit():
                env[environment.SLICE] = str(images)
            for name in (name for name in PUBLISHED if name in text):
                bundle = data.bundle(name, place, limit=images)
                readable.update(bundle.files)
                env.update(bundle.env)
            command = bubblewrap.command(
                [sys.executable, "-m", judge_process.__name__, str(spec)], readable, env, place / "links"
            )
            with (place / "answers").open("w+b") as answers:
                with Supervised(
                    command, temporary=place, cwd="/", stdout=answers, stderr=subprocess.DEVNULL
                ) as process:
                    tree = ProcessTree(process.pid, not bubblewrap.available())
                    most, too_many = limits.processes * RANKS, False
                    while process.poll() is None:
                        if too_many := tree.usage(most).processes > most:
                            tree.kill()
                            break
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(POLL_INTERVAL_S)
                if process.returncode and not too_many:
                    raise CourseError(
                        f"The process that judges the exercises failed (exit code {process.returncode}): see "
                        "`course doctor`, then grade again."
                    )
                answers.seek(0)
                return answers.read()


def _described(cell: Cell, source: str, accepted: bool, scripts: list[str]) -> dict[str, Any]:
    """A cell for the process: `source` is the learner's, the names of an exercise are the course's. What is `accepted`
    has been looked at; `scripts` is what has to be looked at in the learner's scripts."""
    exercise = cell.kind == "exercise"
    return {
        "id": cell.id,
        "kind": _KINDS[cell.kind],
        "source": source,
        "names": list(_defined(cell.source)) if exercise else [],
        "look": (static_analysis.findings(source) if not accepted else []) if exercise else scripts,
    }


def _in_scripts(folder: Path, given: Path) -> Iterator[str]:
    """What has to be looked at in the learner's scripts, and is not in those that the course has given."""
    for path in sorted(folder.glob("*.py")):
        own, course = static_analysis.findings(path.read_bytes()), given / path.name
        known = set(map(_without_line, static_analysis.findings(course.read_bytes()))) if course.is_file() else set()
        yield from (f"{path.name}, {finding}" for finding in own if _without_line(finding) not in known)


def _without_line(finding: str) -> str:
    """What is found, wherever it is; a part of a package that has been given is no other thing."""
    what = finding.split(" ", 2)[2]
    return what.partition(".")[0] if what.startswith("imports ") and "course_lib" not in what else what


def _defined(source: str) -> Iterator[str]:
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield from (
                node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)
            )


def _lessons(master: Master) -> Iterator[Path]:
    """What of the labs the checks are made of; no master is among it."""
    lab = ROOT / "labs" / master.assignment
    yield from (path for path in (ROOT / "labs" / "__init__.py", lab / "lessons", lab / "recorded") if path.exists())


def _answers(printed: bytes) -> Iterator[dict[str, Any]]:
    for line in printed.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):  # cut short
            yield json.loads(line)
