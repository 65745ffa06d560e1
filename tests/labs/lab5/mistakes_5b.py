"""Mistakes in the exercises of notebook 5b, and other right answers."""

from functools import partial

import numpy as np

from labs.lab5_precision_and_memory.lessons import narrow_wire
from tests.labs import notebooks

CAST = "result = cast(x)"
MEAN = "cast(total / np.float32(me.size))"
KEPT = "result[chunk[me.rank]] = mine"
LARGEST = "np.abs(gradient).max()"
FACTOR = "2.0 ** np.floor(np.log2(top / (ranks * largest)))"
ONE_ALL_ZERO = "if largest == 0:\n    return 1.0"
NUMBERS = '{"ring": 2 * (ranks - 1) / ranks, "twice": 2 * (ranks - 1) / ranks, "once": ranks - 1}'
BEST = "min(affordable, key=lambda choice: error(*choice))"


def all_to_all(me, x, cast):
    return cast(me.all_reduce(cast(x)) / np.float32(me.size))


def by_one_rank(me, x, cast):
    if me.rank:
        me.send(cast(x), 0)
        return me.receive(0)
    mean = cast(sum((me.receive(rank) for rank in range(1, me.size)), cast(x)) / np.float32(me.size))
    for rank in range(1, me.size):
        me.send(mean, rank)
    return mean


def receives_first(me, x, cast):
    for rank in range(me.size):
        if rank != me.rank:
            me.receive(rank)
    return x


def by_exponent(gradient, ranks, top, largest_of_all):
    _, exponent = np.frexp(float(largest_of_all(max(gradient.max(), -gradient.min()))) * ranks)
    return float(np.ldexp(top, -int(exponent)))


def by_ranks(budget, ranks, error):
    way, each = ("once", budget) if ranks == 2 else ("twice", int(budget * ranks / (2 * (ranks - 1))))
    exponent = min((2, 3, 4, 5), key=lambda e: error(way, (e, max(0, each - 1 - e))) if e < each else np.inf)
    return way, (exponent, each - 1 - exponent)


numbers = partial(notebooks.changed, {"A": 3, "B": 4, "C": 1, "D": 2})

