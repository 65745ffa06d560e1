"""Mistakes in the exercises of notebook 8a, and other right answers."""

LOGARITHMS = "statistics.unpaired(np.log(ours), np.log(theirs))"
BACK = "return np.exp(difference), np.exp(difference - half), np.exp(difference + half)"
MEANS = """
(a, s), (b, r) = statistics.mean(ours), statistics.mean(theirs)
return a / b, (a - s) / (b + r), (a + s) / (b - r)
"""
NORMAL = "1.96 * np.sqrt(np.var(np.log(ours), ddof=1) / len(ours) + np.var(np.log(theirs), ddof=1) / len(theirs))"
INSIDE = "norm.cdf(difference / (spread * np.sqrt(2 / enough)) - statistics.student(2 * enough - 1)) < 0.8"
GROWN = "isotonic_regression(accuracies).x"
BETWEEN = "return float(np.interp(target, grown[i - 1 : i + 1], seconds[i - 1 : i + 1]))"

RUNNING = "np.array([accuracies[np.abs(seconds - x) <= 5].mean() for x in seconds])"

MISTAKES = {
    "ratio_interval": {
        "a difference of seconds":
            ({LOGARITHMS: "statistics.unpaired(ours, theirs)",
              BACK: "return difference, difference - half, difference + half"},
             "a ratio has no unit"),
        "theirs over ours": ({LOGARITHMS: "statistics.unpaired(np.log(theirs), np.log(ours))"}, "above 1"),
        "logarithms never brought back":
            ({BACK: "return difference, difference - half, difference + half"}, "bring it back"),
        "only the ratio": ({BACK: "return np.exp(difference)"}, "3 values are expected"),
        "difference over their mean":
            ({LOGARITHMS: "statistics.unpaired(ours, theirs)",
              BACK: "b = theirs.mean(); return 1 + difference / b, *(1 + (difference + h) / b for h in (-half, half))"},
             "who stands above the line must not matter"),
        "ends of both intervals": ({BACK: MEANS}, "as wide as it needs to be"),
        "a normal quantile": ({BACK: f"half = {NORMAL}\n{BACK}"}, "the spread is uncertain too"),
        "standard deviation, not error":
            ({BACK: f"half = half * len(ours) ** 0.5\n{BACK}"}, "as wide as it needs to be"),
        "the shortest times":
            ({BACK: "return ours.min() / theirs.min(), ours.min() / theirs.max(), ours.max() / theirs.min()"},
             "of 400 experiments"),
        "sorts in place": ({BACK: f"ours.sort()\n{BACK}"}, "changed in place"),
    },
    "runs_needed": {
        "as wide as the difference":
            ({INSIDE: "1.96 * spread * np.sqrt(2 / enough) > difference"}, "only one of the two sides"),
        "one side scatters": ({"np.sqrt(2 / enough)": "np.sqrt(1 / enough)"}, "only one of the two sides"),
        "of both sides together": ({"return enough": "return 2 * enough"}, "are enough for 80 %"),
        "spread of a run": ({"np.sqrt(2 / enough)": "1 / enough"}, "both sides scatter"),
        "a fraction of a run": ({"return enough": "return enough + 0.5"}, "a whole number"),
        "sure to find it": ({"0.8": "0.99"}, "are enough for 80 %"),
    },
    "time_to_target": {
        "the first look": ({GROWN: "accuracies"}, "One lucky look"),
        "the best so far": ({GROWN: "np.maximum.accumulate(accuracies)"}, "One lucky look"),
        "the look after the target": ({BETWEEN: "return float(seconds[i])"}, "who looks often, wins"),
        "a mean of five looks":
            ({GROWN: "np.convolve(accuracies, np.ones(5) / 5, 'full')[: len(accuracies)]"}, "who looks often, wins"),
        "number of the look": ({BETWEEN: "return i"}, "the number of the look"),
        "the end where it never is": ({"math.inf": "seconds[-1]"}, "math.inf"),
        "nothing": ({BETWEEN: "pass"}, "returns nothing"),
    },
}  # fmt: skip

RIGHT = {
    "runs_needed": {
        "the textbook's formula, a run short now and then": {
            "return enough": "return np.ceil(2 * ((1.96 + 0.8416) * spread / difference) ** 2)",
        },
    },
    "time_to_target": {"a running mean in seconds": {"isotonic_regression(accuracies).x": RUNNING}},
    "ratio_interval": {"Welch's": {"statistics.unpaired": "statistics.welch"}},
}
