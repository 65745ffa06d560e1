"""What a script really did on N ranks: gathered from a probe in each rank and from Horovod's own timeline.

What the script prints is no evidence of anything but that it prints. All files are read as the work of strangers:
what makes no sense is left out, nothing is believed to have the size that it claims, and nothing raises.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from course_lib.ranks import launch
from course_lib.ranks.instrumentation.recorder import STREAMS, Seal

COLLECTIVES = ("ALLREDUCE", "BROADCAST", "ALLGATHER", "ALLTOALL", "REDUCESCATTER")

MAX_FILE_BYTES = 256 * 2**20  # what a file has beyond that is not read
MAX_RECORD_CHARACTERS = 100_000
WEIGHT_TYPES = ("<f2", "<f4", "<f8", "<i4", "<i8", "|u1", "|b1")
# A tensor's row gets its name; a collective is asked for; a rank enters it; it begins; it ends and tells what it has
# reduced.
_TRACE = re.compile(
    rb'"process_name", "ph": "M", "pid": (?P<row>\d+), "args": \{"name": (?P<tensor>"[^"]*")'
    rb'|"ph": "B", "name": "NEGOTIATE_[A-Z]+",[^{}]*?"pid": (?P<asked>\d+)'
    rb'|"ph": "X", "name": "(?P<entrant>\d{1,9})",[^{}]*?"pid": (?P<entered>\d+)'
    rb'|"ph": "B", "name": "(?P<operation>' + "|".join(COLLECTIVES).encode() + rb')",[^{}]*?"pid": (?P<begun>\d+)'
    rb'|"pid": (?P<ended>\d+), "args": \{"dtype": "(?P<type>\w+)", '
    rb'"shape": "\[(?P<shape>(?:\d{1,12}(?:, ?|(?=\]))){0,8})\]"'
)


@dataclass(frozen=True)
class RankEvidence:
    """One rank: its records by kind, the lines it printed, the examples it read, its weights after training."""

    rank: int
    records: Mapping[str, list[dict]] = field(default_factory=dict)
    printed: tuple[str, ...] = ()
    examples: tuple[np.ndarray, ...] = ()  # for each training step the brightness (float32) of its examples
    weights: tuple[np.ndarray, ...] = ()
    trainable: tuple[bool, ...] = ()  # of the weights
    kept: tuple[np.ndarray, ...] = ()  # the weights not long before the end of training
    updates: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int64))  # as the probe has them
    genuine: bool = True  # as far as can be told, nobody but the probe has written the records

    def first(self, kind: str) -> dict | None:
        """The first record of `kind`, None where there is none."""
        return next(iter(self.records.get(kind, ())), None)

    def last(self, kind: str) -> dict | None:
        """The last record of `kind`, None where there is none."""
        return next(reversed(self.records.get(kind, ())), None)

    def number(self, kind: str, name: str) -> int:
        """A whole number in the last record of `kind`; 0 where there is none."""
        value = (self.last(kind) or {}).get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    @property
    def epochs(self) -> tuple[int, ...]:
        """Training steps of each epoch that `fit` has ended."""
        return tuple(n for record in self.records.get("epoch", ()) if isinstance(n := record.get("steps"), int))

    def epoch_examples(self, epoch: int) -> np.ndarray:
        """Brightness of the examples that this rank trained on in `epoch`."""
        records = self.records.get("epoch", ())
        if epoch >= len(records):
            return np.zeros(0, np.float32)
        first, steps = (records[epoch].get(name) for name in ("first", "steps"))
        if not (isinstance(first, int) and isinstance(steps, int) and 0 <= first <= first + steps):
            return np.zeros(0, np.float32)
        return np.concatenate([np.zeros(0, np.float32), *self.examples[first : first + steps]])

    @property
    def digests(self) -> dict[tuple[int, int], str]:
        """(updates, 0), or (0, steps) where no optimizer updates → digest of the trainable weights after them."""
        found = {}
        for record in self.records.get("digest", ()):
            updates = record.get("updates")
            found[updates, 0 if updates else record.get("steps")] = record.get("digest")
        return found

    @property
    def values(self) -> int:
        """Number of values that training can change."""
        return sum(w.size for w, trained in zip(self.weights, self.trainable) if trained)


@dataclass(frozen=True)
class Collectives:
    """What Horovod did, by operation: to which tensor how often, and to how many numbers and bytes in all.

    Numbers are those of floating point: others are no gradients. The sizes are those that the timeline has: of
    all-reduces on every rank, of broadcasts on receiving ranks only. `waiting` has the tensors whose collective was
    asked for and never began, each with the ranks that had entered it. Of a collective that Horovod has done before,
    nothing tells that; and where the ranks were killed, the last of them that entered is not written down.
    """

    times: Mapping[str, Counter] = field(default_factory=dict)
    elements: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """What was seen of the ranks from outside: seconds since the start; bytes that they have sent each other and CPU
    seconds that each has computed until then, without the kernel's."""

    time: float
    traffic: int
    computed: tuple[float, ...]


