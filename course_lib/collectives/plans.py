"""All-reduce algorithms as plans: which rank sends which numbers to which rank in which round.

An algorithm is a function (ranks, length) → rounds; it plans an all-reduce of `length` numbers on each of `ranks`
ranks. The messages of a round travel at the same time, and a rank sends and receives at most one message in a round;
so a round of messages of at most n bytes takes α + β n seconds. `run` executes a plan on real numbers, `trace` lists
its messages; both work for any plan.

N is the number of ranks, k the number of ranks in a group, L the length. If L is not a multiple of the number of
chunks, the first chunks are longer by one. With L < N some messages are empty; they are still sent, as in MPI.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Round:
    """Messages that travel at the same time.

    Message i has the elements first[i] … last[i] − 1 of rank source[i] and goes to rank target[i].

    Attributes:
        source, target, first, last: int [messages].
        add: bool, or bool [messages]: True if the receiver adds the elements to its own, False if it replaces its own.
    """

    source: np.ndarray
    target: np.ndarray
    first: np.ndarray
    last: np.ndarray
    add: bool | np.ndarray


Plan = Iterable[Round]


def chunks(length: int, parts: int) -> np.ndarray:
    """The boundaries [parts + 1] of `parts` chunks of nearly equal length: chunk i is ends[i] … ends[i + 1] − 1."""
    i = np.arange(parts + 1)
    return i * (length // parts) + np.minimum(i, length % parts)


def ring(ranks: int, length: int) -> Iterator[Round]:
    """Ring: reduce-scatter, then all-gather (Patarasuk and Yuan 2009); 2(N−1) rounds of L/N numbers.

    Each rank sends 2(N−1)/N · L numbers, the minimum for an all-reduce.
    """
    yield from _ring(np.arange(ranks), chunks(length, ranks))


def halving(ranks: int, length: int, far_first: bool = False) -> Iterator[Round]:
    """Recursive halving, then doubling (Thakur, Rabenseifner, Gropp 2005): 2 log₂N rounds of L/2, L/4, … numbers.

    If N is not a power of two, let P be the largest power of two below N. The ranks from P on first send all their
    numbers to a partner, and receive the sum at the end: two more rounds of L numbers.

    Args:
        far_first: False: partners are neighbours in the first round, and their distance doubles in each round. True:
            the largest distance comes first.
    """
    size = _power_of_two(ranks)
    rank = np.arange(size)
    yield from _fold_extra_ranks(ranks, length, back=False)
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
    yield from _fold_extra_ranks(ranks, length, back=True)


def doubling(ranks: int, length: int) -> Iterator[Round]:
    """Recursive doubling: log₂N rounds in which partners exchange all their numbers (Thakur et al. 2005).

    This is the minimum number of rounds. If N is not a power of two, there are two more rounds, as in `halving`.
    """
    size = _power_of_two(ranks)
    rank, whole = np.arange(size), (np.zeros(size, int), np.full(size, length))
    yield from _fold_extra_ranks(ranks, length, back=False)
    for power in range(size.bit_length() - 1):
        yield Round(rank, rank ^ (1 << power), *whole, add=True)
    yield from _fold_extra_ranks(ranks, length, back=True)


def double_tree(ranks: int, length: int, segments: int) -> Iterator[Round]:
    """Double binary tree: each tree reduces and broadcasts one half of the numbers (Sanders, Speck, Träff 2009).

    A leaf of one tree is an inner node of the other, so every link is used. Each half is pipelined in `segments`: while
    one segment moves up the tree, the previous one moves down. The messages of a round are chosen greedily: earlier
    segments first.
    """
    ends, parents = chunks(length, 2 * segments), _two_trees(ranks)
    waits = np.zeros((2, segments, ranks), int)  # number of children whose sums a rank waits for
    waits += np.array([np.bincount(parent[parent >= 0], minlength=ranks) for parent in parents])[:, None]
    edges = [(t, s, r) for t in (0, 1) for s in range(segments) for r in range(ranks) if parents[t][r] >= 0]
    up, down = set(edges), set(edges)  # remaining messages: from rank r to its parent, and from its parent to r
    whole = {
        (t, s, int(np.argmin(parents[t]))) for t in (0, 1) for s in range(segments)
    }  # ranks with the whole sum of a segment: at first the roots, as soon as they wait for no child
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
        for _, target, part, add in chosen:  # the target can forward it from the next round on
            if add:
                waits[part // segments, part % segments, target] -= 1
            else:
                whole.add((part // segments, part % segments, target))
        sources, targets, parts, adds = map(np.array, zip(*chosen))
        yield Round(sources, targets, ends[parts], ends[parts + 1], adds)


def hierarchical(ranks: int, length: int, group: int) -> Iterator[Round]:
    """Hierarchical all-reduce: reduce in groups of k, ring of their leaders, broadcast in groups (Jia et al. 2018).

    The reduction and the broadcast use rings within the group (reduce-scatter and gather; scatter and all-gather):
    4(k−1) rounds of L/k and 2(N/k − 1) rounds of L·k/N numbers. There are fewer rounds than in a ring of N ranks, so
    latency costs less. A last group with fewer than k ranks makes its rounds at the same time as the others.
    """
    members = [np.arange(start, min(start + group, ranks)) for start in range(0, ranks, group)]
    leaders = np.arange(0, ranks, group)
    yield from _merged(_to_leader(group_, length) for group_ in members)
    yield from _ring(leaders, chunks(length, len(leaders)))
    yield from _merged(_from_leader(group_, length) for group_ in members)


def sharded(ranks: int, length: int, group: int) -> Iterator[Round]:
    """Reduce-scatter in each host of k ranks, k all-reduces of L/k numbers across hosts, all-gather in each host.

    Horovod's hierarchical all-reduce (HOROVOD_HIERARCHICAL_ALLREDUCE): ranks with the same local rank form a ring
    across the hosts. 2(k−1) rounds of L/k and 2(N/k − 1) rounds of L/N numbers.

    Args:
        group: k, the ranks of a host.

    Raises:
        ValueError: if N is not a multiple of k.
    """
    group = min(group, ranks)
    if ranks % group:
        raise ValueError(f"{ranks} ranks do not fill hosts of {group}; take a multiple of {group}")
    hosts, ends = np.arange(ranks).reshape(-1, group), chunks(length, group)
    yield from _merged(_reduce_scatter(host, ends) for host in hosts)
    inner = [ends[place] + chunks(ends[place + 1] - ends[place], len(hosts)) for place in range(group)]
    yield from _merged(_ring(hosts[:, place], inner[place]) for place in range(group))
    yield from _merged(_all_gather(host, ends) for host in hosts)


def hybrid(ranks: int, length: int, group: int, threshold: int) -> Iterator[Round]:
    """A ring for tensors of at least `threshold` numbers, else `hierarchical` (Jia et al. 2018).

    Bandwidth limits large messages, for which the ring is best; latency limits small ones.
    """
    return ring(ranks, length) if length >= threshold else hierarchical(ranks, length, group)


def run(plan: Plan, values: np.ndarray) -> np.ndarray:
    """Execute a plan: the ranks' values before [ranks, length] → after [ranks, length]. The input does not change."""
    memory = np.array(values)
    for messages in plan:
        sizes = messages.last - messages.first
        # For each element: its position in the message, then in the sender's and the receiver's memory.
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = np.repeat(messages.first, sizes) + within
        payload = memory[np.repeat(messages.source, sizes), place]
        target = np.repeat(messages.target, sizes), place
        add = np.repeat(np.broadcast_to(messages.add, sizes.shape), sizes)
        memory[target] = np.where(add, memory[target] + payload, payload)
    return memory


