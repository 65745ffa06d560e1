"""A group of ranks and its collectives, on Horovod or on simulated ranks.

    group = HorovodGroup(hvd)                       # on a real rank, in each process
    results = rehearse(program, 4)                  # program(group) on four simulated ranks, in this process

`all_reduce`, `all_gather`, `reduce_scatter`, `broadcast` and `all_to_all` take and return NumPy arrays, and do not
change their arguments. All ranks of the group must call the same collectives in the same order. If they don't, real
ranks wait for each other; `rehearse` raises an error at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from course_lib.collectives import simulated


class CollectiveError(RuntimeError):
    """The ranks call different collectives; the message names the ranks and their calls."""


class Call(NamedTuple):
    """A call of a collective: its kind, the numbers in the rank's array, and the numbers that the rank sent."""

    kind: str
    numbers: int
    sent: float


class Group:
    """A rank's view of a group; the base class is a group of one rank.

    Attributes:
        rank: 0 … size − 1 within the group.
        size: number of ranks in the group.
        calls: the calls so far, see `Call`.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.calls: list[Call] = []

    @property
    def sent(self) -> float:
        """Numbers that this rank has sent, if all-reduce, reduce-scatter and all-gather use a ring."""
        return sum(call.sent for call in self.calls)

    def all_reduce(self, x: np.ndarray, op: str = "sum") -> np.ndarray:
        """The sum of all ranks' arrays, of their shape, on every rank; with op="max" the element-wise maximum.

        Raises ValueError for another op.
        """
        x = np.asarray(x)
        if op not in ("sum", "max"):
            raise ValueError(f"there is no {op!r}: give sum or max")
        self._called("all_reduce", x.size, 2 * (self.size - 1) / self.size * x.size)
        return self._all_reduce(x, op)

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        """All ranks' arrays [..., k], concatenated to [..., k · size], on every rank."""
        x = np.asarray(x)
        self._called("all_gather", x.size, (self.size - 1) * x.size)
        return self._all_gather(x)

    def reduce_scatter(self, x: np.ndarray) -> np.ndarray:
        """This rank's part [..., k] of the sum of all ranks' arrays [..., k · size].

        Raises ValueError if the last axis is not a multiple of size.
        """
        x = np.asarray(x)
        if x.shape[-1] % self.size:
            raise ValueError(f"{x.shape[-1]} columns don't go to {self.size} ranks in equal parts")
        self._called("reduce_scatter", x.size, (self.size - 1) / self.size * x.size)
        return self._reduce_scatter(x)

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        """The array of rank `root`, on every rank. All ranks pass an array of the same shape."""
        x = np.asarray(x)
        # In a chain from the root, the last rank, before the root, sends nothing.
        self._called("broadcast", x.size, x.size * (self.rank != (root - 1) % self.size))
        return self._broadcast(x, root)

    def all_to_all(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Send parts[r] to rank r; return the parts from all ranks, in rank order. Parts [n_r, ...] may differ in n_r.

        Raises ValueError if the number of parts is not the number of ranks.
        """
        parts = [np.asarray(part) for part in parts]
        if len(parts) != self.size:
            raise ValueError(f"{len(parts)} parts for {self.size} ranks: give one for each, also for this one")
        away = sum(part.size for rank, part in enumerate(parts) if rank != self.rank)
        self._called("all_to_all", sum(part.size for part in parts), away)
        return self._all_to_all(parts)

    def _called(self, kind: str, numbers: int, sent: float) -> None:
        self.calls.append(Call(kind, numbers, sent))

    def _all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        return x.copy()

    def _all_gather(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def _reduce_scatter(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def _broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        return x.copy()

    def _all_to_all(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        return [part.copy() for part in parts]


class HorovodGroup(Group):
    """All ranks of Horovod, or the ranks of a process set that was registered in `hvd.init`."""

    def __init__(self, hvd: Any, process_set: Any = None) -> None:
        self._hvd, self.process_set = hvd, process_set or hvd.global_process_set
        super().__init__(self.process_set.rank(), self.process_set.size())

    def _call_options(self) -> dict[str, Any]:
        # A unique name for each call: Horovod then never combines different calls of different ranks.
        name = f"{len(self.calls)} {self.calls[-1].kind} of {self.process_set.ranks}"
        return {"name": name, "process_set": self.process_set}

    def _all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        op = self._hvd.Sum if op == "sum" else self._hvd.Max
        return self._hvd.allreduce(x, op=op, **self._call_options()).numpy()

    def _all_gather(self, x: np.ndarray) -> np.ndarray:
        gathered = self._hvd.allgather(np.moveaxis(x, -1, 0), **self._call_options()).numpy()
        return np.moveaxis(gathered, 0, -1)

    def _reduce_scatter(self, x: np.ndarray) -> np.ndarray:
        scattered = self._hvd.reducescatter(np.moveaxis(x, -1, 0), op=self._hvd.Sum, **self._call_options()).numpy()
        return np.moveaxis(scattered, 0, -1)

    def _broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        # In a process set, too, Horovod expects the global rank of the root.
        return self._hvd.broadcast(x, root_rank=self.process_set.ranks[root], **self._call_options()).numpy()

    def _all_to_all(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        lengths = np.array([len(part) for part in parts], np.int32)
        received, lengths_received = self._hvd.alltoall(np.concatenate(parts), splits=lengths, **self._call_options())
        return np.split(received.numpy(), np.cumsum(lengths_received.numpy())[:-1])


class RehearsedGroup(Group):
    """All or some of the simulated ranks."""

    def __init__(self, me: simulated.Rank, members: Sequence[int] | None = None) -> None:
        self._me, self._members = me, list(range(me.size) if members is None else members)
        super().__init__(self._members.index(me.rank), len(self._members))

    def _exchange(self, parts: Sequence[np.ndarray], how: str = "") -> list[np.ndarray]:
        """Send parts[r] to each rank r; return the parts from all ranks. `how`: further settings that must agree."""
        alike = f"{self.calls[-1].kind}{how} of {parts[self.rank].dtype}"
        mine = f"{alike}, shape {parts[self.rank].shape}"
        if self.calls[-1].kind != "all_to_all":
            alike = mine
        received = list(parts)
        for place, other in enumerate(self._members):
            if place != self.rank:
                self._me.send(np.array(mine), other)
                self._me.send(parts[place], other)
        for place, other in enumerate(self._members):
            if place != self.rank:
                theirs = str(self._me.receive(other))
                if not theirs.startswith(alike):
                    raise CollectiveError(
                        f"In collective number {len(self.calls)} rank {self._me.rank} calls {mine}, rank {other} calls "
                        f"{theirs}: all ranks must call the same one, in the same order, on arrays alike."
                    )
                received[place] = self._me.receive(other)
        return received

    def _all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        arrays = np.array(self._exchange([x] * self.size, f" ({op})"))
        return arrays.sum(0) if op == "sum" else arrays.max(0)

    def _all_gather(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate(self._exchange([x] * self.size), axis=-1)

    def _reduce_scatter(self, x: np.ndarray) -> np.ndarray:
        return np.sum(self._exchange(np.split(x, self.size, axis=-1)), axis=0)

    def _broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        return self._exchange([x] * self.size, f" from rank {root}")[root].copy()

    def _all_to_all(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        return [part.copy() for part in self._exchange(parts)]


def rehearse(
    program: Callable[..., Any], ranks: int, members: Callable[[int], Sequence[Sequence[int]]] | None = None
) -> list[Any]:
    """Run `program(group)` on simulated ranks; return its results in rank order.

    Args:
        program: called on each rank with its group, or with its groups.
        ranks: number of ranks.
        members: rank → the members of each of its groups; default: one group of all ranks.

    Raises:
        CollectiveError: the ranks call different collectives, or wait for each other.
        Exception: the exception of the rank that failed first.
    """
    groups: dict[int, list[Group]] = {}

    def on_a_rank(me: simulated.Rank, _: None) -> Any:
        groups[me.rank] = [RehearsedGroup(me, some) for some in (members(me.rank) if members else [None])]
        with np.errstate(all="ignore"):  # the setting is per thread
            return program(*groups[me.rank])

    try:
        return simulated.run(on_a_rank, [None] * ranks).results
    except simulated.DeadlockError as error:
        raise CollectiveError(_deadlock_message(groups)) from error


def _deadlock_message(groups: dict[int, list[Group]]) -> str:
    """The message on a deadlock: a rank that waits, its collective, and the ranks that made fewer calls."""
    made = {rank: [call.kind for group in some for call in group.calls] for rank, some in groups.items()}
    most = max(made, key=lambda rank: len(made[rank]))
    fewer = [rank for rank in sorted(made) if len(made[rank]) < len(made[most])]
    who = " and ".join(f"rank {rank}" for rank in fewer) or "the others"
    return (
        f"Deadlock: rank {most} waits in its collective number {len(made[most])}, {made[most][-1]}, for {who}, which "
        "never comes to it: all ranks must call the same ones."
    )
