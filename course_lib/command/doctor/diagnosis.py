"""Diagnose this machine: versions, controllers, GPUs, data sets, and problems."""

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
    """Diagnose this machine; takes about half a minute.

    Returns:
        python, tensorflow, keras, horovod: versions; None if missing.
        controllers: of "gloo" and "mpi".
        gpus: names.
        data: data set → source.
        ranks_agree: whether two ranks, or one for each GPU, have equal weights, bit for bit, after training under every
            controller.
        bfloat16: `instructions` of the processor, or None; `gain`: speedup of the assessment's network over float32,
            None if not measured.
        problems: sentences with the fix; empty if there are none.
    """
    with ThreadPoolExecutor() as pool:  # in parallel to the training, because the requests time out if offline
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
    """The part of `diagnose` that decides whether distributed training works here.

    Returns:
        The report of `course_lib.command.doctor.stack`, `ranks` (number of tested ranks), `ranks_agree`, `problems`.
    """
    stack = ask_stack()
    ranks = max(2, len(stack["gpus"]))
    problems = stack_problems(platform.python_version(), stack, slots.count())
    if not _resolves("localhost"):
        problems.append("The name localhost does not resolve: add the line `127.0.0.1 localhost` to /etc/hosts.")
    disagreements = [disagreement(name, ranks=ranks) for name in stack["controllers"]]
    agree = bool(disagreements) and not any(disagreements)
    problems += [sentence for sentence in disagreements if sentence]
    return {**stack, "ranks": ranks, "ranks_agree": agree, "problems": problems}


def stack_problems(python: str, stack: Mapping, gpus_of_host: int = 0) -> list[str]:
    """The problems in a report of `course_lib.command.doctor.stack`, as sentences with the fix."""
    problems = []
    given = stack["tensorflow"] and legacy_keras.needed(stack["tensorflow"])  # the set-up never installs such versions
    newest = GIVEN_NEWEST_PYTHON if given else NEWEST_PYTHON
    if not OLDEST_PYTHON <= tuple(map(int, python.split(".")[:2])) <= newest:
        problems.append(
            f"TensorFlow 2.15 runs on Python 3.9 to 3.11, not on Python {python}: "
            "run `./course setup`, which makes an environment with a supported Python."
        )
    for name, reason in stack["faults"].items():
        problems.append(f"{name} cannot be used ({reason}): {_advice('run `./course setup` to install it again')}.")
    if stack["keras"] and int(stack["keras"].split(".")[0]) >= 3:
        advice = _advice("which installs TensorFlow 2.15 with Keras 2.15", "which replaces it with tf_keras")
        problems.append(
            f"With Keras {stack['keras']}, Horovod does not average the gradients and raises no error: "
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
        problems.append(f"Horovod was built without NCCL, so GPUs would all-reduce through the CPU: {advice}.")
    return problems


def disagreement(controller: str, script: Path = AGREEMENT, ranks: int = 2) -> str:
    """Run `script` on `ranks` ranks under `controller`; return "" if the weights agree, else a sentence.

    The script must report through `course_lib.command.doctor.agreement.report`.
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
    """Judge a run by its `failure` ("" if none) and the report in its output `lines`; return as `disagreement`."""
    name, number = CONTROLLERS[controller], _number(ranks)
    rebuild = "remove .venv and run `./course setup` to reinstall everything"
    rebuild = f"if there is no other problem, {_advice(rebuild)}."
    if failure:
        return f"{number} ranks under {name} did not finish ({failure.rstrip('.')}): {rebuild}"
    reports = [json.loads(line[len("agreement ") :]) for line in lines if line.startswith("agreement {")]
    if [report["size"] for report in reports] != [ranks]:
        return f"{number} ranks started under {name} did not find each other: {rebuild}"
    difference = reports[0]["difference"]
    if difference != 0.0:
        advice = _advice("run `./course setup` to install the course's versions")
        return (
            f"After training under {name}, the weights of {number.lower()} ranks differ by up to {difference:.2g}, so "
            f"their gradients are not averaged: {advice}."
        )
    return ""


def bfloat16_gain() -> float | None:
    """Measure `course_lib.bfloat16.gain` in a process with the threads of one of two ranks.

    None if the processor has no instructions for bfloat16, or if the measurement fails.
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
    """A line on the processor's instructions for bfloat16 and their speedup."""
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
    rows["Ranks agree"] = "yes, bit for bit" if report["ranks_agree"] else "[red]no[/]"
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
    "stand-in": "stand-in `shapes`: no files and no network",
}


def ask_stack() -> dict:
    """The report of `stack.py`, which runs in a separate process because loading TensorFlow may crash or hang."""
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


def _advice(own: str, given: str = "use another image (the course does not change TensorFlow and Horovod here)") -> str:
    """The advice `own`, or `given` if TensorFlow and Horovod are those of an image."""
    return given if os.environ.get("COURSE_TENSORFLOW") else own


def _number(ranks: int) -> str:
    return "Two" if ranks == 2 else str(ranks)


def _resolves(host: str) -> bool:
    try:
        return bool(socket.gethostbyname(host))
    except OSError:
        return False
