"""The GPUs of this host as its driver describes them, and which of them a step may use."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_grader.script import slots
from course_lib.system.errors import last_line
from course_lib.system.gpus import TIMEOUT_S

DRIVER = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg"))  # the last in Windows' Linux
_FIELDS = ("name", "driver_version", "memory.total", "compute_cap")  # drivers before 510 do not know the last one


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, its memory in MiB, its compute capability as in "9.0", "" where the driver is too old to say."""

    name: str
    memory: float
    capability: str = ""


@dataclass(frozen=True)
class Host:
    """What a step needs to know.

    Attributes:
        gpus: those of the host.
        visible: how many of them CUDA_VISIBLE_DEVICES leaves.
        driver: version of the driver, "" without one.
        cuda: the newest CUDA that the driver runs, as in "12.2"; "" where it does not say.
        problem: what is wrong with the driver, in a sentence; "" where it answers, or where there is none.
    """

    gpus: tuple[Gpu, ...] = ()
    visible: int = 0
    driver: str = ""
    cuda: str = ""
    problem: str = ""

    @property
    def ranks(self) -> int:
        """One for each GPU, and never less than two."""
        return max(2, self.visible)

    @property
    def shared(self) -> bool:
        """Whether ranks share a device, so that nothing goes between GPUs."""
        return self.visible < 2

    @property
    def devices(self) -> str:
        """What ranks run on, in words."""
        return {0: "the CPU", 1: "one GPU"}.get(self.visible, f"{self.visible} GPUs")

    @property
    def route(self) -> str:
        """What the ranks' gradients go through."""
        return "Gloo" if self.shared else "NCCL"

    def as_json(self) -> dict[str, Any]:
        """For a step's process, and for the report."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Host:
        """The host of which `as_json` made `table`."""
        return cls(**{**table, "gpus": tuple(Gpu(**gpu) for gpu in table["gpus"])})


def look(timeout: float = TIMEOUT_S) -> Host:
    """Ask the driver, through `nvidia-smi`. A driver that is there and does not answer is the `problem`."""
    said, problem = _ask([f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"], timeout)
    if "is not a valid field" in problem:
        said, problem = _ask([f"--query-gpu={','.join(_FIELDS[:-1])}", "--format=csv,noheader,nounits"], timeout)
    rows = [[word.strip() for word in line.split(",")] for line in said.splitlines() if line.strip()]
    rows = [row for row in rows if len(row) >= 3]
    if problem or not rows:
        return Host(problem=problem)
    header, _ = _ask([], timeout)
    found = re.search(r"CUDA Version: *(\d+\.\d+)", header)
    gpus = tuple(Gpu(row[0], _number(row[2]), *row[3:4]) for row in rows)
    return Host(gpus, slots.count(), rows[0][1], found[1] if found else "")


def memory_used(timeout: float = TIMEOUT_S) -> list[float]:
    """MiB that are in use on each GPU of the host, whoever uses them; [] where the driver does not say."""
    said, problem = _ask(["--query-gpu=memory.used", "--format=csv,noheader,nounits"], timeout)
    return [] if problem else [_number(line) for line in said.splitlines() if line.strip()]


def missing(host: Host) -> str:
    """Why nothing of GPUs can be tested on this host, in a sentence; "" where something can."""
    if host.problem:
        return host.problem
    if not host.gpus:
        return "This host has no NVIDIA GPU, or no driver for it: `nvidia-smi` names none."
    if not host.visible:
        return f"CUDA_VISIBLE_DEVICES hides all {len(host.gpus)} GPUs of this host: unset it."
    return ""


def _ask(words: list[str], timeout: float) -> tuple[str, str]:
    """What `nvidia-smi` says, and what is wrong: nothing where neither it nor a driver is there."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return "", f"nvidia-smi did not answer within {timeout:g} s: the driver hangs; restart the host."
    except OSError as error:
        if not any(path.exists() for path in DRIVER):
            return "", ""
        return "", (
            f"An NVIDIA driver is there, but nvidia-smi can't be run ({error.strerror}): install it; in a container, "
            "set NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )
    if done.returncode or "No devices were found" in done.stdout:
        reason = last_line(done.stderr or done.stdout).rstrip(".")
        if reason == "No devices were found":
            return "", ""
        return "", f"nvidia-smi failed ({reason}): install the driver again, or restart the host after its update."
    return done.stdout, ""


def _number(word: str) -> float:
    """MiB; 0 where the driver says [N/A], as for GPUs that share the host's memory."""
    found = re.match(r"[\d.]+", word.strip())
    return float(found[0]) if found else 0.0
