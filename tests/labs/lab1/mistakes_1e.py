"""Mistakes in the exercises of notebook 1e, and right answers of another kind."""

import numpy as np

KNOWN = "sizes <= sizes[-1] / factor"
FIT = "np.polyfit(np.log(sizes[known]), np.log(own[known]), 1)"
LINEAR = "np.polyfit(sizes[known], own[known], 1)"
LAW = "np.exp(height + slope * np.log(sizes[-1]))"
ABOVE = "100 * (own[-1] / law - 1)"


def joined(sizes, errors, factor):
    known = np.flatnonzero(sizes <= sizes[-1] / factor)
    first, last = known[0], known[-1]
    slope = np.log(errors[:, last] / errors[:, first]) / np.log(sizes[last] / sizes[first])
    return 100 * (errors[:, -1] / (errors[:, last] * (sizes[-1] / sizes[last]) ** slope) - 1)


def all_at_once(sizes, errors, factor):
    """One fit of all seeds, whose errors are columns, to the base of two."""
    known = sizes * factor <= sizes.max()
    slopes, heights = np.polyfit(np.log2(sizes[known]), np.log2(errors[:, known]).T, 1)
    return errors[:, -1] / 2 ** (slopes * np.log2(sizes[-1]) + heights) * 100 - 100


def normal_equations(sizes, errors, factor):
    """Least squares by a matrix; the sizes counted from the one that is asked about, so that the height is the law."""
    answers = []
    for runs in errors.tolist():
        pairs = [(np.log10(n / sizes[-1]), np.log10(e)) for n, e in zip(sizes, runs) if n <= sizes[-1] / factor]
        x, y = map(np.array, zip(*pairs))
        (height, _), *_ = np.linalg.lstsq(np.stack([np.ones_like(x), x], axis=1), y, rcond=None)
        answers.append((runs[-1] - 10**height) / 10**height * 100)
    return answers


MISTAKES = {
    "backtest": {
        "the law has seen the answer": ({KNOWN: "sizes > 0"}, "a measurement that the law doesn't know", 0),
        "only the largest left out": ({KNOWN: "sizes < sizes[-1]"}, "the test is too easy", 3),
        "smaller, not at most": ({KNOWN: "sizes < sizes[-1] / factor"}, "may know the size", 3),
        "the sizes to be predicted": ({KNOWN: "sizes >= sizes[-1] / factor"}, "should not know", 0),
        "counted from the smallest": ({KNOWN: "sizes <= sizes[0] * factor"}, "count from the largest", 0),
        "first and last point": (joined, "let all its points count alike", 0),
        "the last two points":
            ({FIT: FIT.replace("[known]", "[known][-2:]")}, "the last two of its points only", 0),
        "no logarithms": ({FIT: LINEAR, LAW: "height + slope * sizes[-1]"}, "straight line", 0),
        "sizes only":
            ({"np.log(own[known])": "own[known]", LAW: "height + slope * np.log(sizes[-1])"}, "of the errors, too", 0),
        "errors only":
            ({"np.log(sizes[known])": "sizes[known]", LAW: "np.exp(height + slope * sizes[-1])"},
             "of the sizes, too", 0),
        "no exponential": ({LAW: "height + slope * np.log(sizes[-1])"}, "take its exponential", 0),
        "no logarithm, all sizes":
            ({KNOWN: "sizes > 0", FIT: LINEAR, LAW: "height + slope * sizes[-1]"},
             "up to the largest / `factor` only", 0),
        "one law for all": ({FIT: FIT.replace("own[known]", "errors.mean(axis=0)[known]")}, "share one law", 0),
        "one number": ({"np.array(above)": "np.mean(above)"}, "one for each of the 4 seeds", 0),
        "shares": ({ABOVE: "own[-1] / law - 1"}, "multiply by 100", 0),
        "of 100": ({ABOVE: "100 * own[-1] / law"}, "100 % is what the law expects", 0),
        "below the law": ({ABOVE: "100 * (1 - own[-1] / law)"}, "the sign", 0),
        "of the measurement": ({ABOVE: "100 * (1 - law / own[-1])"}, "relative to the measured error", 0),
        "the law above the measurement": ({ABOVE: "100 * (law / own[-1] - 1)"}, "exchange them", 0),
        "logarithms": ({ABOVE: "100 * np.log(own[-1] / law)"}, "difference of logarithms", 0),
        "a difference": ({ABOVE: "100 * (own[-1] - law)"}, "how many per cent of the law's answer", 0),
        "the law's last point": ({LAW: "own[known][-1]"}, "its own last point", 0),
        "no return": ({"return np.array(above)": "pass"}, "`return`", 0),
    },
}  # fmt: skip

RIGHT = {"backtest": {"all seeds in one fit": all_at_once, "normal equations, a list": normal_equations}}
