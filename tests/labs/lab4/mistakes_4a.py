"""Mistakes in the exercises of notebook 4a."""

SUM = "rounds * (alpha + beta * message)"
SIZE = "max(more_rounds, 0) * alpha / (more_bytes * beta)"


def with_an_if(ranks, nbytes, alpha, beta):
    if ranks == 1:
        return 0
    return 2 * (ranks - 1) * (alpha + beta * nbytes / ranks)


MISTAKES = {
    "halve": {
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
        "another type": ({"np.array(x)": "np.array(x, np.float64)"}, "returns float64"),
    },
    "crossing": {
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
