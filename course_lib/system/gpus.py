"""The NVIDIA GPUs of this host, from `nvidia-smi`. Only the standard library: the set-up uses this module."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 20.0  # for an answer: a faulty driver never answers
MAX_COMMAND_CHARACTERS = 60
NOTEBOOK = "a notebook"  # value of `Holder.command` for a notebook's kernel


@dataclass(frozen=True)
class Holder:
    """A process that uses memory of a GPU: its id, its command ("" if unknown), MiB of memory (0 if unknown)."""

    pid: int
    command: str
    memory: float


@dataclass(frozen=True)
class Memory:
    """The memory of a GPU: the GPU's number, used MiB, total MiB, and the processes that use it."""

    gpu: int
    used: float
    total: float
    holders: tuple[Holder, ...] = ()


def listing(timeout: float = TIMEOUT_S) -> list[str]:
    """The lines of `nvidia-smi -L`, one for each GPU: "GPU 0: NVIDIA H200 (UUID: GPU-…)".

    Empty if there is no driver, or if it fails or does not answer.
    """
    return [line for line in _answer(["-L"], timeout) if line.startswith("GPU ")]


def names(timeout: float = TIMEOUT_S) -> list[str]:
    """The names of the GPUs; empty in the same cases as `listing`."""
    matches = (re.match(r"GPU \d+: (.+?) \(UUID", line) for line in listing(timeout))
    return [match[1] for match in matches if match]


def visible(gpus: int) -> list[int]:
    """The numbers of the GPUs in CUDA_VISIBLE_DEVICES, in its order; 0 … gpus − 1 if it is not set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(gpus))
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    names = list(itertools.takewhile(lambda name: not name.startswith("-"), names))  # as in CUDA: -1 ends the list
    lines = [] if all(map(str.isdecimal, names)) else listing()
    numbers = [
        int(name)
        if name.isdecimal()
        else next((number for number, line in enumerate(lines) if f"UUID: {name}" in line), place)
        for place, name in enumerate(names)
    ]
    return list(dict.fromkeys(numbers))


def kinds() -> list[str]:
    """Name and driver version of each GPU; empty in the same cases as `listing`. Compiled kernels depend on both."""
    return [", ".join(row) for row in _table("gpu=name,driver_version", columns=2)]


def memory() -> list[Memory]:
    """The memory of each GPU, and the processes that use it; empty in the same cases as `listing`.

    In a container the driver lists no processes, or processes of the host with ids that are not valid here.
    """
    holders: dict[str, list[Holder]] = {}
    for pid, mib, uuid, program in _table("compute-apps=pid,used_memory,gpu_uuid,process_name", columns=4):
        if pid.isdecimal():
            holders.setdefault(uuid, []).append(Holder(int(pid), _command(int(pid), program), mebibytes(mib)))
    return [
        Memory(int(number), mebibytes(used), mebibytes(total), tuple(holders.get(uuid, ())))
        for number, uuid, used, total in _table("gpu=index,uuid,memory.used,memory.total", columns=4)
    ]


def mebibytes(words: str) -> float:
    """The MiB in a text of the driver; 0 for [N/A], which it writes for GPUs that share the host's memory."""
    digits = re.match(r"[\d.]+", words.strip())
    return float(digits[0]) if digits else 0.0


def processes(timeout: float = TIMEOUT_S) -> list[tuple[int, str]]:
    """(process id, UUID of the GPU) for all processes that the driver lists; see `memory` for containers."""
    rows = _table("compute-apps=pid,gpu_uuid", columns=2, timeout=timeout)
    return [(int(pid), uuid) for pid, uuid in rows if pid.isdecimal()]


def _command(pid: int, program: str) -> str:
    """A process's command, shortened; "" if the process is not visible here. `program`: its name in the driver."""
    if program.startswith("["):  # "[Not Found]": in another container, or on the host
        return ""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        words = []
    if not words or os.path.basename(words[0]) != os.path.basename(program.split()[0]):
        return program  # here, the id belongs to another process
    if any("ipykernel" in word for word in words):
        return NOTEBOOK
    named = [os.path.basename(word) for word in words[:2]]
    return textwrap.shorten(" ".join([*named, *words[2:]]), MAX_COMMAND_CHARACTERS, placeholder=" …")


def _table(query: str, columns: int, timeout: float = TIMEOUT_S) -> list[list[str]]:
    """The rows of `nvidia-smi --query-…` that have all `columns`; the last column may contain commas."""
    lines = _answer([f"--query-{query}", "--format=csv,noheader,nounits"], timeout)
    rows = [[word.strip() for word in line.split(",", columns - 1)] for line in lines]
    return [row for row in rows if len(row) == columns]


def _answer(options: Sequence[str], timeout: float) -> list[str]:
    try:
        done = subprocess.run(
            ["nvidia-smi", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
