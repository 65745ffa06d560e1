"""Mistakes in the exercises of notebook 4a, and other right answers."""

import numpy as np

from course_lib.collectives import simulated

SUM = "rounds * (alpha + beta * message)"
SIZE = "max(more_rounds, 0) * alpha / (more_bytes * beta)"


def with_an_if(ranks, nbytes, alpha, beta):
    if ranks == 1:
        return 0
    return 2 * (ranks - 1) * (alpha + beta * nbytes / ranks)


def one_chunk_after_the_other(ranks, nbytes, alpha, beta):
    """What the last chunk costs on its way from rank to rank, there and back."""
    return alpha * 2 * (ranks - 1) + beta * (nbytes - nbytes / ranks) * 2


def leader_asks_in_turns(me, x, group):
    """The group's sum goes from member to member, and back the same way."""
    first, last = me.rank - me.rank % group, min(me.rank - me.rank % group + group, me.size) - 1
    total = x if me.rank == last else x + me.receive(me.rank + 1)
    if me.rank > first:
        me.send(total, me.rank - 1)
        total = me.receive(me.rank - 1)
    else:
        total = simulated.ring_among(me, total, range(0, me.size, group))
    if me.rank < last:
        me.send(total, me.rank + 1)
    return total


def by_two_lines(ranks, group, alpha, beta):
    """From both lines' values at no bytes and at one."""

    def lines(nbytes):
        ring = 2 * (ranks - 1) * (alpha + beta * nbytes / ranks)
        inside = 4 * (group - 1) * (alpha + beta * nbytes / group)
        return ring - inside - 2 * (ranks / group - 1) * (alpha + beta * nbytes * group / ranks)

    size = 4 * alpha / beta
    start, end = lines(0.0), lines(size)
    return size * start / (start - end) if start > 0 else 0.0


def from_the_back(me, x):
    """Halving with the bits of the rank in another order within the host, the nearest first; without slices."""
    parts, kept = len(x) // me.size, np.arange(len(x))
    sums, distance = x.copy(), 1
    while distance < me.size:
        partner, middle = me.rank ^ distance, len(kept) // 2
        mine, other = (kept[middle:], kept[:middle]) if me.rank & distance else (kept[:middle], kept[middle:])
        me.send(sums[other], partner)
        sums[mine] += me.receive(partner)
        kept, distance = mine, 2 * distance
    return int(kept[0]), sums[kept[0] : kept[0] + parts]