MISTAKES = {
    "factor": {
        "two numbers":
            ({f"largest_of_all({LARGEST})": "max(largest_of_all(gradient.max()), largest_of_all(-gradient.min()))"},
             "each rank sends one number"),
        "no abs": ({LARGEST: "gradient.max()"}, "a negative number can be large"),
        "own largest":
            ({"largest = largest_of_all(np.abs(gradient).max())": f"largest = {LARGEST}"},
             "none can know what the others have"),
        "asked, and not used":
            ({"largest = largest_of_all(np.abs(gradient).max())": f"largest_of_all({LARGEST})\nlargest = {LARGEST}"},
             "can't be added up"),
        "N forgotten": ({"ranks * largest": "largest"}, "but not the sum"),
        "not a power of two": ({FACTOR: "top / (ranks * largest)"}, "Which factors round nothing"),
        "rounded up": ({"np.floor": "np.ceil"}, "but not the sum"),
        "rounded": ({"np.floor": "np.round"}, "but not the sum"),
        "too careful": ({"ranks * largest": "ranks ** 2 * largest"}, "octaves below the top"),
        "the mean size": ({LARGEST: "np.abs(gradient).mean()"}, "beyond the top at once"),
        "zeros divide": ({ONE_ALL_ZERO: "pass"}, "nothing but zeros"),
        "zeros don't ask":
            ({"largest = largest_of_all(np.abs(gradient).max())":
               "if not gradient.any():\n    return 1.0\nlargest = largest_of_all(np.abs(gradient).max())"},
             "every rank has to"),
        "asks with all":
            ({"largest_of_all(np.abs(gradient).max())": "largest_of_all(np.abs(gradient)).max()"}, "One is enough"),
        "returns nothing": ({f"return {FACTOR}": FACTOR}, "is a `return` missing"),
    },
    "mean_of_all": {
        "all to all": (all_to_all, "not everybody needs all", 7.5),
        "one rank for all": (by_one_rank, "one rank does the work of all", 7.5),
        "a ring": (narrow_wire.ring_mean, "each partial sum is rounded"),
        "receives first": (receives_first, "Send to all first"),
        "parts not cast": ({CAST: "result = x.copy()"}, "whatever travels has to be `cast`"),
        "the mean not cast": ({MEAN: "total / np.float32(me.size)"}, "whatever travels has to be `cast`"),
        "the sum cast": ({MEAN: "cast(total) / np.float32(me.size)"}, "whatever travels"),
        "the sum cast, then divided and cast":
            ({MEAN: "cast(cast(total) / np.float32(me.size))"}, "their mean, rounded, is"),
        "parts divided":
            ({CAST: "result = cast(x / np.float32(me.size))", MEAN: "cast(total)"},
             "the parts are divided before they are rounded"),
        "a sum": ({MEAN: "cast(total)"}, "the mean is asked for"),
        "keeps what it did not send":
            ({KEPT: "result[chunk[me.rank]] = total / np.float32(me.size)"}, "return different numbers"),
        "own part not cast":
            ({"total = result[chunk[me.rank]] + sum(me.receive(rank) for rank in others)":
               "total = x[chunk[me.rank]] + sum(me.receive(rank) for rank in others)"},
             "rank 0 returns"),
        "works in place": ({CAST: "x[:] = cast(x); result = x"}, "in place"),
        "equal chunks only":
            ({"collectives.chunks(len(x), me.size)": "np.arange(me.size + 1) * (len(x) // me.size)"},
             "do all numbers belong to a rank"),
    },
    "choose": {
        "once counts as little": ({NUMBERS: NUMBERS.replace("ranks - 1}", "1}")}, "are allowed"),
        "the ring counts as one": ({NUMBERS: '{"ring": 1, "twice": 1, "once": ranks - 1}'}, "are allowed"),
        "always twice": ({NUMBERS: '{"twice": 2 * (ranks - 1) / ranks}'}, "a mean need not travel"),
        "always the ring": ({NUMBERS: '{"ring": 2 * (ranks - 1) / ranks}'}, "Another way does better"),
        "always once": ({NUMBERS: '{"once": ranks - 1}'}, "it can spend on bits"),
        "half of the budget": ({"int(budget / sent)": "max(3, int(budget / sent) // 2)"}, "budget is not spent"),
        "the most exponent bits":
            ({BEST: "max(affordable, key=lambda one: (one[0] == 'twice', one[1][0]))"}, "split otherwise"),
        "the worst": ({BEST: BEST.replace("min", "max")}, "has an error of"),
        "a format alone": ({BEST: f"{BEST}[1][0]"}, "2 values are expected"),
        "no such way": ({BEST: f"('tree', {BEST}[1])"}, "there is no way"),
        "one exponent bit": ({BEST: "('twice', (1, 2))"}, "2 to 8 bits of exponent"),
    },
    "diagnosis": {
        "no room for ranks apart": (numbers(A=1), "no number of A is infinite", 7.5),
        "one factor for a sum not divided": (numbers(B=2), "the mean would be too short, not too long", 7.5),
        "own factors for no room": (numbers(C=3), "long before a sum overflows", 7.5),
        "no power of two for one factor": (numbers(D=6), "which of them lose more than in a healthy training?", 7.5),
        "a training left out": (numbers(C=None), "C has no diagnosis", 7.5),
        "all alike": (lambda: dict.fromkeys("ABCD", 5), "do all ranks hold the same weights at the end?", 0),
    },
}  # fmt: skip

RIGHT = {
    "factor": {"by the exponent": by_exponent},
    "choose": {"by the number of ranks": by_ranks},
}
