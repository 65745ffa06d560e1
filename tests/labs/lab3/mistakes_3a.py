"""Mistakes in the exercises of notebook 3a, and other right answers."""

import numpy as np
from scipy import optimize

SMALL = "np.mean(np.sum(small_gradients**2, axis=1))"
LARGE = "np.mean(np.sum(large_gradients**2, axis=1))"
ROWS = "np.column_stack([np.ones(len(batches)), 1 / batches])"
UNDIVIDED = {
    "np.linalg.lstsq(left, np.ones(len(batches)), rcond=None)": "np.linalg.lstsq(left, updates, rcond=None)",
}
THROUGH = {"np.linalg.lstsq(left, np.ones(len(batches)), rcond=None)[0]":
           "np.linalg.solve(left[[0, -1]], np.ones(2))"}  # fmt: skip
NOT_RELATIVE = {f"{ROWS} / updates[:, None]": ROWS, **UNDIVIDED}

MISTAKES = {
    "noise_scale": {
        "the norm of the mean in place of the mean of the norms":
            ({SMALL: "np.sum(np.mean(small_gradients, axis=0) ** 2)",
              LARGE: "np.sum(np.mean(large_gradients, axis=0) ** 2)"},
             "averages out"),
        "sums in place of means":
            ({SMALL: "np.sum(small_gradients**2)", LARGE: "np.sum(large_gradients**2)"}, "add up over the gradients"),
        "the axes swapped":
            ({SMALL: SMALL.replace("axis=1", "axis=0"), LARGE: LARGE.replace("axis=1", "axis=0")},
             "add up over the gradients"),
        "norms in place of squared norms":
            ({SMALL: "np.mean(np.linalg.norm(small_gradients, axis=1))",
              LARGE: "np.mean(np.linalg.norm(large_gradients, axis=1))"},
             "you use the norms"),
        "the large batch taken as exact": ({"trace / squared": "trace / E_large"}, "still has noise"),
        "divided by the small batch's length": ({"trace / squared": "trace / E_small"}, "its noise in it"),
        "only the trace": ({"trace / squared": "trace"}, "divided by |G|²"),
        "upside down": ({"trace / squared": "squared / trace"}, "other way round"),
        "sizes swapped":
            ({f"E_small = {SMALL}": f"small, large = large, small; E_small = {SMALL}"}, "sizes the wrong way round"),
        "the sum of the sizes": ({"(large - small)": "(large + small)"}, "the sum of the sizes"),
        "the spread of the gradients": (
            {"trace / squared": "small * np.var(small_gradients, axis=0).sum() / squared"}, "but one gradient has none",
        ),
        "the wrong sign": ({"E_small - E_large": "E_large - E_small"}, "wrong sign"),
        "squared in place":
            ({f"E_small = {SMALL}": f"small_gradients **= 2; small_gradients **= 0.5; E_small = {SMALL}"},
             "changed in place"),
        "only the large batch's noise": (
            {"trace / squared": "(E_small - E_large) * small / squared"}, "as if the large batch had no noise",
        ),
        "nothing returned": ({"return trace / squared": "pass"}, "returns nothing"),
    },
    "floor_and_bend": {
        "the curve through the ends": (THROUGH, "first and the last batch only"),
        "errors in updates": (NOT_RELATIVE, "smallest batch"),
        "only one side divided": (UNDIVIDED, "should be (20, 300)"),
        "the slope for the bend": ({"a, c / a": "a, c"}, "divide by the floor"),
        "a power in place of a floor":
            ({"a, c / a": "(lambda p: (np.exp(p[1]), p[0]))(np.polyfit(np.log(batches), np.log(updates), 1))"},
             "has no floor"),
        "the bend first": ({"a, c / a": "c / a, a"}, "bend first"),
        "one over the bend": ({"a, c / a": "a, a / c"}, "one over the bend"),
        "a line over B":
            ({f"{ROWS} / updates[:, None]": ROWS.replace("1 / batches", "batches"), **UNDIVIDED, "a, c / a": "a, c"},
             "line over 1/B"),
        "one number": ({"a, c / a": "c / a"}, "2 values are expected: the floor, the bend"),
    },
}  # fmt: skip


def noise_scale_by_a_line(small_gradients, large_gradients, small, large):
    lengths = [np.square(np.linalg.norm(g, axis=1)) for g in (small_gradients, large_gradients)]
    sizes = np.repeat([1 / small, 1 / large], [len(lengths[0]), len(lengths[1])])
    trace, squared = np.polyfit(sizes, np.concatenate(lengths), 1)
    return trace / squared


def fit_of_logarithms(batches, updates):
    start = [np.log(min(updates)), 5.0]  # of the logarithms: both stay positive
    found = optimize.least_squares(lambda p: p[0] + np.log1p(np.exp(p[1]) / batches) - np.log(updates), start)
    return tuple(np.exp(found.x))


def fit_by_curve_fit(batches, updates):
    def curve(b, floor, bend):
        return floor * (1 + bend / b)

    return optimize.curve_fit(curve, batches, updates, p0=[min(updates), 100], sigma=updates)[0]


def fit_relative_to_the_curve(batches, updates):
    found = optimize.least_squares(lambda p: updates / (p[0] + p[1] / batches) - 1, [min(updates), 1000])
    a, c = found.x
    return [a, c / a]


RIGHT = {
    "noise_scale": {"a line through all lengths": noise_scale_by_a_line},
    "floor_and_bend": {
        "errors of the logarithm": fit_of_logarithms,
        "curve_fit": fit_by_curve_fit,
        "relative to the curve": fit_relative_to_the_curve,
    },
}
