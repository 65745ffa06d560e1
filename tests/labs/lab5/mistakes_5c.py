"""Mistakes in the exercises of notebook 5c, and other right answers."""

import math

import numpy as np

LENGTH = "max(1, round(math.sqrt(chain.layers)))"
UNDER_ROOT = "speed * 4 / bandwidth"
DIVIDED = "operations_while_a_number_travels / (2 * kernel**2)"
FREE = "min(moment, free) - took"
AVERAGE = "self.me.reduce_scatter(gradient) / self.me.size"
UPDATED = "self.optimizer.update(weights[self.mine], average)"
GATHERED = f"return self.me.all_gather({UPDATED})"
PIECE = "part[max(0, start - first):max(0, end - first)]"
NORMS = "np.sqrt(me.all_reduce(squares))"
BEST = "min((j + cheapest(layers - j, kept - 1)[0] + cheapest(j, kept)[0], j) for j in range(1, layers))"


def nearest_kept(chain, x, slope):
    length = math.isqrt(chain.layers)
    kept = {0: x}
    for layer in range(chain.layers - 1):
        x = chain.forward(layer, x)
        if (layer + 1) % length == 0:
            kept[layer + 1] = x
    del x
    for layer in reversed(range(chain.layers)):
        near = max(start for start in kept if start <= layer)
        for within in range(near, layer):
            kept[within + 1] = chain.forward(within, kept[within])
        slope = chain.backward(layer, kept[layer], slope)
        del kept[layer]
    return slope


def filled_anew(chain, x, slope):
    """A list that is filled anew holds the old arrays meanwhile."""
    length, inputs = round(math.sqrt(chain.layers)), []
    starts = list(range(0, chain.layers, length))
    snapshots = {0: x}
    for layer in range(starts[-1]):
        x = chain.forward(layer, x)
        if layer + 1 in starts:
            snapshots[layer + 1] = x
    del x
    for start in reversed(starts):
        again = [snapshots.pop(start)]
        for layer in range(start, min(start + length, chain.layers) - 1):
            again.append(chain.forward(layer, again[-1]))
        inputs = again
        for place in reversed(range(len(inputs))):
            slope = chain.backward(start + place, inputs[place], slope)
    return slope


def from_the_end(needed, seconds):
    starts = np.zeros(len(needed))
    for place in range(len(needed) - 1, -1, -1):
        end = needed[place] if place == len(needed) - 1 else min(needed[place], starts[place + 1])
        starts[place] = end - seconds[place]
    return starts


