"""The NVIDIA GPUs of this host, as its driver lists them. With the standard library alone, for the set-up."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 20.0  # for an answer: a driver in trouble gives none at all
MAX_COMMAND_CHARACTERS = 60
NOTEBOOK = "a notebook"  # a `Holder.command`


@dataclass(frozen=True)
class Holder:
    """A process that holds memory of a GPU: its id, what it runs ("" where that can't be seen), MiB (0: not known)."""

    pid: int
    command: str
    memory: float


@dataclass(frozen=True)
class Memory:
    """The memory of a GPU: the GPU's number, MiB that are used and that it has, and the processes that hold them."""

    gpu: int
    used: float
    total: float
    holders: tuple[Holder, ...] = ()


def listing(timeout: float = TIMEOUT_S) -> list[str]:
    """The lines of `nvidia-smi -L`, one for each GPU: "GPU 0: NVIDIA H200 (UUID: GPU-…)".

    Empty where there is no driver, or one that fails or does not answer.
    """
    return [line for line in _answer(["-L"], timeout) if line.startswith("GPU ")]


def names(timeout: float = TIMEOUT_S) -> list[str]:
    """The names of the GPUs; empty as `listing` is."""
    matches = (re.match(r"GPU \d+: (.+?) \(UUID", line) for line in listing(timeout))
    return [match[1] for match in matches if match]


def visible(gpus: int) -> list[int]:
    """The numbers of the GPUs that CUDA_VISIBLE_DEVICES names, in its order; of all `gpus` where it is not set."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return list(range(gpus))
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    names = list(itertools.takewhile(lambda name: not name.startswith("-"), names))  # as CUDA does: -1 ends the list
    lines = [] if all(map(str.isdecimal, names)) else listing()
    numbers = [
        int(name)
        if name.isdecimal()
        else next((number for number, line in enumerate(lines) if f"UUID: {name}" in line), place)
        for place, name in enumerate(names)
    ]
    return list(dict.fromkeys(numbers))


def kinds() -> list[str]:
    """Name and driver version of each GPU of this host; empty as `listing` is. Compiled kernels fit one such kind."""
    return [", ".join(row) for row in _table("gpu=name,driver_version", columns=2)]


def memory() -> list[Memory]:
    """The memory of each GPU, and which processes hold it; empty as `listing` is.

    In a container the driver lists no processes, or those of the host by ids that mean nothing here.
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
    """MiB, as the driver writes them; 0 where it says [N/A], as for GPUs that share the host's memory."""
    digits = re.match(r"[\d.]+", words.strip())
    return float(digits[0]) if digits else 0.0


def processes(timeout: float = TIMEOUT_S) -> list[tuple[int, str]]:
    """(process id, UUID of a GPU that it computes on) for all processes that the driver lists; see `memory`."""
    rows = _table("compute-apps=pid,gpu_uuid", columns=2, timeout=timeout)
    return [(int(pid), uuid) for pid, uuid in rows if pid.isdecimal()]


def _command(pid: int, program: str) -> str:
    """What a process runs, in short; "" for one that can't be seen here. `program` is the driver's name for it."""
    if program.startswith("["):  # "[Not Found]": in another container, or on the host
        return ""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        words = []
    if not words or os.path.basename(words[0]) != os.path.basename(program.split()[0]):
        return program  # another process has that id here
    if any("ipykernel" in word for word in words):
        return NOTEBOOK
    named = [os.path.basename(word) for word in words[:2]]
    return textwrap.shorten(" ".join([*named, *words[2:]]), MAX_COMMAND_CHARACTERS, placeholder=" …")


def _table(query: str, columns: int, timeout: float = TIMEOUT_S) -> list[list[str]]:
    """The rows that `nvidia-smi --query-…` answers with, those that have all `columns`; the last may have commas."""
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
