"""The GPUs of this host as its driver describes them, and what NVIDIA publishes of such GPUs.

The peaks are without sparsity, from the data sheets of V100, T4, A100, A10, L4, L40S, H100, H200 and B200
(nvidia.com/en-us/data-center). Where a sheet gives a tensor core's peak with sparsity, half of it stands here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from course_grader.script import slots
from course_lib.system.errors import last_line
from course_lib.system.gpus import TIMEOUT_S, mebibytes

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


def detect(timeout: float = TIMEOUT_S) -> Host:
    """Ask the driver, through `nvidia-smi`. A driver that is there and does not answer is the `problem`."""
    answer, problem = _query(_FIELDS, timeout)
    if "is not a valid field" in problem:
        answer, problem = _query(_FIELDS[:-1], timeout)
    rows = [[word.strip() for word in line.split(",")] for line in answer.splitlines()]
    rows = [row for row in rows if len(row) >= 3]
    if problem or not rows:
        return Host(problem=problem)
    cuda = re.search(r"CUDA Version: *(\d+\.\d+)", _nvidia_smi([], timeout)[0])
    gpus = tuple(Gpu(row[0], mebibytes(row[2]), *row[3:4]) for row in rows)
    return Host(gpus, slots.count(), driver=rows[0][1], cuda=cuda[1] if cuda else "")


def memory_used() -> list[float]:
    """MiB that are in use on each GPU of the host, whoever uses them; [] where the driver does not say."""
    answer, problem = _query(("memory.used",), TIMEOUT_S)
    return [] if problem else [mebibytes(line) for line in answer.splitlines() if line.strip()]


def missing(host: Host) -> str:
    """Why nothing of GPUs can be tested on this host, in a sentence; "" where something can."""
    if host.problem:
        return host.problem
    if not host.gpus:
        return "This host has no NVIDIA GPU, or no driver for it: `nvidia-smi` names none."
    if not host.visible:
        return f"CUDA_VISIBLE_DEVICES hides all {len(host.gpus)} GPUs of this host: unset it."
    return ""


def _query(fields: Sequence[str], timeout: float) -> tuple[str, str]:
    return _nvidia_smi([f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], timeout)


def _nvidia_smi(options: list[str], timeout: float) -> tuple[str, str]:
    """What `nvidia-smi` prints, and what is wrong with it; both "" where neither it nor a driver is there."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
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


class Peak(NamedTuple):
    """FLOP/s in float32 outside of the tensor cores, in TF32 (0: has none) and in float16; memory's bytes/s."""

    float32: float
    tf32: float
    float16: float
    bandwidth: float


# By what stands in the driver's name, the first that fits: TFLOP/s in float32, TF32 and float16; GB/s.
PEAKS = {
    "V100": (15.7, 0, 125, 900),
    "T4": (8.1, 0, 65, 320),
    "A100-SXM4-80GB": (19.5, 156, 312, 2039),
    "A100 80GB": (19.5, 156, 312, 1935),  # the PCIe card
    "A100": (19.5, 156, 312, 1555),
    "A10": (31.2, 62.5, 125, 600),
    "L40S": (91.6, 183, 362, 864),
    "L4": (30.3, 60, 121, 300),
    "H100 PCIe": (51, 378, 756, 2000),
    "H100": (67, 494, 989, 3350),
    "H200": (67, 494, 989, 4800),
    "B200": (75, 1100, 2250, 7700),
}


def published(name: str) -> Peak | None:
    """The peaks of a GPU by the driver's name for it; None where the course knows none, and for a part of a GPU."""
    words = name.replace("-", " ").split()
    for known, (*flops, bandwidth) in PEAKS.items():
        parts = known.replace("-", " ").split()
        whole = all(any(word == part or word.startswith(f"{part}X") for word in words) for part in parts)
        if whole and "MIG" not in words:
            return Peak(*(1e12 * rate for rate in flops), 1e9 * bandwidth)
    return None


def kernels(capability: str, targets: Sequence[str]) -> tuple[str, str]:
    """How code built for `targets` (as in ["sm_75", "compute_80"]) runs on a GPU of `capability` ("8.6"), and by which.

    "cubin": as it is; "ptx": compiled by the driver at first use; "none". A cubin runs on its own major capability, the
    same minor one or a later; PTX on every later one (CUDA C++ Programming Guide, 3.1.2 to 3.1.4). TensorFlow builds a
    cubin also for each compute_XY (its configure.py).
    """
    mine = _parts(capability)
    versions = {_parts(f"{name.partition('_')[2][:-1]}.{name[-1]}"): name for name in targets if "_" in name}
    cubins = [version for version in versions if version[0] == mine[0] and version[1] <= mine[1]]
    ptx = [version for version, name in versions.items() if name.startswith("compute_") and version <= mine]
    return ("cubin", versions[max(cubins)]) if cubins else ("ptx", versions[max(ptx)]) if ptx else ("none", "")


def _parts(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)


def at_least(version: str, other: str) -> bool:
    """Whether a version as in "12.2" is the same as the other or newer."""
    return _parts(version) >= _parts(other)
