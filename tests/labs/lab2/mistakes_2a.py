"""Mistakes in the exercises of notebook 2a, and other right answers."""

import numpy as np

STEP = "me.all_reduce(gradient(w, x[mine], y[mine]))"
MINE = "slice(me.rank, None, me.size)"
BLOCK = "slice(me.rank * len(x) // me.size, (me.rank + 1) * len(x) // me.size)"
FIRST_HALF = """
me.send(parts[(me.rank - step) % me.size], right)
parts[(me.rank - step - 1) % me.size] += me.receive(left)
"""
RECEIVE_FIRST = """
came = me.receive(left)
me.send(parts[(me.rank - step) % me.size], right)
parts[(me.rank - step - 1) % me.size] += came
"""
PUT = "parts[(me.rank - step) % me.size] = me.receive(left)"
EQUAL_CHUNKS = "[np.array(x[i * (len(x) // me.size) : (i + 1) * (len(x) // me.size)]) for i in range(me.size)]"


def to_everybody(me, x):
    return me.all_reduce(x)


MISTAKES = {
    "parallel_step": {
        "the average forgotten": ({"eta * total / me.size": "eta * total"}, "divide by the number of ranks"),
        "averaged twice": ({"eta * total / me.size": "eta * total / me.size**2"}, "once only"),
        "not averaged": (
            {"eta * total / me.size": "eta * total", STEP: "gradient(w, x[mine], y[mine])"}, "all-reduce the gradients",
        ),
        "uphill": ({"w - eta * total / me.size": "w + eta * total / me.size"}, "uphill"),
        "nothing learned": ({"w - eta * total / me.size": "w"}, "do not move"),
        "nothing returned": ({"return w - eta * total / me.size": "pass"}, "a `return` missing"),
        "the weights changed in place":
            ({"return w - eta * total / me.size": "w -= eta * total / me.size; return w"}, "changed in place"),
        "the sum on rank 0 only":
            ({STEP: f"{STEP} if me.rank == 0 else gradient(w, x[mine], y[mine])"}, "all ranks must call it"),
        "the whole batch everywhere": ({MINE: "slice(None)"}, "all 24"),
        "blocks in place of every N-th": ({MINE: BLOCK}, "should take the examples"),
        "the sum of means over all examples": ({"eta * total / me.size": "eta * total / len(x)"}, "a mean already"),
        "the rows of rank 0 everywhere":
            ({MINE: "slice(0, None, me.size)"}, "should take the examples"),
        "the weights added up":
            ({STEP: f"me.all_reduce(w - eta * {STEP[14:-1]})", "return w - eta * total / me.size": "return total"},
             "weights are added up"),
    },
    "ring_all_reduce": {
        "right, and no ring": (to_everybody, "to its right only"),
        "the deadlock order": ({FIRST_HALF: RECEIVE_FIRST}, "send first, then receive"),
        "received from the right":
            ({"me.receive(left)": "me.receive(right)"}, "rank 0 waits for a message of rank 1 that never comes"),
        "the whole array sent":
            ({"me.send(parts[(me.rank - step) % me.size], right)": "me.send(x, right)"}, "only one chunk"),
        "a round too many": ({"range(me.size - 1)": "range(me.size)"}, "with one rank there is nothing to send"),
        "only the first half":
            ({f"me.send(parts[(me.rank + 1 - step) % me.size], right)\n{PUT}": "pass"},
             "lacks the parts of ranks 1, 2 and 3"),
        "the off-by-one chunk": ({"me.rank + 1 - step": "me.rank - step"}, "the chunk is off"),
        "the sum taken twice": ({PUT: PUT.replace("=", "+=")}, "put in place, don't add"),
        "the remainder lost":
            ({"np.array_split(np.array(x), me.size)": EQUAL_CHUNKS + " + [np.array(x[len(x) // me.size * me.size :])]"},
             "are not summed"),
        "works in place": ({"np.array(x)": "x"}, "views of x"),
        "an average": ({"np.concatenate(parts)": "np.concatenate(parts) / me.size"}, "has the average"),
        "always floats": ({"np.array(x)": "np.array(x, float)"}, "of type int64 come in"),
        "the ranks not modulo": ({"(me.rank + 1) % me.size": "me.rank + 1"}, "the last one's right"),
        "the chunks not modulo": ({"(me.rank + 1 - step) % me.size": "me.rank + 1 - step"}, "no such chunk"),
        "half of the ring with the wrong chunk":
            ({"parts[(me.rank + 1 - step) % me.size]": "parts[(me.rank + 2 - step) % me.size]"}, "chunk"),
        "the first half twice":
            ({f"me.send(parts[(me.rank + 1 - step) % me.size], right)\n{PUT}": FIRST_HALF}, "which chunk is whole"),
        "one round too few": ({"me.size - 1": "me.size - 2"}, "lacks the part"),
    },
}  # fmt: skip


def weighted(me, gradient, w, x, y, eta):
    """Each rank's gradient has the weight of its share: right for uneven shares, too."""
    mine = np.arange(me.rank, len(x), me.size)
    return w - eta * me.all_reduce(gradient(w, x[mine], y[mine]) * len(mine)) / len(x)


def leftwards_numbered(me, x):
    """A ring that begins with another chunk: rank r sends chunk r + 1 first, and ends with chunk r + 2 complete."""
    size, parts = me.size, [part.copy() for part in np.array_split(np.asarray(x), me.size)]
    for step in range(2 * (size - 1)):
        outgoing, incoming = (me.rank + 1 - step) % size, (me.rank - step) % size
        me.send(parts[outgoing].copy(), (me.rank + 1) % size)
        came = me.receive((me.rank - 1) % size)
        parts[incoming] = parts[incoming] + came if step < size - 1 else came
    return np.concatenate(parts)


RIGHT = {
    "parallel_step": {"weighted by the shares": weighted},
    "ring_all_reduce": {"one loop, from another chunk on": leftwards_numbered},
}
