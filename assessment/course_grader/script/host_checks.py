"""Checks of the host's measurements of the ranks during training. No value comes from the script's own processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_grader.sandbox.resource_monitor import ResourceSample

# CPU seconds of each rank, as a fraction of the busiest rank's. Honest scripts of the corpus have at least 0.77 on a
# busy host, scripts in which one rank computes for the others 0.12 and 0.22 (docs/assessment.md).
MIN_CPU_SHARE = 0.25
MIN_CPU_S = 1.0  # of the busiest rank: with less, the sampling interval of 0.2 s distorts the fractions
ENDS_SHARE = 0.1  # of all bytes: the first and the last tenth are the start and the end of a training
MIN_BYTES = 20_000  # connected ranks exchange at least this much
# Minimum fraction of the bytes of the averages in the script's log. Gradients in 16 bits have half of the bytes, and
# the reference sends 8 to 10 % more than the bytes of its gradients.
MIN_BYTES_SHARE = 0.4


@dataclass(frozen=True)
class HostRecord:
    """The host's measurements of a run on all ranks.

    Attributes:
        samples: user CPU seconds of each rank and bytes between all ranks, about five times a second; () if they
            cannot be measured.
        counts_bytes: whether all collectives use the loopback device: Gloo between ranks on CPUs.
        on_gpus: whether the ranks compute on GPUs; their CPU seconds are then not used.
        devices: rank → GPUs on which the driver lists a process of this rank; None if the driver lists none.
    """

    samples: Sequence[ResourceSample] = ()
    counts_bytes: bool = False
    on_gpus: bool = False
    devices: Mapping[int, frozenset[str]] | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes between the ranks; None if they are not counted."""
        return self.samples[-1].traffic if self.counts_bytes and self.samples else None

    def cpu_seconds(self) -> np.ndarray | None:
        """Return the user CPU seconds of each rank, float [ranks], while the ranks communicated; None if unknown."""
        if self.on_gpus or len(self.samples) < 2:
            return None
        traffic = np.array([sample.traffic for sample in self.samples], float)
        start, end = 0, len(self.samples) - 1
        if self.counts_bytes and traffic[-1] > 0:
            start = int(np.argmax(traffic > ENDS_SHARE * traffic[-1]))
            end = int(np.argmax(traffic >= (1 - ENDS_SHARE) * traffic[-1]))
        return np.array(self.samples[end].user_seconds) - np.array(self.samples[start].user_seconds)


def update_bytes(values: int, ranks: int) -> int:
    """Return the bytes between all ranks for one average of `values` numbers of 32 bits.

    On N ranks, a ring all-reduce of S bytes moves 2 (N - 1) S bytes in all.
    """
    return 2 * (ranks - 1) * values * np.dtype(np.float32).itemsize


def silent(host: HostRecord) -> str:
    """Return a sentence if the ranks exchanged nothing; "" if they did, or if bytes are not counted."""
    if host.bytes is None or host.bytes >= MIN_BYTES:
        return ""
    return f"The ranks sent each other only {host.bytes:,} bytes: they exchanged nothing."


def idle(host: HostRecord) -> str:
    """Return a sentence about a rank that computed little while the others trained; "" if there is none."""
    used = host.cpu_seconds()
    if used is None or len(used) < 2 or used.max() < MIN_CPU_S or used.min() >= MIN_CPU_SHARE * used.max():
        return ""
    return (
        f"While the ranks trained, rank {used.argmin()} used {used.min():.1f} s of its core and rank {used.argmax()} "
        f"{used.max():.1f} s: rank {used.argmin()} did not compute its own gradients."
    )


def missing_bytes(host: HostRecord, expected: int) -> str:
    """Return a sentence if the ranks exchanged fewer than `expected` bytes, those of the logged averages; else ""."""
    if host.bytes is None or host.bytes >= MIN_BYTES_SHARE * expected:
        return ""
    return (
        f"The averages of gradients that the script logs need {expected / 1e6:,.0f} MB of traffic, but the ranks sent "
        f"each other only {host.bytes / 1e6:,.0f} MB."
    )


def shared_device(host: HostRecord) -> str:
    """Return a sentence if, by the driver's list, the ranks do not have one GPU each; else ""."""
    devices = host.devices or {}
    for rank, names in devices.items():
        if len(names) > 1:
            return f"According to the driver, rank {rank} uses {len(names)} GPUs: each rank should use one."
        for other, others in devices.items():
            if other > rank and names & others:
                return f"According to the driver, ranks {rank} and {other} use one GPU: each rank should use its own."
    return ""
