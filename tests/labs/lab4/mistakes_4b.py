"""Mistakes in the exercises of notebook 4b, and other right answers."""

import numpy as np


def by_middles(cumulative, times, ranks):
    middles = (times[1:] + times[:-1]) / 2
    return np.diff(times) @ np.interp(middles, times, 1 - cumulative**ranks)


def by_growth_of_the_probability(cumulative, times, ranks):
    """The mean as the sum of times, each with the probability that the last rank is done just then."""
    all_done = cumulative**ranks
    return float(np.diff(all_done) @ (times[1:] + times[:-1]) / 2)


def cycle_by_cycle(ready, nbytes, threshold, cycle):
    """For each cycle with gradients a list of messages, as numbers of cycles are whole."""
    by_cycle = {}
    for tensor in sorted(range(len(ready)), key=lambda tensor: (ready[tensor], tensor)):
        packs = by_cycle.setdefault(int(-(-ready[tensor] // cycle)), [[]])
        if packs[-1] and sum(nbytes[packs[-1]]) + nbytes[tensor] > threshold:
            packs.append([])
        packs[-1].append(tensor)
    return [(number * cycle, pack) for number, packs in by_cycle.items() for pack in packs]


def fill_the_gaps(ready, nbytes, threshold, cycle):
    """A gradient goes into the first message of its cycle that has room."""
    messages = []
    for tensor in np.argsort(ready, kind="stable"):
        moment = np.ceil(ready[tensor] / cycle) * cycle
        for other, tensors in messages:
            if other == moment and sum(nbytes[tensors]) + nbytes[tensor] <= threshold:
                tensors.append(tensor)
                break
        else:
            messages.append((moment, [tensor]))
    return messages


def from_the_end_before(messages, nbytes, all_reduce):
    times = []
    for moment, tensors in messages:
        start = max([moment, *(end for _, end in times)])
        times.append((start, start + all_reduce(float(nbytes[list(tensors)].sum()))))
    return tuple(times)


MISTAKES = {
    "fuse": {
        "a number": (lambda *_: 3, "pairs (moment, list of indices)"),
        "one tensor only": (lambda *_: [(4.0, [0])], "tensor 1 is in no message"),
        "a tensor twice": (lambda *_: [(4.0, [*range(8), 7])], "each of 0 … 7 is to be in one"),
        "an empty message": (lambda *_: [(4.0, list(range(8))), (5.0, [])], "holds no tensor"),
        "forward order": ({'np.argsort(ready, kind="stable")': "range(len(ready))"}, "forward order"),
        "the threshold counts numbers":
            ({"held + nbytes[tensor] > threshold": "held + nbytes[tensor] > 4 * threshold"}, "bytes, not numbers"),
        "sent before it is ready": ({"np.ceil": "np.floor"}, "before it is ready"),
        "the cycle forgotten":
            ({"np.ceil(ready[tensor] / cycle) * cycle": "ready[tensor]"}, "messages leave when a cycle begins"),
        "the next cycle but one": ({"np.ceil(ready[tensor] / cycle)": "(ready[tensor] // cycle + 1)"}, "takes it"),
        "waits until a message is full": ({"messages[-1][0] != moment": "False"}, "before it is ready"),
        "full only once it is too full": ({"held + nbytes[tensor] > threshold": "held > threshold"}, "still fits"),
        "no fusion": ({"held + nbytes[tensor] > threshold": "True"}, "each travels alone"),
        "the threshold forgotten": ({"held + nbytes[tensor] > threshold": "False"}, "must be closed"),
        "just full is too full":
            ({"held + nbytes[tensor] > threshold": "held + nbytes[tensor] >= threshold"},
             "as many bytes as the threshold are allowed"),
        "nothing returned": ({"return messages": "return None"}, "returns nothing"),
        "ready together, turned round":
            ({'np.argsort(ready, kind="stable")': "np.lexsort((-np.arange(len(ready)), ready))"},
             "at the same time keep the order"),
        "gaps are filled": (fill_the_gaps, "an earlier message that has room left"),
        "to the nearest cycle": ({"np.ceil": "np.rint"}, "before it is ready"),
        "sorted in place": ({"messages, held = [], 0": "messages, held = [], 0\nnbytes.sort()"}, "changed in place"),
    },
    "send": {
        "no pairs": (lambda *_: [1.0, 2.0, 3.0], "a pair (start, end) for each message"),
        "two messages at once": ({"max(moment, free)": "moment"}, "still on its way"),
        "gradients not waited for": ({"max(moment, free)": "free"}, "before its moment"),
        "a latency for each tensor":
            ({"all_reduce(sum(nbytes[tensor] for tensor in tensors))": "sum(all_reduce(nbytes[t]) for t in tensors)"},
             "each tensor pays its own latency"),
        "a duration for the end": ({"(start, free)": "(start, free - start)"}, "should be its end"),
        "the sizes not added up":
            ({"sum(nbytes[tensor] for tensor in tensors)": "nbytes[tensors]"}, "of the sum of its bytes"),
        "later and free added": ({"max(moment, free)": "moment + free"}, "the later of the two"),
    },
    "slowest": {
        "the mean for the maximum": ({"cumulative**ranks": "cumulative"}, "the mean of one rank"),
        "the quickest rank": ({"1 - cumulative**ranks": "(1 - cumulative) ** ranks"}, "quickest rank"),
        "N times the mean": ({"1 - cumulative**ranks": "ranks * (1 - cumulative)"}, "at the same time"),
        "the width forgotten": ({"np.diff(times)": "1"}, "width"),
        "the left end of each step":
            ({"np.diff(times) * (running[1:] + running[:-1]) / 2": "np.diff(times) * running[:-1]"},
             "at its left end; take the mean"),
        "the right end of each step":
            ({"np.diff(times) * (running[1:] + running[:-1]) / 2": "np.diff(times) * running[1:]"},
             "at its right end; take the mean"),
        "the sum of both ends":
            ({"np.diff(times) * (running[1:] + running[:-1]) / 2": "np.diff(times) * (running[1:] + running[:-1])"},
             "twice"),
        "the wrong probability": ({"1 - cumulative**ranks": "cumulative**ranks"}, "still running at t"),
        "the mean height times the whole time":
            ({"np.sum(np.diff(times) * (running[1:] + running[:-1]) / 2)": "np.mean(running) * times[-1]"},
             "each step has its own width"),
        "one width for all": ({"np.diff(times)": "(times[1] - times[0])"}, "its own width"),
    },
}  # fmt: skip

RIGHT = {
    "fuse": {"a list for each cycle": cycle_by_cycle},
    "send": {"after all ends before it": from_the_end_before},
    "slowest": {
        "by the middles, exact on lines": by_middles,
        "by the growth of the probability": by_growth_of_the_probability,
    },
}
