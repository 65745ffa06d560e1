"""What a script really did on N ranks: gathered from a probe in each rank and from Horovod's own timeline.

What the script prints is no evidence of anything but that it prints.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from course_lib import launch, timeline

_COLLECTIVES = ("ALLREDUCE", "BROADCAST", "ALLGATHER", "ALLTOALL")


@dataclass(frozen=True)
class RankEvidence:
    """One rank: its records by kind, the lines it printed, the examples it read, its weights after training."""

    rank: int
    records: Mapping[str, list[dict]] = field(default_factory=dict)
    printed: tuple[str, ...] = ()
    examples: tuple[np.ndarray, ...] = ()  # one array of fingerprints (uint64) for each training step
    epochs: tuple[int, ...] = ()  # training steps of each epoch
    weights: tuple[np.ndarray, ...] = ()

    def first(self, kind: str) -> dict | None:
        """The first record of `kind`, None where there is none."""
        return next(iter(self.records.get(kind, ())), None)

    def last(self, kind: str) -> dict | None:
        """The last record of `kind`, None where there is none."""
        return next(reversed(self.records.get(kind, ())), None)

    def epoch_examples(self, epoch: int) -> np.ndarray:
        """Fingerprints of the examples that this rank trained on in `epoch`."""
        start = sum(self.epochs[:epoch])
        steps = self.examples[start : start + self.epochs[epoch]] if epoch < len(self.epochs) else ()
        return np.concatenate(steps) if steps else np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Evidence:
    """A run on `len(ranks)` ranks: how it ended, each rank, and how often Horovod did what to which tensor."""

    result: launch.Result
    ranks: tuple[RankEvidence, ...]
    operations: Mapping[str, Counter] = field(default_factory=dict)  # "ALLREDUCE" → tensor name → times

    @property
    def size(self) -> int:
        """Number of ranks that were started."""
        return len(self.ranks)

    def reductions(self, of: str) -> Counter:
        """All-reduced tensors whose names contain `of` ("grad": Horovod's name for gradients), with counts."""
        return Counter({name: n for name, n in self.operations.get("ALLREDUCE", {}).items() if of in name})

    @property
    def broadcasts(self) -> int:
        """Number of tensors that were broadcast at least once."""
        return len(self.operations.get("BROADCAST", ()))

    def weights_differ(self) -> float | None:
        """Largest difference of any weight between ranks after training; None where a rank has no weights."""
        if any(not rank.weights for rank in self.ranks):
            return None
        first, *others = (rank.weights for rank in self.ranks)
        if any([w.shape for w in other] != [w.shape for w in first] for other in others):
            return float("inf")
        # NaN on every rank alike is no disagreement, NaN on one is.
        gaps = [
            np.where(np.isnan(a) & np.isnan(b), 0, np.nan_to_num(np.abs(a - b), nan=np.inf)).max(initial=0.0)
            for other in others
            for a, b in zip(first, other)
        ]
        return float(max(gaps, default=0.0))


def collect(
    script: str | Path,
    args: Sequence[str] = (),
    ranks: int = 2,
    *,
    controller: str | None = None,
    timeout: float | None = None,
    patience: float = float("inf"),
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    on_event: Callable[[launch.Event], None] | None = None,
) -> Evidence:
    """Run `script` on `ranks` ranks under the probe and gather what it did; `cwd` is where the script runs; the
    other arguments are those of `launch.start`.

    Raises CourseError where the run cannot be started; a script that fails is evidence too.
    """
    with tempfile.TemporaryDirectory(prefix="evidence-") as folder:
        probe = Path(folder)
        settings = {"HOROVOD_TIMELINE": str(probe / "timeline.json"), **(env or {})}
        printed: dict[int, list[str]] = {}
        with launch.start(
            script,
            args,
            ranks,
            controller=controller,
            timeout=timeout,
            patience=patience,
            probe=probe,
            env=settings,
            cwd=cwd,
        ) as run:
            for event in run:
                if event.kind == "output" and event.data["stream"] == "stdout":
                    printed.setdefault(event.rank, []).append(event.data["text"])
                if on_event:
                    on_event(event)
            result = run.wait()
        return Evidence(
            result,
            tuple(_read_rank(probe, rank, tuple(printed.get(rank, ()))) for rank in range(ranks)),
            read_timeline(probe / "timeline.json"),
        )


def read_timeline(path: Path) -> dict[str, Counter]:
    """Count, in Horovod's trace file, the collectives done: operation → tensor name → times.

    A file cut short (a rank was killed) is read as far as it goes; a missing one gives an empty answer.
    """
    try:
        table = timeline.read(path)
    except OSError:
        return {}
    operations: dict[str, Counter] = {}
    for tensor, activity in zip(table["tensor"], table["activity"]):
        if activity in _COLLECTIVES:
            operations.setdefault(activity, Counter())[tensor] += 1
    return operations


def _read_rank(folder: Path, rank: int, printed: tuple[str, ...]) -> RankEvidence:
    records: dict[str, list[dict]] = {}
    lines = folder / f"rank-{rank}.jsonl"
    for line in lines.read_text(errors="replace").splitlines() if lines.exists() else ():
        try:
            record = json.loads(line)
            records.setdefault(record.pop("kind"), []).append(record)
        except (ValueError, KeyError, AttributeError):
            continue  # cut short by a kill
    arrays = folder / f"rank-{rank}.npz"
    if not arrays.exists():
        return RankEvidence(rank, records, printed)
    with np.load(arrays, allow_pickle=False) as kept:
        examples = np.split(kept["examples"], np.cumsum(kept["steps"])[:-1]) if len(kept["steps"]) else []
        weights = tuple(kept[f"w{i}"] for i in range(sum(name.startswith("w") for name in kept.files)))
        return RankEvidence(rank, records, printed, tuple(examples), tuple(map(int, kept["epochs"])), weights)
