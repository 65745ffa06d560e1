"""Mistakes in the exercises of notebook 1e."""

FIT = "np.polyfit(np.log(sizes), np.log(errors), 1)"
ASKED = "float(np.exp(height + slope * np.log(size)))"

MISTAKES = {
    "extrapolate": {
        "no logarithms": ({FIT: "np.polyfit(sizes, errors, 1)", ASKED: "height + slope * size"}, "straight line", 0),
        "sizes only": ({"np.log(errors)": "errors", ASKED: "height + slope * np.log(size)"}, "of the errors, too", 0),
        "errors only":
            ({"np.log(sizes)": "sizes", ASKED: "float(np.exp(height + slope * size))"}, "of the sizes, too", 0),
        "no exponential": ({ASKED: "height + slope * np.log(size)"}, "take the exponential", 0),
        "the size itself": ({ASKED: "np.exp(height + slope * size)"}, "not at n", 0),
        "a power of ten": ({ASKED: ASKED.replace("np.exp(", "10 ** (")}, "not a power of ten", 0),
        "the height as it is": ({ASKED: "height * size**slope"}, "height of the line", 0),
        "axes exchanged": ({FIT: "np.polyfit(np.log(errors), np.log(sizes), 1)"}, "exchanged", 0),
        "the last error": ({ASKED: "errors[-1]"}, "beyond the sizes", 0),
        "two points":
            ({FIT: "np.polyfit(np.log([sizes[0], sizes[-1]]), np.log([errors[0], errors[-1]]), 1)",
              ASKED: "errors[-1] * (size / sizes[-1]) ** slope"},
             "let all points count alike", 7),
        "no return": ({f"return {ASKED}": "pass"}, "`return`", 0),
        "arithmetic with lists": ({"np.log(sizes)": "np.log(1 / (1 / sizes))"}, "may be lists", 8),
    },
}  # fmt: skip
