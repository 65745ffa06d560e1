"""Where the time of a training step goes, of each rank: shares of what `instrumentation.step_profile` recorded.

A rank's time is divided by what it does: the first of PARTS that applies at a moment has it. An operation that runs
while its thread stands in the queue for a core, since Horovod's thread or the input's have it, is theirs for as long.
All ranks are done with an all-reduce at the same moment: so their clocks are set.
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

LAST_STEP = 71  # of those that are profiled, from 1 on
ENOUGH = 0.85  # of a step in the network: what is left is not worth the trouble
LAUNCHING = 0.5  # of a step in which a GPU computes, below which starting its kernels is the limit
_LITTLE = 0.02  # of a step: not worth naming
_APART = 0.05  # of a step, that one rank waits longer than another: the ranks do not do the same
ADVICE = {
    NETWORK: "The network's own arithmetic is nearly all of it: other arithmetic (bfloat16, XLA) or more ranks help.",
    METRICS: "Metrics: compute fewer of them, or in every k-th step.",
    MOVING: "The all-reduce: reduce fewer bytes (float16 compression), in fewer tensors (`num_groups=1`), or less "
    "often (a larger batch).",
    INPUT: "The input: prepare batches in another thread (`prefetch`), work on whole batches rather than on images, "
    "keep what does not change (`cache`).",
    CALLBACKS: "Callbacks: what they do after each batch, do once an epoch.",
    HOROVOD: "Horovod's threads: reduce fewer tensors (`num_groups=1`), or give each rank a second core.",
    OTHERS: "Other processes: end what else runs on these cores.",
    KERAS: "Keras's work between the operations: several steps for each call (`steps_per_execution`), or a larger "
    "batch.",
}

Profile = Mapping[str, np.ndarray]  # what `step_profile` wrote of one rank
Spans = np.ndarray  # int64 [spans, 2]: begin and end, sorted, none overlaps another


@dataclass(frozen=True)
class StepShares:
    """Where the time of one rank's steps goes.

    Attributes:
        milliseconds: of one step.
        shares: each of PARTS → its share; they add up to 1.
        gpu: share of the time in which a GPU of this rank computes; None without one.
    """

    milliseconds: float
    shares: dict[str, float]
    gpu: float | None = None


def read(folder: Path) -> list[StepShares]:
    """The shares of all ranks of a run that has ended, whose profiles are in this folder.

    Raises CourseError where there is none.
    """
    profiles: list[Profile] = []
    for file in sorted(folder.glob("rank-*.npz"), key=lambda file: int(file.stem.removeprefix("rank-"))):
        with np.load(file) as content:
            profiles.append({name: content[name] for name in content.files})
    if not profiles:
        raise CourseError(f"No rank made the {LAST_STEP} training steps that a profile takes: train longer.", code=1)
    clocks = _clocks(profiles)
    ready = _ready(profiles, clocks)
    return [_shares(profile, clock, ready) for profile, clock in zip(profiles, clocks)]


def bottleneck(ranks: Sequence[StepShares]) -> str:
    """A sentence: what to change first. It is about the rank that waits least for others."""
    slowest = min(range(len(ranks)), key=lambda rank: ranks[rank].shares[WAITING])
    shares, gpu = ranks[slowest].shares, ranks[slowest].gpu
    part = max((part for part in PARTS if part not in (NETWORK, WAITING)), key=lambda part: shares[part])
    if shares[NETWORK] >= ENOUGH or shares[part] < _LITTLE:
        part = NETWORK
    if gpu is not None and gpu < LAUNCHING and part in (NETWORK, KERAS):
        return f"The GPU computes {gpu:.0%} of the time: starting its kernels is the limit. Use a larger batch."
    longest = max(step.shares[WAITING] for step in ranks)
    if longest - shares[WAITING] > _APART:
        return f"Rank {slowest} is the slowest: others wait for it {longest:.0%} of their time. On it: {ADVICE[part]}"
    return ADVICE[part]


def _clocks(profiles: Sequence[Profile]) -> list[int]:
    """How far the clock of each rank is ahead of that of rank 0: all are done with an all-reduce at the same moment."""
    done = [dict(zip(profile["names"], profile["done"])) for profile in profiles]
    apart = [[own[name] - done[0][name] for name in own if name in done[0]] for own in done]
    return [int(np.median(times)) if times else 0 for times in apart]


def _ready(profiles: Sequence[Profile], clocks: Sequence[int]) -> dict[str, int]:
    """Of each all-reduce, by the clock of rank 0, when the last rank was ready for it."""
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
    _displace(parts, *(float(profile[name]) for name in ("queued", "horovod", "others")))
    parts[KERAS] = max(0.0, total - sum(parts.values()))
    whole = sum(parts.values())
    gpu = seconds(union(profile["kernel"])) / whole if len(profile["kernel"]) else None
    shares = {name: part / whole for name, part in parts.items()}
    return StepShares(1e3 * whole / int(profile["steps"]), shares, gpu)


def _displace(parts: dict[str, float], queued: float, horovod: float, others: float) -> None:
    """Take from the network the seconds in which it stood in the queue for a core; give them to those that had it."""
    queued = min(queued, parts[NETWORK])
    parts[NETWORK] -= queued
    known = min(queued, horovod + others)
    if known > 0:
        parts[HOROVOD] += known * horovod / (horovod + others)
        parts[INPUT] += known * others / (horovod + others)
    parts[OTHERS] += queued - known


def union(*spans: np.ndarray) -> Spans:
    """All spans as one set, where those that touch or overlap are joined."""
    together = np.concatenate([np.asarray(some, np.int64).reshape(-1, 2) for some in spans])
    together = together[together[:, 1] > together[:, 0]]
    if not len(together):
        return together
    together = together[np.argsort(together[:, 0], kind="stable")]
    ends = np.maximum.accumulate(together[:, 1])
    first = np.flatnonzero(np.concatenate([[True], together[1:, 0] > ends[:-1]]))
    return np.stack([together[first, 0], np.maximum.reduceat(together[:, 1], first)], axis=1)


def seconds(spans: Spans) -> float:
    """How long the spans of a union are together."""
    return float((spans[:, 1] - spans[:, 0]).sum()) / 1e9
