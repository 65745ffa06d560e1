"""What this machine can do, and what is wrong with it."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course_lib import data, launch
from course_lib.bootstrap import NEWEST, OLDEST
from course_lib.data.published import PUBLISHED
from course_lib.errors import CourseError

AGREEMENT = Path(__file__).with_name("agreement.py")
STACK = Path(__file__).with_name("stack.py")
PATIENCE = 300  # seconds for loading TensorFlow, and for each run of two ranks
CONTROLLERS = {"gloo": "Gloo", "mpi": "MPI"}


def diagnose() -> dict:
    """Examine this machine; takes about half a minute.

    Return `python`, `tensorflow`, `keras`, `horovod` (versions; None where missing), `controllers` ("gloo",
    "mpi"), `gpus` (names), `data` (name → source), `ranks_agree` (two ranks hold the same weights, bit by
    bit, after training under every controller) and `problems` (sentences with their fix; empty when healthy).
    """
    with ThreadPoolExecutor() as pool:  # offline, it takes a while to learn that there is no network
        located = {name: pool.submit(data.locate, name) for name in PUBLISHED}
        stack = _stack()
    python = platform.python_version()
    problems = stack_problems(python, stack, _gpus_of_host())
    sources = {}
    for name, answer in located.items():
        try:
            sources[name] = answer.result()
        except CourseError as error:
            problems.append(str(error))
    if not _resolves("localhost"):
        problems.append("The name localhost is unknown here: add the line `127.0.0.1 localhost` to /etc/hosts.")
    disagreements = [disagreement(name) for name in stack["controllers"]]
    return {
        "python": python,
        **{name: stack[name] for name in ("tensorflow", "keras", "horovod", "controllers", "gpus")},
        "data": sources,
        "ranks_agree": bool(disagreements) and not any(disagreements),
        "problems": problems + [sentence for sentence in disagreements if sentence],
    }


def stack_problems(python: str, stack: Mapping, gpus_of_host: int = 0) -> list[str]:
    """What is wrong with what `course_lib.doctor.stack` reports, in sentences with the fix."""
    problems = []
    if not OLDEST <= tuple(map(int, python.split(".")[:2])) <= NEWEST:
        problems.append(
            f"TensorFlow 2.15 runs on Python 3.9 to 3.11, not on Python {python}: "
            "run `./course setup`, which makes an environment with one of them."
        )
    for name, reason in stack["faults"].items():
        problems.append(f"{name} cannot be used ({reason}): run `./course setup` to install it again.")
    if stack["keras"] and int(stack["keras"].split(".")[0]) >= 3:
        problems.append(
            f"Keras {stack['keras']} trains with Horovod without an error and never averages the gradients: "
            "run `./course setup`, which installs TensorFlow 2.15 with Keras 2.15."
        )
    if stack["horovod"] and not stack["controllers"]:
        problems.append("Horovod was built with neither Gloo nor MPI: run `./course setup` to build it again.")
    if stack["tensorflow"] and gpus_of_host > len(stack["gpus"]):
        problems.append(
            f"This host has {gpus_of_host} NVIDIA GPUs, but TensorFlow sees {len(stack['gpus'])} of them: "
            "run `./course setup` to install TensorFlow with CUDA."
        )
    return problems


def disagreement(controller: str, script: Path = AGREEMENT) -> str:
    """Run `script` on two ranks under `controller`; return "" if their weights agree, else what is wrong.

    The script reports through `course_lib.doctor.agreement.tell`.
    """
    try:
        with launch.start(script, ranks=2, controller=controller, timeout=PATIENCE) as run:
            lines = [event.data["text"] for event in run if event.kind == "output"]
        result = run.wait()
    except CourseError as error:
        return f"Two ranks could not be started under {CONTROLLERS[controller]}: {error}"
    return verdict(controller, result.message if result.code else "", lines)


def verdict(controller: str, failure: str, lines: list[str]) -> str:
    """Judge a run of two ranks by how it failed ("" if it did not) and the report in its output `lines`."""
    name = CONTROLLERS[controller]
    rebuild = "if nothing else is wrong here, remove .venv and run `./course setup` to install all of it again."
    if failure:
        return f"Two ranks under {name} did not finish ({failure.rstrip('.')}): {rebuild}"
    reports = [json.loads(line[len("agreement ") :]) for line in lines if line.startswith("agreement {")]
    if [report["size"] for report in reports] != [2]:
        return f"Two ranks started under {name} do not find each other: {rebuild}"
    difference = reports[0]["difference"]
    if difference != 0.0:
        return (
            f"After training under {name}, the weights of two ranks differ by up to {difference:.2g}, so "
            "their gradients are not averaged: run `./course setup` to install the course's versions."
        )
    return ""


def show(report: Mapping) -> None:
    """Print the report of `diagnose`: a table, then the problems."""
    from rich.console import Console
    from rich.table import Table

    missing = "[red]missing[/]"
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    for title in ("Python", "TensorFlow", "Keras", "Horovod"):
        table.add_row(title, report[title.lower()] or missing)
    table.add_row("Controllers", ", ".join(CONTROLLERS[name] for name in report["controllers"]) or missing)
    table.add_row("GPUs", ", ".join(report["gpus"]) or "none: everything runs on the CPU")
    for name, source in report["data"].items():
        table.add_row(name, _SOURCES[source])
    table.add_row("Two ranks agree", "yes, bit by bit" if report["ranks_agree"] else "[red]no[/]")
    console = Console()
    console.print(table)
    for problem in report["problems"]:
        console.print(f"\n[bold red]Problem:[/] {_escape(problem)}", highlight=False)


_SOURCES = {
    "directory": "in COURSE_DATA_DIR",
    "cache": "in Keras's cache",
    "download": "will be downloaded",
    "stand-in": "stand-in `shapes`, for want of files and network",
}


def _stack() -> dict:
    """What `stack.py` reports, run in a process of its own, because loading TensorFlow may crash or hang."""
    nothing = {"tensorflow": None, "keras": None, "horovod": None, "controllers": [], "gpus": []}
    try:
        done = subprocess.run(
            [sys.executable, str(STACK)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        fault = f"it did not load within {PATIENCE} s"
    except (IndexError, ValueError):
        fault = f"loading it ended with exit code {done.returncode}"
    return {**nothing, "faults": {"TensorFlow": fault}}


def _resolves(host: str) -> bool:
    try:
        return bool(socket.gethostbyname(host))
    except OSError:
        return False


def _gpus_of_host() -> int:
    try:
        return len(launch.gpus())
    except (OSError, subprocess.SubprocessError):
        return 0


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
