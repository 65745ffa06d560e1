"""All-reduce algorithms on simulated ranks: who sends what to whom in which round.

An algorithm is a function (ranks, length) → rounds; it plans an all-reduce of `length` numbers on each of `ranks`
ranks. The messages of a round travel at the same time, and no rank sends or receives more than one in a round; so
a round of messages with at most n bytes takes α + β n seconds. `run` carries a plan out on real numbers, `trace`
lists its messages: both are generic, the algorithms are nothing but their plans.

N is the number of ranks, k that of a group, L the length. Where chunks don't divide evenly the first ones are longer
by one; with L < N some messages are empty, and are sent all the same, as MPI does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Round:
    """Messages that travel together: number i carries the elements first[i] … last[i] − 1 of source[i] to target[i].

    Where `add` holds (for all messages, or for each), the receiver adds what comes to its own; else it puts it in its
    place.
    """

    source: np.ndarray
    target: np.ndarray
    first: np.ndarray
    last: np.ndarray
    add: bool | np.ndarray


Plan = Iterable[Round]


def chunks(length: int, parts: int) -> np.ndarray:
    """The parts + 1 ends of `parts` chunks of nearly equal length: chunk i goes from ends[i] to ends[i + 1]."""
    i = np.arange(parts + 1)
    return i * (length // parts) + np.minimum(i, length % parts)


def ring(ranks: int, length: int) -> Iterator[Round]:
    """Reduce-scatter, then all-gather, round a ring (Patarasuk and Yuan 2009): 2(N−1) rounds of L/N numbers.

    Each rank sends 2(N−1)/N · L numbers, which no all-reduce can undercut.
    """
    yield from _ring(np.arange(ranks), chunks(length, ranks))


def halving(ranks: int, length: int, far_first: bool = False) -> Iterator[Round]:
    """Recursive halving, then doubling (Thakur, Rabenseifner, Gropp 2005): 2 log₂N rounds of L/2, L/4, … numbers.

    Partners are neighbours in the first round, and twice as far away in each that follows; `far_first` turns the order
    round. Unless N is a power of two, the ranks beyond the last one first give all they have to a partner, and get the
    sum back at the end: two more rounds of L numbers.
    """
    size = _power_of_two(ranks)
    rank = np.arange(size)
    yield from _handed(ranks, length, back=False)
    first, last = np.zeros(size, int), np.full(size, length)
    distances = [1 << power for power in range(size.bit_length() - 1)]
    if far_first:
        distances.reverse()
    halved = []
    for distance in distances:
        middle, lower = (first + last) // 2, rank & distance == 0
        sent = np.where(lower, middle, first), np.where(lower, last, middle)
        yield Round(rank, rank ^ distance, *sent, add=True)
        halved.append((first, last))
        first, last = np.where(lower, first, middle), np.where(lower, middle, last)
    for distance, whole in zip(reversed(distances), reversed(halved)):
        yield Round(rank, rank ^ distance, first, last, add=False)
        first, last = whole
    yield from _handed(ranks, length, back=True)


def doubling(ranks: int, length: int) -> Iterator[Round]:
    """Recursive doubling: log₂N rounds in which partners exchange all they have (Thakur et al. 2005).

    No all-reduce has fewer rounds. With N not a power of two as in `halving`: two rounds more.
    """
    size = _power_of_two(ranks)
    rank, whole = np.arange(size), (np.zeros(size, int), np.full(size, length))
    yield from _handed(ranks, length, back=False)
    for power in range(size.bit_length() - 1):
        yield Round(rank, rank ^ (1 << power), *whole, add=True)
    yield from _handed(ranks, length, back=True)


def double_tree(ranks: int, length: int, segments: int) -> Iterator[Round]:
    """Two binary trees, each adds up one half of the numbers and gives out its sum (Sanders, Speck, Träff 2009).

    A leaf of one tree is an inner node of the other, so every link is used. Each half is cut into `segments` that
    follow each other: while one goes up, the one before it comes down. Which message travels in which round is decided
    as it goes: of those that could, the earlier segment first.
    """
    ends, parents = chunks(length, 2 * segments), _two_trees(ranks)
    waits = np.zeros((2, segments, ranks), int)  # children whose sums a rank still waits for
    waits += np.array([np.bincount(parent[parent >= 0], minlength=ranks) for parent in parents])[:, None]
    edges = [(t, s, r) for t in (0, 1) for s in range(segments) for r in range(ranks) if parents[t][r] >= 0]
    up, down = set(edges), set(edges)  # messages to come: from rank r to its parent, and from its parent to r
    whole = {
        (t, s, int(np.argmin(parents[t]))) for t in (0, 1) for s in range(segments)
    }  # roots, once they wait for none
    while down:
        ready = [(s, True, t, r) for t, s, r in up if not waits[t, s, r]]
        ready += [
            (s, False, t, r) for t, s, r in down if not waits[t, s, parents[t][r]] and (t, s, parents[t][r]) in whole
        ]
        sends, receives, chosen = set(), set(), []
        for s, add, t, r in sorted(ready):
            source, target = (r, parents[t][r]) if add else (parents[t][r], r)
            if source not in sends and target not in receives:
                sends.add(source)
                receives.add(target)
                chosen.append((source, target, t * segments + s, add))
                (up if add else down).remove((t, s, r))
        for _, target, part, add in chosen:  # it can be sent on from the next round
            if add:
                waits[part // segments, part % segments, target] -= 1
            else:
                whole.add((part // segments, part % segments, target))
        sources, targets, parts, adds = map(np.array, zip(*chosen))
        yield Round(sources, targets, ends[parts], ends[parts + 1], adds)


def hierarchical(ranks: int, length: int, group: int) -> Iterator[Round]:
    """Reduce within groups of k, a ring among their leaders, broadcast within groups (Jia et al. 2018).

    The reduction and the broadcast go round the group too (reduce-scatter and gather; scatter and all-gather):
    4(k−1) rounds of L/k and 2(N/k − 1) of L·k/N numbers. Chunks are large where N is large, so latency costs less than
    in a ring. A last group that is not full does its rounds beside the others.
    """
    members = [np.arange(start, min(start + group, ranks)) for start in range(0, ranks, group)]
    leaders = np.arange(0, ranks, group)
    yield from _beside(_to_leader(group_, length) for group_ in members)
    yield from _ring(leaders, chunks(length, len(leaders)))
    yield from _beside(_from_leader(group_, length) for group_ in members)


def sharded(ranks: int, length: int, group: int) -> Iterator[Round]:
    """Reduce-scatter in each host of k, k all-reduces of L/k numbers across hosts, all-gather in each host.

    Horovod's hierarchical all-reduce (HOROVOD_HIERARCHICAL_ALLREDUCE): every rank of a host takes part in a ring of
    those with its place in the other hosts. 2(k−1) rounds of L/k and 2(N/k − 1) of L/N numbers.

    Raises:
        ValueError: if the last host is not full.
    """
    group = min(group, ranks)
    if ranks % group:
        raise ValueError(f"{ranks} ranks do not fill hosts of {group}; take a multiple of {group}")
    hosts, ends = np.arange(ranks).reshape(-1, group), chunks(length, group)
    yield from _beside(_reduce_scatter(host, ends) for host in hosts)
    inner = [ends[place] + chunks(ends[place + 1] - ends[place], len(hosts)) for place in range(group)]
    yield from _beside(_ring(hosts[:, place], inner[place]) for place in range(group))
    yield from _beside(_all_gather(host, ends) for host in hosts)


def hybrid(ranks: int, length: int, group: int, threshold: int) -> Iterator[Round]:
    """A ring for tensors of at least `threshold` numbers, else hierarchical (Jia et al. 2018).

    Large messages are bound by bandwidth, where the ring is best; small ones by latency.
    """
    return ring(ranks, length) if length >= threshold else hierarchical(ranks, length, group)


def run(plan: Plan, values: np.ndarray) -> np.ndarray:
    """What all ranks hold after the plan: values [ranks, length] → [ranks, length]. The input stays as it is."""
    held = np.array(values)
    for messages in plan:
        sizes = messages.last - messages.first
        # Element by element: where each is in its message, then where in the sender's and the receiver's memory.
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = np.repeat(messages.first, sizes) + within
        payload = held[np.repeat(messages.source, sizes), place]
        target = np.repeat(messages.target, sizes), place
        add = np.repeat(np.broadcast_to(messages.add, sizes.shape), sizes)
        held[target] = np.where(add, held[target] + payload, payload)
    return held


@dataclass(frozen=True, eq=False)
class Trace:
    """All messages of a plan, in order: round, source, target, elements (one array entry for each)."""

    round: np.ndarray
    source: np.ndarray
    target: np.ndarray
    elements: np.ndarray

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return int(self.round[-1]) + 1 if len(self.round) else 0

    def largest(self) -> np.ndarray:
        """Elements of the largest message of each round: what the round waits for."""
        largest = np.zeros(self.rounds, int)
        np.maximum.at(largest, self.round, self.elements)
        return largest

    def seconds(self, alpha: float, beta: float, itemsize: int = 4) -> float:
        """Seconds by the α–β model: α for each round, β for each byte of its largest message."""
        return float(alpha * self.rounds + beta * itemsize * self.largest().sum())


def trace(plan: Plan) -> Trace:
    """The messages of a plan."""
    rounds = list(plan)
    number = np.repeat(np.arange(len(rounds)), [len(messages.source) for messages in rounds])
    return Trace(
        number,
        _joined(messages.source for messages in rounds),
        _joined(messages.target for messages in rounds),
        _joined(messages.last - messages.first for messages in rounds),
    )


def _joined(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, int), *arrays])


def _ring(members: np.ndarray, ends: np.ndarray) -> Iterator[Round]:
    yield from _reduce_scatter(members, ends)
    yield from _all_gather(members, ends)


def _reduce_scatter(members: np.ndarray, ends: np.ndarray) -> Iterator[Round]:
    """Afterwards member i has the whole sum of chunk i."""
    for step in range(len(members) - 1):
        yield _turn(members, ends, -step - 1, add=True)


def _all_gather(members: np.ndarray, ends: np.ndarray) -> Iterator[Round]:
    """From member i, chunk i to all the others."""
    for step in range(len(members) - 1):
        yield _turn(members, ends, -step, add=False)


def _turn(members: np.ndarray, ends: np.ndarray, ahead: int, add: bool) -> Round:
    """From each member to the next, round the ring: member i sends chunk i + ahead."""
    return Round(members, np.roll(members, -1), np.roll(ends[:-1], -ahead), np.roll(ends[1:], -ahead), add)


def _to_leader(members: np.ndarray, length: int) -> Iterator[Round]:
    ends = chunks(length, len(members))
    yield from _reduce_scatter(members, ends)
    for place in range(1, len(members)):
        one = slice(place, place + 1)
        yield Round(members[one], members[:1], ends[:-1][one], ends[1:][one], add=False)


def _from_leader(members: np.ndarray, length: int) -> Iterator[Round]:
    ends = chunks(length, len(members))
    for place in range(1, len(members)):
        one = slice(place, place + 1)
        yield Round(members[:1], members[one], ends[:-1][one], ends[1:][one], add=False)
    yield from _all_gather(members, ends)


def _beside(plans: Iterable[Plan]) -> Iterator[Round]:
    """Plans of separate ranks, carried out at the same time."""
    for together in itertools.zip_longest(*plans):
        rounds = [messages for messages in together if messages is not None]
        names = "source", "target", "first", "last"
        source, target, first, last = (_joined(getattr(r, name) for r in rounds) for name in names)
        add = np.concatenate([np.broadcast_to(r.add, r.source.shape) for r in rounds])
        yield Round(source, target, first, last, add)


def _power_of_two(ranks: int) -> int:
    """The largest one that is not greater."""
    return 1 << (ranks.bit_length() - 1)


def _handed(ranks: int, length: int, back: bool) -> Iterator[Round]:
    """The ranks beyond the last power of two hand over all they have; `back`: they get the whole sum."""
    size = _power_of_two(ranks)
    extra = np.arange(size, ranks)
    if len(extra):
        ways = (extra - size, extra) if back else (extra, extra - size)
        yield Round(*ways, np.zeros_like(extra), np.full_like(extra, length), add=not back)


def _two_trees(ranks: int) -> list[np.ndarray]:
    """Each rank's parent in two binary trees, −1 at the root: even ranks are leaves of the first one.

    The second is the first one's mirror image, or with N odd the first one shifted by one rank.
    """
    parent = np.full(ranks, -1)

    def join(first: int, last: int, above: int) -> None:
        """The ranks first … last − 1 as a tree below `above`, odd ranks inside."""
        if first >= last:
            return
        size = last - first
        middle = first if size == 1 else first + _power_of_two(size) - 1
        parent[middle] = above
        join(first, middle, middle)
        join(middle + 1, last, middle)

    join(0, ranks, -1)
    moved = (np.arange(ranks) + 1) % ranks if ranks % 2 else np.arange(ranks)[::-1]  # where each rank stands in it
    other = np.full(ranks, -1)
    other[moved] = np.where(parent >= 0, moved[parent], -1)
    return [parent, other]