@dataclass(frozen=True, eq=False)
class Trace:
    """All messages of a plan, in order.

    Attributes:
        round, source, target, elements: int [messages]; `elements` is the number of elements in the message.
    """

    round: np.ndarray
    source: np.ndarray
    target: np.ndarray
    elements: np.ndarray

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return int(self.round[-1]) + 1 if len(self.round) else 0

    def largest(self) -> np.ndarray:
        """Elements of the largest message of each round, int [rounds]; it determines the round's time."""
        largest = np.zeros(self.rounds, int)
        np.maximum.at(largest, self.round, self.elements)
        return largest

    def seconds(self, alpha: float, beta: float, itemsize: int = 4) -> float:
        """Seconds in the α–β model: alpha for each round, beta for each byte of its largest message.

        Args:
            alpha: seconds.
            beta: seconds per byte.
            itemsize: bytes of an element.
        """
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
    """Reduce-scatter in a ring: in the end, member i has the sum of chunk i."""
    for step in range(len(members) - 1):
        yield _ring_round(members, ends, -step - 1, add=True)


def _all_gather(members: np.ndarray, ends: np.ndarray) -> Iterator[Round]:
    """All-gather in a ring: member i's chunk i goes to all members."""
    for step in range(len(members) - 1):
        yield _ring_round(members, ends, -step, add=False)


def _ring_round(members: np.ndarray, ends: np.ndarray, ahead: int, add: bool) -> Round:
    """One round of a ring: member i sends chunk i + ahead to the next member."""
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


def _merged(plans: Iterable[Plan]) -> Iterator[Round]:
    """Merge plans of disjoint ranks into one plan, whose rounds run at the same time."""
    for together in itertools.zip_longest(*plans):
        rounds = [messages for messages in together if messages is not None]
        names = "source", "target", "first", "last"
        source, target, first, last = (_joined(getattr(r, name) for r in rounds) for name in names)
        add = np.concatenate([np.broadcast_to(r.add, r.source.shape) for r in rounds])
        yield Round(source, target, first, last, add)


def _power_of_two(ranks: int) -> int:
    """The largest power of two that is at most `ranks`."""
    return 1 << (ranks.bit_length() - 1)


def _fold_extra_ranks(ranks: int, length: int, back: bool) -> Iterator[Round]:
    """The ranks beyond the largest power of two send all their numbers to a partner; `back`: they receive the sum."""
    size = _power_of_two(ranks)
    extra = np.arange(size, ranks)
    if len(extra):
        ways = (extra - size, extra) if back else (extra, extra - size)
        yield Round(*ways, np.zeros_like(extra), np.full_like(extra, length), add=not back)


def _two_trees(ranks: int) -> list[np.ndarray]:
    """The parent of each rank in two binary trees, −1 for the root. Even ranks are leaves of the first tree.

    The second tree is the mirror image of the first; for odd N it is the first tree shifted by one rank.
    """
    parent = np.full(ranks, -1)

    def join(first: int, last: int, above: int) -> None:
        """Make a tree of the ranks first … last − 1 under the parent `above`, with odd ranks as inner nodes."""
        if first >= last:
            return
        size = last - first
        middle = first if size == 1 else first + _power_of_two(size) - 1
        parent[middle] = above
        join(first, middle, middle)
        join(middle + 1, last, middle)

    join(0, ranks, -1)
    moved = (np.arange(ranks) + 1) % ranks if ranks % 2 else np.arange(ranks)[::-1]  # rank in tree 1 → rank in tree 2
    other = np.full(ranks, -1)
    other[moved] = np.where(parent >= 0, moved[parent], -1)
    return [parent, other]