MISTAKES = {
    "in_segments": {
        "a list that is filled anew": (filled_anew, "let go of it", 7),
        "a copy": (lambda chain, x, slope: chain.backward(0, x.copy(), slope), "no copy"),
        "segments a little too long": ({LENGTH: "round(1.4 * math.sqrt(chain.layers))"}, "Choose the length", 7),
        "one segment": ({LENGTH: "chain.layers"}, "the input of every layer is kept", 7),
        "segments of two": ({LENGTH: "2"}, "Choose the length", 7),
        "too few segments": ({LENGTH: "math.ceil(chain.layers / 3)"}, "Two numbers add up", 7),
        "the first segment left out": ({"reversed(starts)": "reversed(starts[1:])"}, "layer 3 has no backward pass", 6),
        "segments in order": ({"reversed(starts)": "starts"}, "was given", 0),
        "no slope": ({"return slope": "pass"}, "returns nothing", 6),
    },
    "recursive": {
        "halves": ({BEST: "(0, layers // 2 if kept > 1 else layers - 1)"}, "shorter", 7),
        "no end": ({BEST: "(0, 0)"}, "without end", 0),
        "nothing remembered": ({"lru_cache(None)": "(lambda search: search)"}, "search remember", 0),
        "not let go": ({"del y": "pass"}, "`del` it", 7),
        "one array kept": ({"cheapest(last - first, kept)": "(0, last - first - 1)"}, "Use them all", 5),
        "every array as if all were free": ({"kept - 1": "kept"}, "leaves one less", 7),
        "no array is one too": ({"kept == 0": "kept < 0"}, "are allowed", 7),
    },
    "channels_to_hide": {
        "a multiply-add is one": ({DIVIDED: DIVIDED.replace("2 * ", "")}, "two operations", 0),
        "a byte for a number": ({UNDER_ROOT: "speed / bandwidth"}, "4 bytes", 0),
        "k for k²": ({"kernel**2": "kernel"}, "k² multiply-adds", 0),
        "speeds swapped": ({UNDER_ROOT: "bandwidth * 4 / speed"}, "channels", 0),
        "upside down": ({f"return {DIVIDED}": f"return 1 / ({DIVIDED})"}, "other way round", 0),
        "hidden by the whole step": ({DIVIDED: DIVIDED.replace("2 *", "6 *")}, "during the forward pass", 0),
    },
    "prefetch": {
        "each by itself": ({FREE: "moment - took"}, "one at a time", 4),
        "the wait forgotten": ({FREE: "max(0.0, min(moment, free) - took)"}, "below 0", 7),
        "at once":
            ({"return starts[::-1]": "return [sum(seconds[:place]) - 1 for place in range(len(seconds))]"},
             "takes up room", 7),
        "when it is needed": ({FREE: "moment"}, "arrives at", 1),
        "backwards": ({"return starts[::-1]": "return starts"}, "starts before", 1),
        "the end for the start": ({"starts.append(free)": "starts.append(free + took)"}, "arrives at", 4),
    },
    "Sharded": {
        "the sum": ({AVERAGE: "self.me.reduce_scatter(gradient)"}, "average", 5),
        "state for all":
            ({"make(lengths[me.rank])": "make(len(weights))",
              GATHERED: "return self.optimizer.update(weights, self.me.all_gather(average))"},
             "not of its share", 7),
        "equal parts":
            ({"slice(begin, begin + lengths[me.rank])":
               "slice(me.rank * lengths[me.rank], (me.rank + 1) * lengths[me.rank])"},
             "belong to the same numbers", 8),
        "the first rank's part":
            ({"slice(begin, begin + lengths[me.rank])": "slice(0, lengths[me.rank])"}, "the same numbers", 5),
        "own gradient": ({AVERAGE: "gradient[self.mine]"}, "serial run", 3),
        "an all-reduce": ({AVERAGE: "(self.me.all_reduce(gradient) / self.me.size)[self.mine]"}, "travels", 8),
        "only its part": ({GATHERED: f"return {UPDATED}"}, "returns shape", 0),
        "the others' parts stay":
            ({GATHERED: f"following = weights.copy()\nfollowing[self.mine] = {UPDATED}\nreturn following"},
             "the same weights", 3),
        "in place":
            ({GATHERED: f"weights[self.mine] = {UPDATED}\nreturn self.me.all_gather(weights[self.mine])"},
             "return new ones", 7),
        "no optimizer": ({"make(lengths[me.rank])": "None"}, "AttributeError", 0),
    },
    "layer_norms": {
        "own pieces": ({NORMS: "np.sqrt(squares)"}, "own pieces", 2),
        "norms added up": ({NORMS: "me.all_reduce(np.sqrt(squares))"}, "for 3 and 4 it is 5", 2),
        "norms averaged": ({NORMS: "me.all_reduce(np.sqrt(squares)) / me.size"}, "averaged", 2),
        "no root": ({NORMS: "me.all_reduce(squares)"}, "root is missing", 0),
        "squares averaged": ({NORMS: "np.sqrt(me.all_reduce(squares) / me.size)"}, "squares are", 2),
        "absolute values":
            ({"np.sum(piece**2)": "np.sum(np.abs(piece))", NORMS: "me.all_reduce(squares)"}, "absolute", 0),
        "all gathered":
            ({NORMS: "np.array([np.linalg.norm(me.all_gather(part)[a:b]) for a, b in zip(bounds, bounds[1:])])"},
             "one number for each layer", 7),
        "negative ends": ({PIECE: "part[max(0, start - first):end - first]"}, "counts from the back", 2),
        "negative beginnings": ({PIECE: "part[start - first:end - first]"}, "negative beginning", 2),
    },
}  # fmt: skip

RIGHT = {
    "in_segments": {"from the nearest that is kept": nearest_kept},
    "prefetch": {"an array from its end": from_the_end},
}
