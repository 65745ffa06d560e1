"""Mistakes in the exercises of notebook 5d, and other right answers."""

from functools import partial

import numpy as np

from tests.labs import notebooks

SIZE = "np.abs(kernel).mean(axes, keepdims=True)"
KEEP = "max(1, round(density * strength.size))"
AXES = '{"weights": (), "rows": (1,), "filters": (0, 1, 2)}'
MASK = "np.broadcast_to(mask.reshape(strength.shape), kernel.shape)"
SHARE = "final * (1 - (1 - done) ** 3)"
BITMAP = "nonzeros * value + -(-rows * columns // 8)"
COMPRESSED = "nonzeros * (value + column) + (rows + 1) * beginning"
COORDINATES = "nonzeros * (value + row + column)"
EVEN = "1 - 1 / (8 * value), value / (value + index), value / (value + 2 * index)"


def by_squares(kernel, density, grain):
    axes = {"weights": (), "rows": 1, "filters": (0, 1, 2)}[grain]
    strength = (kernel**2).sum(axes, keepdims=True)
    order = np.argsort(np.argsort(-strength, axis=None)).reshape(strength.shape)
    return np.zeros(kernel.shape) + (order < max(1, round(density * strength.size)))


def of_fourth_order(update, updates, final):
    return final * (1 - (1 - min(1, update / (0.8 * updates))) ** 4)


numbers = partial(notebooks.changed, {"A": 2, "B": 1, "C": 5, "D": 4})

MISTAKES = {
    "stays": {
        "signed": ({SIZE: "kernel.mean(axes, keepdims=True)"}, "signs must not matter"),
        "the size of the mean": ({SIZE: "np.abs(kernel.mean(axes, keepdims=True))"}, "cancel each other"),
        "the weakest stay": ({SIZE: "-np.abs(kernel).mean(axes, keepdims=True)"}, "other way round"),
        "the share that goes": ({KEEP: "max(1, round((1 - density) * strength.size))"}, "not the share that goes"),
        "rows along the height": ({AXES: AXES.replace("(1,)", "(0,)")}, "along the width, axis 1"),
        "always single weights": ({AXES: '{"weights": (), "rows": (), "filters": ()}'}, "as a whole"),
        "a threshold":
            ({MASK: "np.broadcast_to(strength >= np.quantile(strength, 1 - density), kernel.shape)"},
             "can't tell equals apart"),
        "the kernel itself": ({MASK: f"kernel * {MASK}"}, "not what they are"),
        "groups, not weights": ({MASK: "mask.reshape(strength.shape)"}, "it returns shape"),
    },
    "pruned_share": {
        "steadily":
            (lambda update, updates, final: final * min(1.0, update / (0.75 * updates)), "in the last third", 6.4),
        "all at the start": ({SHARE: "final"}, "no weight has shown yet"),
        "half-way": ({SHARE: "final * (update >= updates / 2)"}, "most weights go in one update"),
        "the last update": ({SHARE: "final * (update == updates - 1)"}, "some time to take over"),
        "steadily to the end": ({SHARE: "final * update / (updates - 1)"}, "some time to take over"),
        "ever faster": ({SHARE: "final * done ** 3"}, "in the last third"),
        "never there": ({SHARE: "0.9 * final * (1 - (1 - done) ** 3)"}, "at the last update the share is"),
        "to everything": ({SHARE: "1 - (1 - done) ** 3"}, "stay in 0 … final"),
        "back again": ({SHARE: "final * np.sin(3 * done)"}, "stays pruned"),
    },
    "sizes": {
        "a byte for a bit": ({BITMAP: "nonzeros * value + rows * columns"}, "an eighth of a byte"),
        "bits of the non-zeros": ({BITMAP: "nonzeros * value + -(-nonzeros // 8)"}, "for every weight"),
        "rounded down": ({BITMAP: "nonzeros * value + rows * columns // 8"}, "round up"),
        "no values": ({BITMAP: "-(-rows * columns // 8)"}, "values themselves are missing"),
        "no last end": ({COMPRESSED: "nonzeros * (value + column) + rows * beginning"}, "rows + 1 numbers"),
        "beginnings as columns":
            ({COMPRESSED: "nonzeros * (value + column) + (rows + 1) * column"}, "as large as their number"),
        "no beginnings": ({COMPRESSED: "nonzeros * (value + column)"}, "where a row begins"),
        "columns from 1": ({"index(columns - 1)": "index(columns)"}, "counted from 0"),
        "rows and columns from 1":
            ({"index(columns - 1)": "index(columns)", "index(rows - 1)": "index(rows)"}, "counted from 0"),
        "the last end forgotten": ({"index(nonzeros)": "index(nonzeros - 1)"}, "non-zeros itself"),
        "one coordinate": ({COORDINATES: "nonzeros * (value + column)"}, "two coordinates"),
        "always 4 bytes": ({"1 if largest < 256 else 2 if largest < 65_536 else 4": "4"}, "only where 1 or 2"),
    },
    "break_even": {
        "shares of zeros":
            ({EVEN: "1 / (8 * value), 1 - value / (value + index), 1 - value / (value + 2 * index)"},
             "the share of zeros"),
        "a bit for each value": ({"1 - 1 / (8 * value)": "value / (value + 1 / 8)"}, "paid for the zeros"),
        "a byte for each place": ({"1 - 1 / (8 * value)": "1 - 1 / value"}, "not a byte"),
        "rows with two indices":
            ({EVEN: EVEN.replace("(value + index)", "(value + 2 * index)")}, "one index in compressed rows"),
        "coordinates with one": ({EVEN: EVEN.replace("(value + 2 * index)", "(value + index)")}, "two in coordinates"),
        "index against value": ({EVEN: EVEN.replace("value / (value + index)", "value / index")}, "must not exceed"),
    },
    "diagnosis": {
        "by chance for signs": (numbers(A=5), "look at their signs", 7.5),
        "begun anew for a mask forgotten": (numbers(B=6), "are what they were before", 7.5),
        "the largest gone for chance": (numbers(C=3), "would be far smaller than those that go", 7.5),
        "chance for one threshold": (numbers(D=5), "are larger than those that go", 7.5),
        "a text": (numbers(A="2"), "write a number", 7.5),
        "a list": (lambda: [2, 1, 5, 4], "the number of a mistake for each patient", 0),
    },
}  # fmt: skip

RIGHT = {
    "stays": {"by squares": by_squares},
    "pruned_share": {"of the fourth order": of_fourth_order},
}
