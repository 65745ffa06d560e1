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

from course_grader.script import slots
from course_lib import bfloat16, data
from course_lib.command.doctor.stack import NOTHING
from course_lib.command.setup import legacy_keras
from course_lib.command.setup.plan import GIVEN_NEWEST_PYTHON, NEWEST_PYTHON, OLDEST_PYTHON
from course_lib.data.published import PUBLISHED
from course_lib.ranks import environment, launch
from course_lib.ranks.messages.known_errors import hint
from course_lib.system.errors import CourseError

AGREEMENT = Path(__file__).with_name("agreement.py")
STACK = Path(__file__).with_name("stack.py")
TIMEOUT_S = 300  # for loading TensorFlow, and for each run of ranks
CONTROLLERS = {"gloo": "Gloo", "mpi": "MPI"}


def diagnose() -> dict:
    """Examine this machine; takes about half a minute.

    Return `python`, `tensorflow`, `keras`, `horovod` (versions; None where missing), `controllers` ("gloo",
    "mpi"), `gpus` (names), `data` (name → source), `ranks_agree` (two ranks, or one for each GPU, hold the same
    weights, bit by bit, after training under every controller), `bfloat16` (`instructions`: the processor's, or None;
    `gain`: how many times as fast as in float32 the assessment's network trains, None where it was not measured) and
    `problems` (sentences with their fix; empty when healthy).
    """
    with ThreadPoolExecutor() as pool:  # offline, it takes a while to learn that there is no network
        located = {name: pool.submit(data.locate, name) for name in PUBLISHED}
        report = training()
    sources, problems = {}, []
    for name, answer in located.items():
        try:
            sources[name] = answer.result()
        except CourseError as error:
            problems.append(str(error))
    return {
        "python": platform.python_version(),
        **{name: report[name] for name in ("tensorflow", "keras", "horovod", "controllers", "gpus")},
        "data": sources,
        "ranks_agree": report["ranks_agree"],
        "bfloat16": {
            "instructions": bfloat16.instructions(),
            "gain": bfloat16_gain() if report["tensorflow"] else None,
        },
        "problems": [*problems, *report["problems"]],
    }


def training() -> dict:
    """What `course_lib.command.doctor.stack` reports, `ranks` (how many were tried), `ranks_agree` and `problems`.

    So much of `diagnose` decides whether ranks train one network here.
    """
    stack = ask_stack()
    ranks = max(2, len(stack["gpus"]))
    problems = stack_problems(platform.python_version(), stack, slots.count())
    if not _resolves("localhost"):
        problems.append("The name localhost is unknown here: add the line `127.0.0.1 localhost` to /etc/hosts.")
    disagreements = [disagreement(name, ranks=ranks) for name in stack["controllers"]]
    agree = bool(disagreements) and not any(disagreements)
    problems += [sentence for sentence in disagreements if sentence]
    return {**stack, "ranks": ranks, "ranks_agree": agree, "problems": problems}


def stack_problems(python: str, stack: Mapping, gpus_of_host: int = 0) -> list[str]:
    """What is wrong with what `course_lib.command.doctor.stack` reports, in sentences with the fix."""
    problems = []
    given = stack["tensorflow"] and legacy_keras.needed(stack["tensorflow"])  # no set-up of ours installs that
    newest = GIVEN_NEWEST_PYTHON if given else NEWEST_PYTHON
    if not OLDEST_PYTHON <= tuple(map(int, python.split(".")[:2])) <= newest:
        problems.append(
            f"TensorFlow 2.15 runs on Python 3.9 to 3.11, not on Python {python}: "
            "run `./course setup`, which makes an environment with one of them."
        )
    for name, reason in stack["faults"].items():
        problems.append(f"{name} cannot be used ({reason}): {_advice('run `./course setup` to install it again')}.")
    if stack["keras"] and int(stack["keras"].split(".")[0]) >= 3:
        advice = _advice("which installs TensorFlow 2.15 with Keras 2.15", "which puts tf_keras in its place")
        problems.append(
            f"Keras {stack['keras']} trains with Horovod without an error and never averages the gradients: "
            f"run `./course setup`, {advice}."
        )
    if stack["horovod"] and not stack["controllers"]:
        advice = _advice("run `./course setup` to build it again")
        problems.append(f"Horovod was built with neither Gloo nor MPI: {advice}.")
    if stack["tensorflow"] and gpus_of_host > len(stack["gpus"]):
        advice = _advice(
            "run `./course setup` to install TensorFlow with CUDA",
            "use an image for this host's driver (`nvidia-smi` names its CUDA version), or update the driver",
        )
        problems.append(
            f"This host has {gpus_of_host} NVIDIA GPUs, but TensorFlow sees {len(stack['gpus'])} of them: {advice}."
        )
    if stack["horovod"] and len(stack["gpus"]) > 1 and not stack["nccl"]:
        advice = _advice("install the CUDA toolkit (nvcc) and run `./course setup`")
        problems.append(f"Horovod was built without NCCL, so GPUs would reduce through the CPU: {advice}.")
    return problems


