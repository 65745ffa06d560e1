"""What NVIDIA publishes of its GPUs: peaks without sparsity and memory bandwidth, and images by compute capability.

From the data sheets of V100, T4, A100, A10, L4, L40S, H100, H200 and B200 (nvidia.com/en-us/data-center). Where a
sheet gives a tensor core's peak with sparsity, half of it stands here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """FLOP/s in float32 outside of the tensor cores, in TF32 (0: has none) and in float16; memory's bytes/s."""

    float32: float
    tf32: float
    float16: float
    bandwidth: float


def _peak(float32: float, tf32: float, float16: float, bandwidth: float) -> Peak:
    """From TFLOP/s and GB/s."""
    return Peak(float32 * 1e12, tf32 * 1e12, float16 * 1e12, bandwidth * 1e9)


# By what stands in the driver's name, the first that fits.
PEAKS = {
    "V100": _peak(15.7, 0, 125, 900),
    "T4": _peak(8.1, 0, 65, 320),
    "A100-SXM4-80GB": _peak(19.5, 156, 312, 2039),
    "A100 80GB": _peak(19.5, 156, 312, 1935),  # the PCIe card
    "A100": _peak(19.5, 156, 312, 1555),
    "A10": _peak(31.2, 62.5, 125, 600),
    "L40S": _peak(91.6, 183, 362, 864),
    "L4": _peak(30.3, 60, 121, 300),
    "H100 PCIe": _peak(51, 378, 756, 2000),
    "H100": _peak(67, 494, 989, 3350),
    "H200": _peak(67, 494, 989, 4800),
    "B200": _peak(75, 1100, 2250, 7700),
}


def published(name: str) -> Peak | None:
    """The peaks of a GPU by the driver's name for it; None where the course knows none, and for a part of a GPU."""
    words = name.replace("-", " ").split()
    for known, peak in PEAKS.items():
        parts = known.replace("-", " ").split()
        whole = all(any(word == part or word.startswith(f"{part}X") for word in words) for part in parts)
        if whole and "MIG" not in words:
            return peak
    return None


@dataclass(frozen=True)
class Kernels:
    """How a build of TensorFlow runs on a GPU: "cubin" as it is, "ptx" compiled at first use, "none"."""

    kind: str
    target: str = ""


def kernels(capability: str, built: list[str]) -> Kernels:
    """How code built for `built` (as in ["sm_75", "compute_80"]) runs on a GPU of `capability` ("8.6").

    A cubin runs on its own major capability, the same minor one or a later; PTX on every later one, compiled by the
    driver (CUDA C++ Programming Guide, 3.1.2 to 3.1.4). TensorFlow builds a cubin also for each compute_XY (its
    configure.py).
    """
    mine = _parts(capability)
    targets = {name: _parts(f"{name.partition('_')[2][:-1]}.{name[-1]}") for name in built if "_" in name}
    cubins = {t: name for name, t in targets.items() if t[0] == mine[0] and t[1] <= mine[1]}
    if cubins:
        return Kernels("cubin", cubins[max(cubins)])
    sources = {t: name for name, t in targets.items() if name.startswith("compute_") and t <= mine}
    return Kernels("ptx", sources[max(sources)]) if sources else Kernels("none")


def _parts(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)


def at_least(version: str, other: str) -> bool:
    """Whether a version as in "12.2" is the same as the other or newer."""
    return _parts(version) >= _parts(other)
