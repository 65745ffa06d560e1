"""The GPUs of this host, from the driver, and the published peak rates of such GPUs.

The peaks are without sparsity, from the data sheets of V100, T4, A100, A10, L4, L40S, H100, H200 and B200
(nvidia.com/en-us/data-center). If a data sheet gives the peak of the tensor cores with sparsity, half of it is used.
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

DRIVER = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"), Path("/dev/dxg"))  # the last one under WSL
_FIELDS = ("name", "driver_version", "memory.total", "compute_cap")  # drivers before 510 lack the last one


@dataclass(frozen=True)
class Gpu:
    """A GPU: its name, its memory in MiB, its compute capability, such as "9.0"; "" if the driver is too old."""

    name: str
    memory: float
    capability: str = ""


@dataclass(frozen=True)
class Host:
    """The facts about this host for the steps.

    Attributes:
        gpus: GPUs of the host.
        visible: number of GPUs that are visible under CUDA_VISIBLE_DEVICES.
        driver: version of the driver; "" without a driver.
        cuda: the newest CUDA version that the driver supports, such as "12.2"; "" if unknown.
        problem: a sentence on a problem with the driver; "" if it works, or if there is no driver.
    """

    gpus: tuple[Gpu, ...] = ()
    visible: int = 0
    driver: str = ""
    cuda: str = ""
    problem: str = ""

    @property
    def ranks(self) -> int:
        """Number of ranks: one for each visible GPU, but at least two."""
        return max(2, self.visible)

    @property
    def shared(self) -> bool:
        """Whether the ranks share a device, so that there is no communication between GPUs."""
        return self.visible < 2

    @property
    def devices(self) -> str:
        """The devices of the ranks, as a text."""
        return {0: "the CPU", 1: "one GPU"}.get(self.visible, f"{self.visible} GPUs")

    @property
    def route(self) -> str:
        """The library that reduces the ranks' gradients."""
        return "Gloo" if self.shared else "NCCL"

    def as_json(self) -> dict[str, Any]:
        """The host as a JSON object, for the process of a step, and for the report."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Host:
        """The inverse of `as_json`."""
        return cls(**{**table, "gpus": tuple(Gpu(**gpu) for gpu in table["gpus"])})


def detect(timeout: float = TIMEOUT_S) -> Host:
    """Query the driver with `nvidia-smi`. A driver that does not answer is reported as `problem`."""
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
    """MiB in use on each GPU of the host, by all processes; [] if the driver does not report them."""
    answer, problem = _query(("memory.used",), TIMEOUT_S)
    return [] if problem else [mebibytes(line) for line in answer.splitlines() if line.strip()]


def missing(host: Host) -> str:
    """A sentence on why no GPU can be tested on this host; "" if one can."""
    if host.problem:
        return host.problem
    if not host.gpus:
        return "This host has no NVIDIA GPU, or no driver for it: `nvidia-smi` lists none."
    if not host.visible:
        return f"CUDA_VISIBLE_DEVICES hides all {len(host.gpus)} GPUs of this host: unset it."
    return ""


def _query(fields: Sequence[str], timeout: float) -> tuple[str, str]:
    return _nvidia_smi([f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], timeout)


def _nvidia_smi(options: list[str], timeout: float) -> tuple[str, str]:
    """The output of `nvidia-smi`, and a sentence on its failure; both "" if there is no driver."""
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
            f"The NVIDIA driver is installed, but nvidia-smi can't be run ({error.strerror}): install nvidia-smi; in a "
            "container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )
    if done.returncode or "No devices were found" in done.stdout:
        reason = last_line(done.stderr or done.stdout).rstrip(".")
        if reason == "No devices were found":
            return "", ""
        return "", f"nvidia-smi failed ({reason}): restart the host after a driver update, or reinstall the driver."
    return done.stdout, ""


class Peak(NamedTuple):
    """Peak rates of a GPU: FLOP/s in float32 without tensor cores, TF32 (0: none) and float16; memory bytes/s."""

    float32: float
    tf32: float
    float16: float
    bandwidth: float


# Part of the driver's name, first match → TFLOP/s in float32, TF32 and float16; GB/s.
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
    """The peak rates of a GPU, from the driver's name for it; None for an unknown GPU, and for a MIG instance."""
    words = name.replace("-", " ").split()
    for known, (*flops, bandwidth) in PEAKS.items():
        parts = known.replace("-", " ").split()
        whole = all(any(word == part or word.startswith(f"{part}X") for word in words) for part in parts)
        if whole and "MIG" not in words:
            return Peak(*(1e12 * rate for rate in flops), 1e9 * bandwidth)
    return None


def kernels(capability: str, targets: Sequence[str]) -> tuple[str, str]:
    """How code built for some targets runs on a GPU.

    A cubin runs on GPUs of the same major and the same or a later minor capability, PTX on all later capabilities (CUDA
    C++ Programming Guide, 3.1.2 to 3.1.4). TensorFlow also builds a cubin for each compute_XY (configure.py).

    Args:
        capability: compute capability of the GPU, such as "8.6".
        targets: such as ["sm_75", "compute_80"].

    Returns:
        "cubin" (runs as it is), "ptx" (the driver compiles it at the first use) or "none"; and the target.
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
    """Whether a version, such as "12.2", is equal to or newer than the other."""
    return _parts(version) >= _parts(other)