MISTAKES = {
    "halve": {
        "the farthest in the host first, then the hosts":
            ({"partner, middle = me.rank ^ distance, len(sums) // 2":
               "order = [4, 2, 1, 8, 16, 32, 64]\n"
               "partner = me.rank ^ order[distance.bit_length() - 1] if me.size >= 8 else me.rank ^ distance\n"
               "middle = len(sums) // 2",
              "first += middle": "first += middle + 1"},
             "and says first ="),
        "one number": (lambda me, x: 3.0, "2 values are expected"),
        "halved without end": ({"distance *= 2": "pass"}, "does its loop come to an end?"),
        "the farthest partner first":
            ({"distance = 1": "distance = me.size // 2",
              "distance < me.size": "distance > 0",
              "distance *= 2": "distance //= 2"},
             "6.00 n leave a host, 0.75 n are enough"),
        "nothing is added": ({"lower + me.receive(partner)": "lower + 0 * me.receive(partner)"}, "its own numbers"),
        "both keep the lower half":
            ({"sums = upper + me.receive(partner)": "sums = me.receive(partner) + lower", "first += middle": "pass"},
             "no sum of one number"),
        "it is not said which part": ({"first += middle": "pass"}, "and says first = 0"),
        "a round too few": ({"distance < me.size": "2 * distance < me.size"}, "shape (8,); it should be (4,)"),
        "nobody answers": ({"me.send(lower, partner)": "pass"}, "Two partners exchange"),
        "all of it is sent":
            ({"me.send(upper, partner)": "me.send(sums, partner)",
              "me.send(lower, partner)": "me.send(sums, partner)",
              "lower + me.receive(partner)": "lower + me.receive(partner)[:middle]",
              "upper + me.receive(partner)": "upper + me.receive(partner)[middle:]"},
             "half of what is left is 32, 16, 8, 4"),
    },
    "ring_seconds": {
        "an `if` on an array": (with_an_if, "no `if` is needed"),
        "no return": (lambda *_: None, "`return`"),
        "half a ring": ({"2 * (ranks - 1)": "(ranks - 1)"}, "reduce-scatter alone"),
        "whole tensors go round": ({"nbytes / ranks": "nbytes"}, "n/N bytes"),
        "a round too many": ({"(ranks - 1)": "ranks"}, "one round fewer"),
        "messages counted, not rounds": ({"2 * (ranks - 1)": "2 * (ranks - 1) * ranks"}, "count rounds"),
        "one latency for all": ({SUM: "alpha + rounds * beta * message"}, "its own α"),
        "beta as a bandwidth": ({"beta * message": "message / beta"}, "per byte"),
        "half a ring of whole tensors":
            ({SUM: "(ranks - 1) * (alpha + beta * nbytes)"}, "two halves, and the messages are chunks"),
        "the bytes once": ({SUM: "rounds * alpha + beta * nbytes"}, "2(N−1) chunks of n/N bytes"),
        "no latency": ({SUM: "rounds * beta * message"}, "the latency α is missing"),
        "no bytes": ({SUM: "rounds * alpha + 0 * beta * message"}, "the time for the bytes is missing"),
        "the latency shared out": ({SUM: "rounds * (alpha + beta * nbytes) / ranks"}, "every round has a whole α"),
        "the last chunk comes back":
            ({"2 * (ranks - 1)": "2 * ranks - 1"}, "the number of seconds should be"),
        "three halves": ({SUM: "rounds * alpha + 3 / 2 * rounds * beta * message"}, "the number of seconds should be"),
    },
    "hierarchical_all_reduce": {
        "the leaders don't meet":
            ({"total = ring_among(me, total, range(0, me.size, group))": "pass"}, "own group only"),
        "the members are not asked": ({"total += me.receive(member)": "me.receive(member)"}, "leaders' own numbers"),
        "the group is never full": ({"min(leader + group, me.size)": "leader + group"}, "can't receive"),
        "a ring of all": ({"range(0, me.size, group)": "range(me.size)"}, "wait"),
        "members get nothing": ({"return me.receive(leader)": "return None"}, "rank 1 returns nothing"),
        "the leader adds in place": ({"np.array(x)": "x"}, "changed in place"),
        "everybody to everybody between leaders":
            ({"total = ring_among(me, total, range(0, me.size, group))":
               "others = [r for r in range(0, me.size, group) if r != me.rank]\n"
               "for other in others:\n    me.send(total, other)\n"
               "total = (total + sum(me.receive(other) for other in others)).astype(x.dtype)"},
             "with their ring it is"),
        "a member forgotten":
            ({"for member in members:\n    total += me.receive(member)":
               "for member in members[1:]:\n    total += me.receive(member)"},
             "lacks the numbers of rank 1 and 5"),
        "a member added twice":
            ({"total += me.receive(member)": "total += me.receive(member) * (2 if member == 5 else 1)"},
             "has the numbers of rank 5 2 times"),
        "the average": ({"return total": "return total / me.size"}, "has the average"),
        "a leader counts itself twice":
            ({"members = range(leader + 1, min(leader + group, me.size))":
               "members = range(leader, min(leader + group, me.size))"},
             "can't receive"),
        "another type": ({"np.array(x)": "np.array(x, np.float64)"}, "returns float64"),
    },
    "crossing": {
        "both rings with the same bytes":
            ({"4 * (group - 1) / group + 2 * (groups - 1) / groups - 2 * (ranks - 1) / ranks":
               "4 * (group - 1) / group"},
             "differ in their bytes"),
        "upside down":
            ({SIZE: "max(more_rounds, 0) * beta / (more_bytes * alpha)"},
             "exchanged"),
        "the broadcast forgotten": ({"4 * (group - 1)": "2 * (group - 1)"}, "a reduction and a broadcast"),
        "leaders with small chunks": ({"2 * (groups - 1) / groups": "2 * (groups - 1) / ranks"}, "N/k"),
        "a negative size": ({"max(more_rounds, 0)": "more_rounds"}, "return 0"),
        "only for very many":
            ({SIZE: "alpha / beta * ranks / 2"}, "should be exact"),
        "the plain way in the groups":
            ({"4 * (group - 1) / group": "2 * (group - 1)", "4 * (group - 1)": "2 * (group - 1)"}, "the plain way"),
        "2N":
            ({"2 * (ranks - 1) - 4 * (group - 1) - 2 * (groups - 1)": "2 * ranks - 4 * group - 2 * groups"}, "not 2N"),
        "β forgotten": ({SIZE: "more_rounds * alpha / more_bytes"}, "divide by β"),
        "α and β forgotten": ({SIZE: "more_rounds / more_bytes"}, "α/β is missing"),
        "the wrong sign": ({SIZE: "-more_rounds * alpha / (more_bytes * beta)"}, "the sign is wrong"),
        "bytes over rounds": ({SIZE: "alpha * more_bytes / (beta * more_rounds)"}, "rounds saved over bytes lost"),
    },
}  # fmt: skip

RIGHT = {
    "ring_seconds": {"the bytes by what is left of the tensor": one_chunk_after_the_other},
    "hierarchical_all_reduce": {"along the group": leader_asks_in_turns},
    "crossing": {"from two points of each line": by_two_lines},
    "halve": {"by the numbers of what is kept": from_the_back},
}
