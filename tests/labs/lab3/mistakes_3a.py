"""Mistakes in the exercises of notebook 3a."""

SMALL = "np.mean(np.sum(small_gradients**2, axis=1))"
LARGE = "np.mean(np.sum(large_gradients**2, axis=1))"
ROWS = "np.column_stack([np.ones(len(batches)), 1 / batches])"
UNDIVIDED = {
    "np.linalg.lstsq(left, np.ones(len(batches)), rcond=None)": "np.linalg.lstsq(left, updates, rcond=None)",
}
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
        "nothing returned": ({"return trace / squared": "pass"}, "returns nothing"),
    },
    "floor_and_bend": {
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
