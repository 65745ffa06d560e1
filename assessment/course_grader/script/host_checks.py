"""What the host saw of the ranks while they trained, and what it says of how they did: nothing here comes from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_grader.sandbox.resource_monitor import ResourceSample

# Of the CPU seconds of the busiest rank, that each must use while gradients go between them. The lowest share of an
# honest script in docs/assessment.md is given there; a rank that waits for the others uses less than a tenth.
MIN_CPU_SHARE = 0.25
MIN_CPU_S = 1.0  # of the busiest rank, that it takes to compare the others with it
ENDS = 0.1  # of all bytes: what goes between the ranks before the first tenth, or after the last, is start and end
MIN_BYTES = 20_000  # that ranks exchange which have found each other
MIN_BYTES_SHARE = 0.4  # of the bytes of the gradients that a script says it averages: half of them in 16 bits


@dataclass(frozen=True)
class HostRecord:
    """What the host saw of a run on all ranks.

    Attributes:
        samples: user CPU seconds of each rank and bytes between all of them, some five times a second; () where they
            can't be measured.
        counts_bytes: all that is reduced goes over the loopback device: Gloo between ranks on CPUs.
        on_gpus: the ranks compute on GPUs, of which CPU seconds say nothing.
        devices: rank → GPUs on which the driver has a process of this rank; None where the driver does not say.
    """

    samples: Sequence[ResourceSample] = ()
    counts_bytes: bool = False
    on_gpus: bool = False
    devices: Mapping[int, frozenset[str]] | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes that went between the ranks; None where they are not counted."""
        return self.samples[-1].traffic if self.counts_bytes and self.samples else None

    def cpu_seconds(self) -> np.ndarray | None:
        """User CPU seconds of each rank, float [ranks], while the ranks exchanged; None where that is not known."""
        if self.on_gpus or len(self.samples) < 2:
            return None
        traffic = np.array([sample.traffic for sample in self.samples], float)
        start, end = 0, len(self.samples) - 1
        if self.counts_bytes and traffic[-1] > 0:
            start = int(np.argmax(traffic > ENDS * traffic[-1]))
            end = int(np.argmax(traffic >= (1 - ENDS) * traffic[-1]))
        return np.array(self.samples[end].user_seconds) - np.array(self.samples[start].user_seconds)


def update_bytes(values: int, ranks: int) -> int:
    """Bytes that go between all ranks where they average `values` numbers of 32 bits once.

    On N ranks, a ring all-reduce of S bytes moves 2 (N - 1) S bytes in all.
    """
    return 2 * (ranks - 1) * values * np.dtype(np.float32).itemsize


def silent(host: HostRecord) -> str:
    """A sentence about ranks that exchanged nothing; "" where they did, or it is not known."""
    if host.bytes is None or host.bytes >= MIN_BYTES:
        return ""
    return f"Only {host.bytes:,} bytes went between the ranks: they have exchanged nothing."


def idle(host: HostRecord) -> str:
    """A sentence about a rank that computed little while the others trained; "" where none did."""
    used = host.cpu_seconds()
    if used is None or len(used) < 2 or used.max() < MIN_CPU_S or used.min() >= MIN_CPU_SHARE * used.max():
        return ""
    return (
        f"While the ranks trained, rank {used.argmin()} used {used.min():.1f} s of its core and rank {used.argmax()} "
        f"{used.max():.1f} s: rank {used.argmin()} did not compute gradients of its own."
    )


def missing_bytes(host: HostRecord, expected: int) -> str:
    """A sentence where fewer bytes went between the ranks than the gradients have that the script says it averages."""
    if host.bytes is None or host.bytes >= MIN_BYTES_SHARE * expected:
        return ""
    return (
        f"The script says that it averaged gradients of {expected / 1e6:,.0f} MB of traffic, but only "
        f"{host.bytes / 1e6:,.0f} MB went between the ranks."
    )


def shared_device(host: HostRecord) -> str:
    """A sentence about ranks that do not have one GPU each, by the driver's list; "" where they do."""
    devices = host.devices or {}
    for rank, names in devices.items():
        if len(names) > 1:
            return f"The driver has rank {rank} on {len(names)} GPUs: each rank should use one."
        for other, others in devices.items():
            if other > rank and names & others:
                return f"The driver has ranks {rank} and {other} on one GPU: each rank should use its own."
    return ""