def disagreement(controller: str, script: Path = AGREEMENT, ranks: int = 2) -> str:
    """Run `script` on `ranks` ranks under `controller`; return "" if their weights agree, else what is wrong.

    The script reports through `course_lib.command.doctor.agreement.report`.
    """
    try:
        with launch.start(script, ranks=ranks, controller=controller, timeout=TIMEOUT_S) as run:
            lines = [event.data["text"] for event in run if event.kind == "output"]
        result = run.wait()
    except CourseError as error:
        return f"{_number(ranks)} ranks could not be started under {CONTROLLERS[controller]}: {error}"
    failure = (hint((*result.tail, result.reason)) or result.message) if result.code else ""
    return verdict(controller, failure, lines, ranks)


def verdict(controller: str, failure: str, lines: list[str], ranks: int = 2) -> str:
    """Judge a run by how it failed ("" if it did not) and the report in its output `lines`."""
    name, number = CONTROLLERS[controller], _number(ranks)
    rebuild = "remove .venv and run `./course setup` to install all of it again"
    rebuild = f"if nothing else is wrong here, {_advice(rebuild)}."
    if failure:
        return f"{number} ranks under {name} did not finish ({failure.rstrip('.')}): {rebuild}"
    reports = [json.loads(line[len("agreement ") :]) for line in lines if line.startswith("agreement {")]
    if [report["size"] for report in reports] != [ranks]:
        return f"{number} ranks started under {name} do not find each other: {rebuild}"
    difference = reports[0]["difference"]
    if difference != 0.0:
        advice = _advice("run `./course setup` to install the course's versions")
        return (
            f"After training under {name}, the weights of {number.lower()} ranks differ by up to {difference:.2g}, so "
            f"their gradients are not averaged: {advice}."
        )
    return ""


def bfloat16_gain() -> float | None:
    """What `course_lib.bfloat16.gain` measures, in a process with the threads of one of two ranks.

    None without a measurement: where the processor has no instructions for bfloat16, and where it fails.
    """
    if bfloat16.instructions() is None:
        return None
    env = environment.of_ranks(2, {**environment.SILENT, "CUDA_VISIBLE_DEVICES": "-1"})
    command = [sys.executable, "-m", bfloat16.__name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=env)
        return round(float(done.stdout), 2)
    except (subprocess.TimeoutExpired, ValueError):
        return None


def describe_bfloat16(instructions: str | None, gain: float | None) -> str:
    """Which instructions for bfloat16 the processor has, and what they gain, in a line."""
    if instructions is None:
        return f"neither {' nor '.join(bfloat16.FLAGS.values())}: float32 is faster on this processor"
    if gain is None:
        return f"{instructions}; not measured"
    return f"{instructions}; trains the assessment's network {gain:.1f} times as fast as float32 (measured)"


def show(report: Mapping) -> None:
    """Print the report of `diagnose`: a table, then the problems."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    missing = "[red]missing[/]"
    rows = {title: report[title.lower()] or missing for title in ("Python", "TensorFlow", "Keras", "Horovod")}
    rows["Controllers"] = ", ".join(CONTROLLERS[name] for name in report["controllers"]) or missing
    rows["GPUs"] = ", ".join(report["gpus"]) or "none: everything runs on the CPU"
    rows |= {name: _SOURCE_NAMES[source] for name, source in report["data"].items()}
    rows["Ranks agree"] = "yes, bit by bit" if report["ranks_agree"] else "[red]no[/]"
    rows["bfloat16"] = describe_bfloat16(**report["bfloat16"])
    table = Table("title", "value", show_header=False, box=None, padding=(0, 2, 0, 0))
    for title, value in rows.items():
        table.add_row(f"[bold]{title}[/]", value)
    console = Console()
    console.print(table)
    for problem in report["problems"]:
        console.print(f"\n[bold red]Problem:[/] {escape(problem)}", highlight=False)


_SOURCE_NAMES = {
    "directory": "in COURSE_DATA_DIR",
    "cache": "in Keras's cache",
    "download": "will be downloaded",
    "stand-in": "stand-in `shapes`, for want of files and network",
}


def ask_stack() -> dict:
    """What `stack.py` reports, run in a process of its own, because loading TensorFlow may crash or hang."""
    try:
        done = subprocess.run(
            [sys.executable, str(STACK)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **environment.SILENT},
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        fault = f"it did not load within {TIMEOUT_S} s"
    except (IndexError, ValueError):
        fault = f"loading it ended with exit code {done.returncode}"
    return {**NOTHING, "faults": {"TensorFlow": fault}}


def _advice(own: str, given: str = "use another image (this one's TensorFlow and Horovod are used as they are)") -> str:
    """What to do: `own`, unless TensorFlow and Horovod are those of an image."""
    return given if os.environ.get("COURSE_TENSORFLOW") else own


def _number(ranks: int) -> str:
    return "Two" if ranks == 2 else str(ranks)


def _resolves(host: str) -> bool:
    try:
        return bool(socket.gethostbyname(host))
    except OSError:
        return False