@dataclass(frozen=True)
class Evidence:
    """A run on `len(ranks)` ranks: how it ended, each rank, and what Horovod did.

    Attributes:
        traffic: bytes that the ranks received from each other over the network, as the kernel counts them; None where
            they were not counted or where gradients travel another way (MPI on one host, NCCL).
        ended_by: the sentence that says which limit ended the run, if one did.
        use: what was seen of the ranks from outside, look for look; () where nothing was.
    """

    result: launch.Result
    ranks: tuple[RankEvidence, ...]
    collectives: Collectives = Collectives()
    traffic: int | None = None
    ended_by: str = ""
    use: tuple[Moment, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks that were started."""
        return len(self.ranks)

    @property
    def joined(self) -> bool:
        """Whether all ranks called `hvd.init()` and found each other."""
        inits = [rank.last("init") or {} for rank in self.ranks]
        whole = all(init.get("size") == self.size for init in inits)
        return whole and {init.get("rank") for init in inits} == set(range(self.size))

    @property
    def operations(self) -> Mapping[str, Counter]:
        """Operation → tensor name → times."""
        return self.collectives.times

    @property
    def broadcasts(self) -> int:
        """Number of tensors that were broadcast at least once."""
        return len(self.operations.get("BROADCAST", ()))

    def looks(self) -> tuple[str, ...]:
        """What the script did on any rank that training does not need, each thing once."""
        found = [record for rank in self.ranks for record in rank.records.get("look", ())]
        where = (f"line {record['line']} " if record.get("line") else "" for record in found)
        return tuple(dict.fromkeys(f"{line}{str(record.get('what'))[:80]}" for line, record in zip(where, found)))

    def agreement(self) -> list[tuple[int, bool]]:
        """(updates, whether all ranks held the same trainable weights) for each moment of which all ranks have told."""
        first, *others = (rank.digests for rank in self.ranks)
        common = [moment for moment in first if all(moment in other for other in others)]
        return [(max(moment), all(other[moment] == first[moment] for other in others)) for moment in sorted(common)]

    def applied_apart(self) -> int | None:
        """The first update, counted from 1, at which the ranks applied different gradients, or after or before which
        weights differed that had been equal once; None where there is none."""
        number = min(len(rank.updates) for rank in self.ranks)
        first, *others = (rank.updates[:number] for rank in self.ranks)
        if not others or not number:
            return None
        before, applied, after, variables = np.any([first != other for other in others], axis=0).T
        apart, equal = applied | variables, [updates for updates, equal in self.agreement() if equal]
        for group in np.unique(first[:, 3]):
            own = np.flatnonzero(first[:, 3] == group)
            states = np.stack([before[own], after[own]], axis=1).ravel()  # before its first update, after it, …
            since = min([*np.flatnonzero(~states)[:1], *(2 * np.searchsorted(own, equal[:1]))], default=len(states))
            states[:since] = False
            apart[own] |= states.reshape(-1, 2).any(axis=1)
        found = np.flatnonzero(apart)
        return int(found[0]) + 1 if len(found) else None

    def changed_between(self) -> float:
        """The share of updates before which something else had changed a rank's weights since the last update of the
        same variables, at most.

        Between the first two a callback broadcasts, and may.
        """
        return max(map(_changed_between, (rank.updates for rank in self.ranks)), default=0.0)

    def weights_differ(self, trainable: bool = False) -> float | None:
        """Largest difference of any (with `trainable`: trainable) weight between ranks after training; None where a
        rank has no weights."""
        if any(not rank.weights for rank in self.ranks):
            return None
        first, *others = (
            [w for i, w in enumerate(rank.weights) if not trainable or rank.trainable[i : i + 1] == (True,)]
            for rank in self.ranks
        )
        if any([w.shape for w in other] != [w.shape for w in first] for other in others):
            return float("inf")
        # NaN on every rank alike is no disagreement, NaN on one is.
        with np.errstate(all="ignore"):
            gaps = [
                np.where(np.isnan(a) & np.isnan(b), 0, np.nan_to_num(np.abs(a - b), nan=np.inf)).max(initial=0.0)
                for other in others
                for a, b in zip((w.astype(float) for w in first), (w.astype(float) for w in other))
            ]
        return float(max(gaps, default=0.0))


def _changed_between(updates: np.ndarray) -> float:
    groups = [updates[updates[:, 3] == variables] for variables in np.unique(updates[:, 3])]
    if 4 * len(groups) > len(updates):  # ever others: most would be compared with nothing
        groups = [updates]
    changed = sum(np.count_nonzero(own[2:, 0] != own[1:-1, 2]) for own in groups)
    return changed / max(1, sum(max(0, len(own) - 2) for own in groups))


def collect(
    script: str | Path,
    args: Sequence[str] = (),
    ranks: int = 2,
    *,
    controller: str | None = None,
    hosts: str | None = None,
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
        keys = [secrets.token_hex(16) for _ in range(ranks)]
        for rank, key in enumerate(keys):
            (probe / f"rank-{rank}.key").write_text(key)
        settings = {"HOROVOD_TIMELINE": str(probe / "timeline.json"), **(env or {})}
        printed: dict[int, list[str]] = {}
        with launch.start(
            script,
            args,
            ranks,
            controller=controller,
            hosts=hosts,
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
        return read(probe, ranks, result, printed=printed, keys=keys)


def read(
    folder: Path,
    ranks: int,
    result: launch.Result,
    *,
    printed: Mapping[int, Sequence[str]] | None = None,
    traffic: int | None = None,
    ended_by: str = "",
    use: Sequence[Moment] = (),
    keys: Sequence[str] = (),
) -> Evidence:
    """The evidence that a run on `ranks` ranks left in `folder`: the probes' files and `timeline.json`.

    Args:
        printed: rank → the lines that it printed.
        traffic, ended_by, use: see `Evidence`.
        keys: of each rank, with which it has signed its records.
    """
    printed = printed or {}
    return Evidence(
        result,
        tuple(
            _read_rank(folder, rank, tuple(printed.get(rank, ())), keys[rank] if keys else "") for rank in range(ranks)
        ),
        read_timeline(folder / "timeline.json"),
        traffic,
        ended_by,
        tuple(use),
    )


def read_timeline(path: Path) -> Collectives:
    """Count, in Horovod's trace file, the collectives done.

    A file cut short (a rank was killed) is read as far as it goes; a missing one gives an empty answer. It is
    scanned, not parsed: a training of minutes writes tens of megabytes.
    """
    names: dict[bytes, str] = {}
    doing: dict[bytes, str] = {}
    times: dict[str, Counter] = {}
    sizes: Counter = Counter()
    waiting: dict[bytes, set[int]] = {}
    for found in _TRACE.finditer(_bytes(path)):
        kind = found.lastgroup
        if kind == "tensor":
            names[found["row"]] = found["tensor"][1:-1].decode(errors="replace")
        elif kind == "asked":
            waiting[found["asked"]] = set()
        elif kind == "entered" and found["entered"] in waiting:
            waiting[found["entered"]].add(int(found["entrant"]))
        elif kind == "begun":
            waiting.pop(found["begun"], None)
            operation = doing[found["begun"]] = found["operation"].decode()
            times.setdefault(operation, Counter())[names.get(found["begun"], "?")] += 1
        elif kind == "shape" and found["ended"] in doing:
            sizes[doing[found["ended"]], found["type"], found["shape"]] += 1
    elements, octets = Counter(), Counter()
    for (operation, kind, shape), number in sizes.items():
        size = math.prod(int(side) for side in shape.split(b",") if side.strip()) * number
        elements[operation] += size if b"float" in kind else 0
        octets[operation] += size * _size(kind)
    left = {names.get(row, "?"): frozenset(ranks) for row, ranks in waiting.items()}
    return Collectives(times, elements, octets, left)


def _size(kind: bytes) -> int:
    """Bytes of an element of Horovod's types: float32, float16, uint8, bool, …"""
    digits = re.sub(rb"\D", b"", kind)
    return int(digits) // 8 if digits in (b"8", b"16", b"32", b"64") else 1


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError:
        return b""


def _read_rank(folder: Path, rank: int, printed: tuple[str, ...], key: str) -> RankEvidence:
    records: dict[str, list[dict]] = {}
    seal, genuine = Seal(key), True
    *lines, cut_short = _bytes(folder / f"rank-{rank}.jsonl").decode(errors="replace").split("\n")
    for line in lines if key else [*lines, cut_short]:
        line = seal.off(line)
        if line is None:
            genuine = False
            continue
        try:
            record = json.loads(line) if len(line) < MAX_RECORD_CHARACTERS else None
        except (ValueError, RecursionError):
            continue  # cut short by a kill
        if isinstance(record, dict) and isinstance(kind := record.pop("kind", None), str):
            if "end" in records:
                records.setdefault("look", []).append({"what": "goes on after its end"})
            records.setdefault(kind, []).append(record)
    content, told = _bytes(folder / f"rank-{rank}.weights"), records.get("weights", [{}])[-1]
    if key and told and hashlib.blake2b(content, digest_size=16).hexdigest() != told.get("sum"):
        content = b""  # a kill in between; or not the probe's
    arrays, trainable = _read_weights(content, told)
    number = len(trainable)
    streams = {name: _bytes(folder / f"rank-{rank}.{name}") for name in STREAMS}
    if key:
        genuine = genuine and _as_summed(streams, records.get("progress", [{}])[-1])
    updates = streams["updates"]
    return RankEvidence(
        rank,
        records,
        printed,
        _steps(streams["steps"], streams["examples"]),
        arrays[:number],
        trainable,
        arrays[number:],
        np.frombuffer(updates[: len(updates) // 32 * 32], "<i8").reshape(-1, 4),
        genuine,
    )


def _as_summed(streams: Mapping[str, bytes], progress: Mapping) -> bool:
    """Whether what was appended is what the last record of it says; what came later may follow."""
    lengths, sums = (told if isinstance(told := progress.get(name), dict) else {} for name in ("bytes", "sums"))
    known = {name: length for name, length in lengths.items() if name in streams and isinstance(length, int)}
    return len(known) == len(lengths) and all(
        hashlib.blake2b(streams[name][:length], digest_size=16).hexdigest() == sums.get(name)
        for name, length in known.items()
    )


def _steps(sizes: bytes, examples: bytes) -> tuple[np.ndarray, ...]:
    sizes = np.frombuffer(sizes[: len(sizes) // 4 * 4], "<i4")
    examples = np.frombuffer(examples[: len(examples) // 4 * 4], "<f4")
    ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
    ends = ends[ends <= len(examples)]
    return tuple(np.split(examples[: ends[-1]], ends[:-1])) if len(ends) else ()


def _read_weights(content: bytes, record: dict) -> tuple[tuple[np.ndarray, ...], tuple[bool, ...]]:
    """The arrays that a record `weights` tells of; none at all where the record and the file do not fit together."""
    shapes, types, trainable = (record.get(name) for name in ("shapes", "types", "trainable"))
    if not all(isinstance(entry, list) for entry in (shapes, types, trainable)):
        return (), ()
    weights, position = [], 0
    for shape, kind in zip(shapes, types):
        whole = isinstance(shape, list) and all(type(side) is int and 0 <= side < 2**32 for side in shape)
        if not whole or kind not in WEIGHT_TYPES or len(shape) > 8:
            return (), ()
        length = math.prod(shape) * np.dtype(kind).itemsize
        if position + length > len(content) or (not length and any(shape)):  # NumPy takes no shape like (2**62, 0)
            return (), ()
        weights.append(np.frombuffer(content[position : position + length], kind).reshape(shape))
        position += length
    return tuple(weights), tuple(one is True for one in trainable)
