"""Break down the time of a training step on each rank, from the profiles of `instrumentation.step_profile`.

Each moment of a rank's time counts for the first of PARTS that applies. If a thread with an operation is in the run
queue because a thread of Horovod or of the input pipeline has the core, this time counts for that thread. The clocks of
the ranks are aligned by the ends of the all-reduces, which are simultaneous on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from course_lib.system.errors import CourseError

NETWORK = "forward, backward, update"
METRICS = "metrics"
WAITING = "all-reduce: waiting for other ranks"
MOVING = "all-reduce: moving bytes"
INPUT = "input"
CALLBACKS = "callbacks"
HOROVOD = "Horovod's threads on its core"
OTHERS = "other processes on its core"
KERAS = "Keras and TensorFlow between operations"
PARTS = (NETWORK, METRICS, WAITING, MOVING, INPUT, CALLBACKS, HOROVOD, OTHERS, KERAS)

LAST_STEP = 71  # number of the step, counted from 1, at which the profile ends
ENOUGH = 0.85  # of a step: with a larger share of the network, the other parts matter little
LAUNCHING = 0.5  # of a step: if the GPU computes less, launching its kernels is the limit
_LITTLE = 0.02  # of a step: a smaller part is not named
_APART = 0.05  # of a step: with a larger difference in waiting, one rank is the slowest
ADVICE = {
    NETWORK: "The network's own computation takes nearly all of the time: use bfloat16, XLA or more ranks.",
    METRICS: "Metrics: compute fewer of them, or only in every k-th step.",
    MOVING: "The all-reduce: reduce fewer bytes (float16 compression), in fewer tensors (`num_groups=1`), or less "
    "often (a larger batch).",
    INPUT: "The input: prepare batches in another thread (`prefetch`), process whole batches instead of single images, "
    "and keep what does not change in memory (`cache`).",
    CALLBACKS: "Callbacks: do their work once per epoch, not after each batch.",
    HOROVOD: "Horovod's threads: reduce fewer tensors (`num_groups=1`), or give each rank a second core.",
    OTHERS: "Other processes: stop the other programs on these cores.",
    KERAS: "Keras's work between the operations: run several steps in each call (`steps_per_execution`), or use a "
    "larger batch.",
}

Profile = Mapping[str, np.ndarray]  # a file of `step_profile` for one rank
Spans = np.ndarray  # int64 [spans, 2]: start and end in ns, sorted, without overlaps


@dataclass(frozen=True)
class StepShares:
    """The breakdown of one rank's training step.

    Attributes:
        milliseconds: duration of one step.
        shares: each of PARTS → fraction of the step; the sum is 1.
        gpu: fraction of the step in which a GPU of this rank computes; None without a GPU.
    """

    milliseconds: float
    shares: dict[str, float]
    gpu: float | None = None


def read(folder: Path) -> list[StepShares]:
    """The breakdown for each rank of a finished run, from the profiles in `folder`.

    Raises CourseError if there is no profile.
    """
    profiles: list[Profile] = []
    for file in sorted(folder.glob("rank-*.npz"), key=lambda file: int(file.stem.removeprefix("rank-"))):
        with np.load(file) as content:
            profiles.append({name: content[name] for name in content.files})
    if not profiles:
        raise CourseError(f"No rank made the {LAST_STEP} training steps that a profile needs: train longer.", code=1)
    clocks = _clocks(profiles)
    ready = _ready(profiles, clocks)
    return [_shares(profile, clock, ready) for profile, clock in zip(profiles, clocks)]


def bottleneck(ranks: Sequence[StepShares]) -> str:
    """A sentence that says what to change first. It is about the rank that waits least for others, the slowest."""
    slowest = min(range(len(ranks)), key=lambda rank: ranks[rank].shares[WAITING])
    shares, gpu = ranks[slowest].shares, ranks[slowest].gpu
    part = max((part for part in PARTS if part not in (NETWORK, WAITING)), key=lambda part: shares[part])
    if shares[NETWORK] >= ENOUGH or shares[part] < _LITTLE:
        part = NETWORK
    if gpu is not None and gpu < LAUNCHING and part in (NETWORK, KERAS):
        return f"The GPU computes {gpu:.0%} of the time: launching its kernels is the limit. Use a larger batch."
    longest = max(step.shares[WAITING] for step in ranks)
    if longest - shares[WAITING] > _APART:
        return f"Rank {slowest} is the slowest: others wait for it {longest:.0%} of their time. On it: {ADVICE[part]}"
    return ADVICE[part]


def _clocks(profiles: Sequence[Profile]) -> list[int]:
    """The offset of each rank's clock from that of rank 0, in ns: the median difference of the all-reduces' ends."""
    done = [dict(zip(profile["names"], profile["done"])) for profile in profiles]
    apart = [[own[name] - done[0][name] for name in own if name in done[0]] for own in done]
    return [int(np.median(times)) if times else 0 for times in apart]


def _ready(profiles: Sequence[Profile], clocks: Sequence[int]) -> dict[str, int]:
    """For each all-reduce, the time at which the last rank was ready for it, on the clock of rank 0."""
    ready: dict[str, int] = {}
    for profile, clock in zip(profiles, clocks):
        for name, time in zip(profile["names"], profile["ready"]):
            ready[name] = max(ready.get(name, 0), int(time) - clock)
    return ready


def _shares(profile: Profile, clock: int, ready: Mapping[str, int]) -> StepShares:
    all_ready = np.array([ready[name] for name in profile["names"]], np.int64) + clock
    waits = np.stack([profile["ready"], np.minimum(all_ready, profile["done"])], axis=1)
    moves = np.stack([waits[:, 1], profile["done"]], axis=1)
    in_order = {
        NETWORK: np.concatenate([profile["operation"], profile["kernel"]]),
        METRICS: profile["metric"],
        WAITING: waits,
        MOVING: moves,
        INPUT: profile["input"],
        CALLBACKS: profile["callback"],
    }
    taken = union(profile["watching"])
    total = float(profile["seconds"]) - seconds(taken)
    parts = dict.fromkeys(PARTS, 0.0)
    for name, spans in in_order.items():
        parts[name] = seconds(union(taken, spans)) - seconds(taken)
        taken = union(taken, spans)
    _move_queued(parts, *(float(profile[name]) for name in ("queued", "horovod", "others")))
    parts[KERAS] = max(0.0, total - sum(parts.values()))
    whole = sum(parts.values())
    gpu = seconds(union(profile["kernel"])) / whole if len(profile["kernel"]) else None
    shares = {name: part / whole for name, part in parts.items()}
    return StepShares(1e3 * whole / int(profile["steps"]), shares, gpu)


def _move_queued(parts: dict[str, float], queued: float, horovod: float, others: float) -> None:
    """Move the seconds in the run queue from the network to the threads that had the core, in place."""
    queued = min(queued, parts[NETWORK])
    parts[NETWORK] -= queued
    known = min(queued, horovod + others)
    if known > 0:
        parts[HOROVOD] += known * horovod / (horovod + others)
        parts[INPUT] += known * others / (horovod + others)
    parts[OTHERS] += queued - known


def union(*spans: np.ndarray) -> Spans:
    """The union of all spans; spans that touch or overlap are merged."""
    together = np.concatenate([np.asarray(some, np.int64).reshape(-1, 2) for some in spans])
    together = together[together[:, 1] > together[:, 0]]
    if not len(together):
        return together
    together = together[np.argsort(together[:, 0], kind="stable")]
    ends = np.maximum.accumulate(together[:, 1])
    first = np.flatnonzero(np.concatenate([[True], together[1:, 0] > ends[:-1]]))
    return np.stack([together[first, 0], np.maximum.reduceat(together[:, 1], first)], axis=1)


def seconds(spans: Spans) -> float:
    """Total duration of the spans of a union, in seconds."""
    return float((spans[:, 1] - spans[:, 0]).sum()) / 1e9
