"""Run the exercises of a learner's notebook against their tests, in the sandbox and without a Jupyter kernel."""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_grader.classroom import exercise_process
from course_grader.classroom.learners_notebook import LearnersNotebook
from course_grader.sandbox import bubblewrap
from course_grader.sandbox.resource_monitor import ProcessTree
from course_grader.script import contract
from course_lib import data
from course_lib.authoring.master_format import Master
from course_lib.data.published import PUBLISHED
from course_lib.ranks import environment
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT
from course_lib.system.processes import Supervised

RANKS = 4  # the most that a notebook's scripts may start
POLL_INTERVAL_S = 0.2


def run(
    notebook: LearnersNotebook, master: Master, folder: Path, seconds: float, total: float
) -> dict[str, list[dict[str, Any]]]:
    """Run the tests; return the id of each test's cell → its outputs, in the format of a notebook.

    Args:
        notebook, master: the learner's notebook and the course's.
        folder: the learner's files.
        seconds: time limit of a test; `total`: of all tests together.

    Raises CourseError if the sandbox fails.
    """
    refused = notebook.refusals(master)
    tests = [test for test in _tests(master) if test["id"] not in refused]
    course = [cell.source for cell in master.cells if cell.kind in ("code", "editable") and not cell.markdown]
    cells = [{"id": name, "source": source} for name, source in notebook.cells]
    spec = {"folder": str(folder), "seconds": seconds, "total": total, "cells": cells, "course": course, "tests": tests}
    outputs = {answer["id"]: answer["outputs"] for answer in _answers(_run(spec, master, folder))}
    not_judged = {
        name: [exercise_process.error(exercise_process.NOT_JUDGED, reason)] for name, reason in refused.items()
    }
    dead = {test["id"]: [exercise_process.error("DeadKernelError", "")] for test in tests}
    return {**dead, **outputs, **not_judged}


def _tests(master: Master) -> Iterator[dict[str, Any]]:
    """Yield the tests in the format of `exercise_process`."""
    exercises = {name: cell.id for cell in master.cells if cell.kind == "exercise" for name in _defined(cell.source)}
    for cell in master.cells:
        if cell.kind == "hidden":
            read = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
            names = [name for name in exercises if name in read]
            yield {
                "id": cell.id,
                "source": cell.source,
                "points": cell.points,
                "exercise": exercises[names[0]] if names else "",
                "names": names,
                "missing": f"the notebook has no cell of this exercise, and {_listing(names)} is "
                "not defined in another cell. The notebook may be older than the exercise: ask the learner to solve "
                "the exercise in the current notebook.",
            }


def _defined(source: str) -> Iterator[str]:
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            names = (node for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name))
            yield from (node.id for node in names)


def _listing(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _run(spec: dict[str, Any], master: Master, folder: Path) -> bytes:
    """Run `exercise_process` in the sandbox; return what it prints."""
    limits = contract.read().limits
    text = json.dumps(spec) + "".join(path.read_text(errors="replace") for path in folder.glob("*.py"))
    with tempfile.TemporaryDirectory() as temporary_name:
        temporary = Path(temporary_name)
        file = temporary / "spec.json"
        file.write_text(json.dumps({**spec, "memory": int(limits.memory * 2**30)}))
        readable = {file: file, folder: folder, **{path: path for path in _lessons(master)}}
        env = {**environment.TENSORFLOW, "MPLBACKEND": "agg"}
        if images := data.images_limit():
            env[variables.SLICE] = str(images)
        for name in (name for name in PUBLISHED if name in text):
            bundle = data.bundle(name, temporary, limit=images)
            readable.update(bundle.files)
            env.update(bundle.env)
        command = [sys.executable, "-m", exercise_process.__name__, str(file)]
        command = bubblewrap.command(command, readable, env, temporary / "links")
        with (temporary / "answers").open("w+b") as answers:
            pipes = {"stdout": answers, "stderr": subprocess.DEVNULL}
            with Supervised(command, temporary=temporary, cwd="/", **pipes) as process:
                tree = ProcessTree(process.pid, not bubblewrap.available())
                max_processes, too_many = limits.processes * RANKS, False
                while process.poll() is None:
                    if too_many := tree.usage(max_processes).processes > max_processes:
                        tree.kill()
                        break
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(POLL_INTERVAL_S)
            if process.returncode and not too_many:
                raise CourseError(
                    f"The process that runs the exercises failed (exit code {process.returncode}): "
                    "run `course doctor`, then grade again."
                )
            answers.seek(0)
            return answers.read()


def _lessons(master: Master) -> Iterator[Path]:
    """Yield the files and folders of the labs that the tests import; no master is among them."""
    lab = ROOT / "labs" / master.assignment
    yield from (path for path in (ROOT / "labs" / "__init__.py", lab / "lessons", lab / "recorded") if path.exists())


def _answers(printed: bytes) -> Iterator[dict[str, Any]]:
    for line in printed.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):  # cut short
            yield json.loads(line)
