"""Mistakes in the exercises of notebook 7c, and other right answers."""

import math

from labs.lab7_splitting_the_model.lessons import checks_7c, systolic

GAIN = "arithmetic * inputs * outputs - word * (inputs + outputs)"
LEAST = "math.ceil(word * inputs * outputs / per_example)"
BLOCKS = "[(short, side), (middle, other), (longest, 1), (middle, 1), (short, 1)]"
SIDE = "min(sizes[short], max(1, math.isqrt(words) - 2))"
OTHER = "max(1, min(sizes[middle], (words - 2 * side) // (side + 2)))"
ONES = "[(loop, 1) for loop in sizes]"
THIRD = "math.isqrt(words // 3)"
MINUS = "[-1] * len(loops)"
BOUNDS = "[(0, math.log(nest.sizes[loop], words)) for loop in loops]"
RESULT = "dict(zip(loops, found.x))"
WAVE = "batch + 2 * (side - 1)"
PLAIN = "tiles * (side + wave)"
BUFFERED = "side + (tiles - 1) * max(side, batch) + wave"


def simulated(batch, tiles, side, buffered):
    return systolic.layer(batch, tiles, side, buffered).cycles


def best_of_many(sizes, words):
    """Tried with a model of the words."""
    best = None
    for a, b, c in (("i", "p", "j"), ("i", "j", "p"), ("p", "j", "i")):
        for side in range(1, sizes[a] + 1):
            for other in range(1, sizes[b] + 1):
                if side * other + 2 * (side + other) > words:
                    break
                whole = math.prod(sizes.values())
                moved = whole / side + whole / other + sizes[a] * sizes[b]
                if best is None or moved < best[0]:
                    best = moved, [(a, side), (b, other), (c, 1), (b, 1), (a, 1)]
    return best[1]


MISTAKES = {
    "enough": {
        "weights alone": ({GAIN: "arithmetic * inputs * outputs"}, "weights are counted alone"),
        "no outputs": ({GAIN: "arithmetic * inputs * outputs - word * inputs"}, "outputs of every example"),
        "no inputs": ({GAIN: "arithmetic * inputs * outputs - word * outputs"}, "inputs of every example"),
        "outputs read, too": ({GAIN: "arithmetic * inputs * outputs - word * (inputs + 2 * outputs)"}, "written once"),
        "rounded down": ({LEAST: "int(word * inputs * outputs / per_example)"}, "round up"),
        "not rounded": ({LEAST: "word * inputs * outputs / per_example"}, "whole number"),
        "a negative batch": ({"per_example > 0": "True"}, "negative"),
        "always none": ({LEAST: "None"}, "is enough"),
        "never none": ({"None": "10**6"}, "no batch is"),
    },
    "order": {
        "no blocks": ({BLOCKS: ONES}, "thrown out before it is used again"),
        "three equal blocks":
            ({BLOCKS: f"[(loop, max(1, {THIRD})) for loop in sizes] + {ONES}"},
             "nearly all of the room to one array", 3.5),
        "a block of the longest loops":
            ({BLOCKS:
               "[(longest, math.isqrt(words) - 2), (middle, math.isqrt(words) - 2), (short, 1), (middle, 1), "
               "(longest, 1)]"},
             "the room that the short loop leaves"),
        "a block as large as the cache":
            ({SIDE: "min(sizes[short], math.isqrt(words))", OTHER: "min(sizes[middle], math.isqrt(words))"},
             "the block nearly fits"),
        "no step of 1": ({BLOCKS: "[(short, 2), (middle, 1), (longest, 1)]"}, "one of 1 for each"),
        "a loop is missing": ({BLOCKS: "[(short, 1), (middle, 1)]"}, "the loops are i, p and j"),
        "loops only": ({BLOCKS: "list(sizes)"}, "pairs of a loop and a step"),
    },
    "exponents": {
        "the largest as the smallest": ({MINUS: "[1] * len(loops)"}, "looks for the smallest"),
        "loops without ends": ({BOUNDS: "None"}, "what does that say of the exponent"),
        "lengths as bounds":
            ({BOUNDS: "[(0, nest.sizes[loop]) for loop in loops]"}, "what does that say of the exponent"),
        "natural logarithms": ({BOUNDS: "[(0, math.log(nest.sizes[loop])) for loop in loops]"}, "to the base M"),
        "lengths returned":
            ({RESULT: "{loop: words**power for loop, power in zip(loops, found.x)}"}, "return the exponents"),
        "one condition for all":
            ({"np.array(held, float)": "np.sum(held, axis=0, keepdims=True)", "[1] * len(held)": "[1]"},
             "one that all arrays share"),
        "halves": ({RESULT: "{loop: min(0.5, end) for loop, (_, end) in zip(loops, longest)}"}, "may differ"),
        "a part of M / 3 words": ({"[1] * len(held)": "[1 - math.log(3, words)] * len(held)"}, "may have M words"),
        "a list": ({RESULT: "list(found.x)"}, "a dict with an exponent"),
        "M in place of its power": ({"[1] * len(held)": "[words] * len(held)"}, "words of"),
    },
    "cycles": {
        "a simulation": (simulated, "too many to simulate"),
        "no loading": ({PLAIN: "side + tiles * wave - side"}, "weights"),
        "one way only": ({WAVE: "batch + side - 1"}, "two ways"),
        "a side for both ways": ({WAVE: "batch + side"}, "to the right and side"),
        "a step too many": ({WAVE: "batch + 2 * side"}, "side − 1 steps"),
        "one wave for all": ({PLAIN: "tiles * (side + batch) + wave - batch"}, "until the one before it"),
        "one tile": ({PLAIN: "side + wave"}, "there are several"),
        "loaded in no time": ({BUFFERED: "side + tiles * batch + wave - batch"}, "next weights"),
        "waits after the last":
            ({BUFFERED: "side + tiles * max(side, batch) + wave - batch"}, "no weights to wait for"),
        "as without": ({BUFFERED: PLAIN}, "while the units multiply"),
        "every wave runs out":
            ({BUFFERED: "side + (tiles - 1) * max(side, batch) + batch + tiles * (wave - batch)"},
             "only once is it waited for"),
    },
}  # fmt: skip

RIGHT = {
    "order": {"the best of many": best_of_many},
    "enough": {"infinity for none": lambda *layer: checks_7c.WIDE.get(layer, math.inf)},
}
