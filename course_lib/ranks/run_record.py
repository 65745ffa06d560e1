"""Read the logs that the ranks of a run have written (see `instrumentation`).

The script's own process writes the log, so all files are untrusted input: invalid records are left out, sizes are
limited, and no content raises an exception.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.ranks import launch

MAX_FILE_BYTES = 64 * 2**20  # the rest of a longer file is not read
MAX_RECORD_CHARACTERS = 100_000
MAX_ARRAYS = 10_000  # of a network's weights
MAX_NUMBER = 2**53
DIGEST_LENGTH = 5
# Weights count as equal if their difference is at most this fraction of their norm. Sharpness-aware minimisation adds a
# perturbation on each rank and subtracts it again, with a rounding error of 1e-7. A separate update of one rank changes
# the weights by 1e-2.
SAME_WEIGHTS = 1e-4


@dataclass(frozen=True)
class RankRecord:
    """The log of one rank: its records by kind, its printed lines, its examples, its weights after training."""

    rank: int
    records: Mapping[str, list[dict]] = field(default_factory=dict)
    printed: tuple[str, ...] = ()
    examples: tuple[np.ndarray, ...] = ()  # for each training step, the brightness of its examples, float32 [examples]
    weights: tuple[np.ndarray, ...] = ()
    trainable: tuple[bool, ...] = ()  # one for each of the weights

    def all(self, kind: str) -> list[dict]:
        """All records of `kind`."""
        return self.records.get(kind, [])

    def first(self, kind: str) -> dict | None:
        """The first record of `kind`; None if there is none."""
        return next(iter(self.all(kind)), None)

    def last(self, kind: str) -> dict | None:
        """The last record of `kind`; None if there is none."""
        return next(reversed(self.all(kind)), None)

    def number(self, kind: str, name: str) -> int:
        """The integer `name` in the last record of `kind`; 0 if there is none."""
        return _as_int((self.last(kind) or {}).get(name))

    def total(self, kind: str, name: str, **where: object) -> int:
        """The sum of the integer `name` over the records of `kind` that have the entries `where`."""
        return sum(
            _as_int(record.get(name))
            for record in self.all(kind)
            if all(record.get(entry) == value for entry, value in where.items())
        )

    @property
    def epochs(self) -> tuple[int, ...]:
        """Number of batches in each complete epoch of `fit`."""
        return tuple(n for record in self.all("epoch") if isinstance(n := record.get("steps"), int))

    def epoch_examples(self, epoch: int) -> np.ndarray:
        """Brightness of the examples that this rank read in `epoch`."""
        starts = [_as_int(record.get("first")) for record in self.all("epoch")] + [len(self.examples)]
        first, end = (starts[min(one, len(starts) - 1)] for one in (epoch, epoch + 1))
        return np.concatenate([np.zeros(0, np.float32), *self.examples[first:end]])

    @property
    def digests(self) -> dict[int, np.ndarray]:
        """Number of updates → digest of the trainable weights, float [5]; see `instrumentation.training.digest`."""
        return {
            _as_int(record.get("updates")): np.array(digest, float)
            for record in self.all("digest")
            if isinstance(digest := record.get("digest"), list)
            and len(digest) == DIGEST_LENGTH
            and all(isinstance(number, float) for number in digest)
        }

    @property
    def values(self) -> int:
        """Number of trainable values."""
        return sum(w.size for w, trained in zip(self.weights, self.trainable) if trained)


@dataclass(frozen=True)
class RunRecord:
    """The result of a run and the log of each rank."""

    result: launch.Result
    ranks: tuple[RankRecord, ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def joined(self) -> bool:
        """Whether `hvd.init` connected all ranks."""
        sizes, numbers = ([rank.number("init", name) for rank in self.ranks] for name in ("size", "rank"))
        return set(sizes) == {self.size} and sorted(numbers) == list(range(self.size))

    @property
    def trained(self) -> bool:
        """Whether a training step was logged on any rank."""
        return any(rank.number("progress", "steps") for rank in self.ranks)

    def agreement(self) -> list[tuple[int, bool]]:
        """(number of updates, whether the trainable weights of all ranks were equal) for each digest of all ranks.

        The first update is left out, because Horovod's callback broadcasts after it.
        """
        first, *others = (rank.digests for rank in self.ranks)
        common = sorted(updates for updates in first if updates > 1 and all(updates in other for other in others))
        return [(updates, all(_equal(first[updates], other[updates]) for other in others)) for updates in common]

    def weights_differ(self) -> float | None:
        """The largest difference of a weight between ranks after training.

        None if the weights of a rank are missing, inf if the shapes differ.
        """
        if any(not rank.weights for rank in self.ranks):
            return None
        first, *others = (rank.weights for rank in self.ranks)
        if any([w.shape for w in other] != [w.shape for w in first] for other in others):
            return float("inf")
        # NaN on both ranks counts as equal, NaN on one as a difference.
        with np.errstate(all="ignore"):
            gaps = [
                np.where(np.isnan(a) & np.isnan(b), 0, np.nan_to_num(np.abs(a - b), nan=np.inf)).max(initial=0.0)
                for other in others
                for a, b in zip((w.astype(float) for w in first), (w.astype(float) for w in other))
            ]
        return float(max(gaps, default=0.0))


def collect(
    script: str | Path,
    args: Sequence[object] = (),
    ranks: int = 2,
    *,
    on_event: Callable[[launch.Event], None] | None = None,
    options: launch.Options | None = None,
    **settings: Any,
) -> RunRecord:
    """Run `script` on `ranks` ranks; return the record.

    Args:
        on_event: called with each event of the run.
        options: as for `launch.start`; `record` is set by this function.
        settings: `controller`, `timeout` and `env`, as for `launch.start`.

    Raises CourseError if the run can't start. A script that fails also leaves a record.
    """
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        printed: dict[int, list[str]] = {}
        options = replace(options or launch.Options(), record=Path(folder))
        with launch.start(script, args, ranks, options=options, **settings) as run:
            for event in run:
                if event.kind == "output" and event.rank is not None and event.data["stream"] == "stdout":
                    printed.setdefault(event.rank, []).append(event.data["text"])
                if on_event:
                    on_event(event)
            result = run.wait()
        return read(Path(folder), ranks, result, printed=printed)


def read(
    folder: Path, ranks: int, result: launch.Result, *, printed: Mapping[int, Sequence[str]] | None = None
) -> RunRecord:
    """Read the record that a run on `ranks` ranks left in `folder`; `printed`: rank → lines that it printed."""
    printed = printed or {}
    return RunRecord(result, tuple(_read_rank(folder, rank, tuple(printed.get(rank, ()))) for rank in range(ranks)))


def _read_rank(folder: Path, rank: int, printed: tuple[str, ...]) -> RankRecord:
    records: dict[str, list[dict]] = {}
    for line in _bytes(folder / f"rank-{rank}.jsonl").decode(errors="replace").splitlines():
        try:
            record = json.loads(line) if len(line) < MAX_RECORD_CHARACTERS else None
        except (ValueError, RecursionError):
            continue  # cut off by a kill
        if isinstance(record, dict) and isinstance(kind := record.pop("kind", None), str):
            records.setdefault(kind, []).append(record)
    steps = _steps(_bytes(folder / f"rank-{rank}.steps"), _bytes(folder / f"rank-{rank}.examples"))
    return RankRecord(rank, records, printed, steps, *_weights(folder / f"rank-{rank}.npz"))


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError:
        return b""


def _steps(sizes: bytes, examples: bytes) -> tuple[np.ndarray, ...]:
    counts = np.frombuffer(sizes[: len(sizes) // 4 * 4], "<i4")
    brightness = np.frombuffer(examples[: len(examples) // 4 * 4], "<f4")
    ends = np.cumsum(np.maximum(counts, 0), dtype=np.int64)
    ends = ends[ends <= len(brightness)]
    return tuple(np.split(brightness[: ends[-1]], ends[:-1])) if len(ends) else ()


def _weights(path: Path) -> tuple[tuple[np.ndarray, ...], tuple[bool, ...]]:
    """The weights in a file, and which of them are trainable; empty if the file can't be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return (), ()
        with zipfile.ZipFile(path) as archive:  # NumPy would decompress members of any size
            if sum(member.file_size for member in archive.infolist()) > MAX_FILE_BYTES:
                return (), ()
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in sorted(file.files) if name != "trainable"][:MAX_ARRAYS]
            weights, trainable = tuple(file[name] for name in names), tuple(map(bool, file["trainable"]))
    except Exception:  # zipfile, zlib and NumPy can raise anything for an invalid file
        return (), ()
    numeric = len(weights) == len(trainable) and all(one.dtype.kind in "fiub" for one in weights)
    return (weights, trainable) if numeric else ((), ())


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two digests belong to equal weights, up to SAME_WEIGHTS."""
    size = max(abs(one[0]), abs(other[0]))
    return bool(np.allclose(one, other, rtol=0, atol=SAME_WEIGHTS * size if np.isfinite(size) else 0, equal_nan=True))


def _as_int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_NUMBER else 0
