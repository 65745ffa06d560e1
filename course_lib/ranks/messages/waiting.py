"""Find out which rank waits for which, from the reports of the ranks and Horovod's warnings: one sentence.

A collective ends when all ranks have called it. If a rank has ended or has called another collective, the others wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

SHUT_DOWN = "Horovod has been shut down"  # the error in a rank's collective after another rank has ended
SAME_CALLS = "all ranks must make the same collective calls in the same order."
SAME_STEPS = "all ranks must take equally many steps."
MAX_NAME_LENGTH = 60  # characters
_STALL = re.compile(r"One or more tensors were submitted to be reduced")
_MISSING = re.compile(r"(?P<rank>\d{1,9})!?: \[(?P<tensors>.*)\]")  # a line after "Missing ranks:"
_TENSOR = re.compile(
    r"[\w./]*Horovod(?P<operation>Allreduce|Grouped_?Allreduce|Allgather|Broadcast|Alltoall|Reducescatter)_?(?P<name>\w*)"
)
_NAMES = {
    "Allreduce": "all-reduce",
    "Allgather": "all-gather",
    "Broadcast": "broadcast",
    "Alltoall": "all-to-all",
    "Reducescatter": "reduce-scatter",
}


class Waiting:
    """The state of a run's ranks: which have ended, which wait and where, which Horovod reports as missing."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._ended: set[int] = set()  # with exit code 0
        self._places: dict[int, str] = {}  # rank → where it waits
        self._missing: dict[int, str] = {}  # rank → a tensor that the others have submitted
        self._listing = False

    def note_end(self, rank: int, code: int) -> None:
        """Record the end of a rank. Failed ranks are ignored: most fail because of another rank, or of the launcher."""
        if code == 0:
            self._ended.add(rank)
            self._places.pop(rank, None)

    def note_place(self, rank: int, record: Mapping[str, object]) -> None:
        """Record a rank's report of where it waits, or that it no longer waits (see `idle`)."""
        self._places.pop(rank, None)
        call, script, line = (str(record.get(name) or "")[:MAX_NAME_LENGTH] for name in ("call", "script", "line"))
        position = f"{script}, line {line}" if script and line else ""
        if rank in self._ended or not (call or position):
            return
        self._places[rank] = f"in {call}" + f" ({position})" * bool(position) if call else f"at {position}"

    def note_line(self, text: str) -> bool:
        """Read a line of a rank's output; return whether it belongs to a warning of Horovod's stall inspector."""
        if _STALL.search(text):
            self._missing.clear()
            return True
        if text.startswith("Missing ranks:"):
            self._listing = True
            return True
        listed = _MISSING.match(text) if self._listing else None
        self._listing = listed is not None
        if listed and int(listed["rank"]) < self._ranks:
            self._missing[int(listed["rank"])] = listed["tensors"].split(", ")[0]
        return listed is not None

    def goes_on(self) -> None:
        """Record progress, such as output or a step of a rank: Horovod's warning no longer holds."""
        self._missing.clear()

    def stall(self) -> str:
        """A sentence on which rank waits for which in a stalled run; "" if unknown, or if a rank does not wait."""
        ended, places, missing = sorted(self._ended), dict(self._places), sorted(self._missing.items())
        left = [rank for rank in range(self._ranks) if rank not in ended]
        clauses = []
        if all(rank in places for rank in left) and any(place.startswith("in ") for place in places.values()):
            if ended:
                clauses = [f"{named(ended)} {'has' if len(ended) == 1 else 'have'} ended", *_waits(places)]
            elif len(set(places.values())) > 1:
                clauses = _waits(places)
        if missing and not clauses:
            clauses = [f"rank {rank} has not called {collective(tensor)}" for rank, tensor in missing]
            clauses += ["others wait for it"]
        return _sentence(f"{', '.join(clauses)}: {SAME_CALLS}") if clauses else ""

    def failure(self, rank: int, tail: Sequence[str]) -> str:
        """A sentence on why `rank` failed, from its last lines; "" unless it waited for a rank that had ended."""
        text = "\n".join(tail)
        if SHUT_DOWN not in text:
            return ""
        tensor = _TENSOR.search(text)
        waited = collective(tensor[0]) if tensor else "a collective"
        rule = SAME_STEPS if "gradients" in waited else SAME_CALLS
        if gone := sorted(self._ended - {rank}):
            return _sentence(f"{named(gone)} had ended while rank {rank} still waited in {waited}: {rule}")
        return f"Rank {rank} waited in {waited} when another rank had left Horovod: {rule}"


def collective(tensor: str) -> str:
    """The name of a collective for users, from Horovod's tensor name.

    For example "DistributedSGD_Allreduce/…" → "the all-reduce of gradients".
    """
    known = _TENSOR.fullmatch(tensor)
    if not known:
        return f"the collective {tensor.rpartition('/')[2][:MAX_NAME_LENGTH]}"
    kind, name = _NAMES.get(known["operation"], "all-reduce"), known["name"]
    if kind == "all-reduce" and ("grads" in name or "Distributed" in tensor):
        name = "gradients"
    if name:
        return f"the {kind} of {name[:MAX_NAME_LENGTH]}"
    return f"an {kind}" if kind.startswith("all") else f"a {kind}"


def named(ranks: Sequence[int]) -> str:
    """The text for some ranks: "rank 0", "ranks 0, 2 and 3"."""
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def _waits(places: Mapping[int, str]) -> list[str]:
    """The clauses for waiting ranks: ["rank 0 waits in hvd.join", "ranks 1 and 2 at train.py, line 30"]."""
    together: dict[str, list[int]] = {}
    for rank in sorted(places):
        together.setdefault(places[rank], []).append(rank)
    (place, first), *others = together.items()
    verb = "waits" if len(first) == 1 else "wait"
    return [f"{named(first)} {verb} {place}", *(f"{named(ranks)} {place}" for place, ranks in others)]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
