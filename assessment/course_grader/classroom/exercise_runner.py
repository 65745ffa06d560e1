"""Run the exercises of a learner's notebook against their tests: in the sandbox, in no kernel (`exercise_process`)."""

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

RANKS = 4  # that a notebook's scripts may start, at most
POLL_INTERVAL_S = 0.2


def run(
    notebook: LearnersNotebook, master: Master, folder: Path, seconds: float, total: float
) -> dict[str, list[dict[str, Any]]]:
    """The outputs of each test's cell: id → as a notebook has outputs.

    `folder` has the learner's files. A test may take `seconds`, all together `total`. CourseError where the sandbox
    fails.
    """
    refused = notebook.refusals(master)
    tests = [test for test in _tests(master) if test["id"] not in refused]
    course = [cell.source for cell in master.cells if cell.kind in ("code", "editable") and not cell.markdown]
    cells = [{"id": name, "source": source} for name, source in notebook.cells]
    spec = {"folder": str(folder), "seconds": seconds, "total": total, "cells": cells, "course": course, "tests": tests}
    outputs = {answer["id"]: answer["outputs"] for answer in _answers(_run(spec, master, folder))}
    not_judged = {name: [exercise_process.error(exercise_process.NOT_JUDGED, why)] for name, why in refused.items()}
    dead = {test["id"]: [exercise_process.error("DeadKernelError", "")] for test in tests}
    return {**dead, **outputs, **not_judged}


def _tests(master: Master) -> Iterator[dict[str, Any]]:
    """The tests as `exercise_process` takes them."""
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
                "defined nowhere else. It may be older than the exercise: ask for it in today's notebook.",
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
    """What the process in the sandbox prints."""
    limits = contract.read().limits
    text = json.dumps(spec) + "".join(path.read_text(errors="replace") for path in folder.glob("*.py"))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        file = place / "spec.json"
        file.write_text(json.dumps({**spec, "memory": int(limits.memory * 2**30)}))
        readable = {file: file, folder: folder, **{path: path for path in _lessons(master)}}
        env = {**environment.TENSORFLOW, "MPLBACKEND": "agg"}
        if images := data.images_limit():
            env[variables.SLICE] = str(images)
        for name in (name for name in PUBLISHED if name in text):
            bundle = data.bundle(name, place, limit=images)
            readable.update(bundle.files)
            env.update(bundle.env)
        words = [sys.executable, "-m", exercise_process.__name__, str(file)]
        command = bubblewrap.command(words, readable, env, place / "links")
        with (place / "answers").open("w+b") as answers:
            with Supervised(command, temporary=place, cwd="/", stdout=answers, stderr=subprocess.DEVNULL) as process:
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
                    f"The process that runs the exercises failed (exit code {process.returncode}): "
                    "see `course doctor`, then grade again."
                )
            answers.seek(0)
            return answers.read()


def _lessons(master: Master) -> Iterator[Path]:
    """What of the labs the checks are made of; no master is among it."""
    lab = ROOT / "labs" / master.assignment
    yield from (path for path in (ROOT / "labs" / "__init__.py", lab / "lessons", lab / "recorded") if path.exists())


def _answers(printed: bytes) -> Iterator[dict[str, Any]]:
    for line in printed.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):  # cut short
            yield json.loads(line)
