"""Mistakes in the exercises of notebook 2f, and other right answers."""

import numpy as np

PAYS = "saved / lost if lost > 0 else np.inf"
FP16 = '"fp16" if with_it < without else "none"'
COMPRESSION = "min(steps, key=lambda name: steps[name][0] + steps[name][1] * 8e-6 / megabits)"
CYCLE = "max(cycle for cycle in (1, 5, 20, 50) if cycle <= share * 1000 * steps[compression][0])"
TUNED = '{"fusion_mb": 1 / 4, "cycle_ms": cycle, "compression": compression}'
RELATIVE = "alone / seconds * (ranks if weak else 1)"
FRACTION = "(a * b).sum() / (a**2).sum()"
TRIED = "np.linspace(0, 0.4, 400_001)[:, None]"
IN_S = f"{TRIED}[((1 / ({TRIED} + (1 - {TRIED}) / ranks) - speedup) ** 2).sum(axis=1).argmin(), 0]"


def free_slope(ranks, speedup):
    return np.polyfit(1 / ranks, 1 / speedup, 1)[1] if len(ranks) > 1 else 0.3


def pays_below_by_bisection(plain, compressed):
    def longer(bandwidth):
        return compressed[0] + compressed[1] / bandwidth > plain[0] + plain[1] / bandwidth

    low, high = 1.0, 1e15
    if not longer(high):
        return float("inf")
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if longer(middle) else (middle, high)
    return low


def tuned_by_a_third(megabits, plain, compressed):
    """With `pays_below`, and a third of the step, which is close to the recorded share."""
    fp16 = 1e6 / 8 * megabits < pays_below_by_bisection(plain, compressed)
    third = 1e3 * (compressed if fp16 else plain)[0] / 3
    cycles = [cycle for cycle in (50, 20, 5, 1) if cycle < third]
    return {"compression": ("none", "fp16")[fp16], "cycle_ms": cycles[0], "fusion_mb": 0.25}


def efficiency_by_rate(ranks, seconds, weak=False):
    rate = (ranks if weak else np.ones_like(seconds)) / seconds
    return rate / (ranks * rate[np.argmin(ranks)])


def serial_fraction_by_lstsq(ranks, speedup):
    return np.linalg.lstsq((1 - 1 / ranks)[:, None], 1 / speedup - 1 / ranks, rcond=None)[0][0]


MISTAKES = {
    "pays_below": {
        "upside down, seconds for a byte": ({"saved / lost": "lost / saved"}, "Upside down"),
        "bits": ({"saved / lost": "8 * saved / lost"}, "in bits"),
        "all bytes": ({"plain[1] - compressed[1]": "plain[1]"}, "all bytes"),
        "bytes that still travel": ({"plain[1] - compressed[1]": "compressed[1]"}, "still travel"),
        "a negative bandwidth": ({"plain[1] - compressed[1]": "compressed[1] - plain[1]"}, "The sign"),
        "divided by nothing": ({PAYS: "saved / lost"}, "divide by 0"),
        "negative where it is faster": ({"lost > 0": "lost"}, "pays on every link"),
        "never in place of always": ({"np.inf": "0.0"}, "pays on every link"),
        "by the shorter step's bytes and seconds": ({"saved / lost": "plain[1] / plain[0]"}, "the bandwidth should be"),
        "no bandwidth returned": ({f"return {PAYS}": "pass"}, "a `return` missing"),
    },
    "tuned": {
        "never fp16": ({COMPRESSION: '"none"'}, "bytes take longer"),
        "always fp16": ({COMPRESSION: '"fp16"'}, "compression loses"),
        "fp16 for the recorded machine alone":
            ({COMPRESSION: '"fp16" if megabits < 682 else "none"'}, "at 10,000 Mbit/s, where t is 100 ms"),
        "bits for bytes": ({"8e-6": "1e-6"}, "bytes take longer"),
        "MB a second": ({"8e-6": "1e-6 / 8"}, "bytes take longer"),
        "the seconds alone": ({"steps[name][0] + steps[name][1] * 8e-6 / megabits": "steps[name][0]"},
                              "bytes take longer"),
        "the bytes alone": ({"steps[name][0] + steps[name][1] * 8e-6 / megabits": "steps[name][1]"},
                            "compression loses"),
        "no fusion": ({"1 / 4": "0"}, "41 gradients travel"),
        "too little fusion": ({"1 / 4": "1 / 16"}, "41 gradients travel"),
        "the default buffer": ({"1 / 4": "128"}, "a smaller threshold is as fast"),
        "bytes in place of MiB": ({"1 / 4": "2**18"}, "one of the recorded values"),
        "5 ms on every machine": ({CYCLE: "5"}, "20 ms are 0.20 of the step"),
        "20 ms on every machine": ({CYCLE: "20"}, "The cycle is too long: it is 0.96 of the step"),
        "50 ms on every machine": ({CYCLE: "50"}, "The cycle is too long"),
        "the default cycle": ({CYCLE: "1"}, "talk more often"),
        "as long as the step": ({"share = 0.3": "share = 1"}, "it is 0.96 of the step"),
        "a share of the step without compression": ({"steps[compression][0]": "plain[0]"}, "talk more often"),
        "a share of the step with its bytes":
            ({"share * 1000 * steps[compression][0]":
              "share * 1000 * (steps[compression][0] + steps[compression][1] * 8e-6 / megabits)"},
             "The cycle is too long"),
        "an unrounded share": ({"share = 0.3": "share = 5 / 16.8"}, "a share of 0.3 (rounded)"),
        "seconds": ({"share * 1000": "share"}, "raised ValueError"),
        "true in place of a name": ({TUNED: TUNED.replace(": compression", ": compression == 'fp16'")},
                                    "'none' or 'fp16'"),
        "a knob forgotten": ({TUNED: '{"fusion_mb": 1 / 4, "cycle_ms": cycle}'}, "a dict with the keys"),
        "no settings returned": ({f"return {TUNED}": "pass"}, "a `return` missing"),
    },
    "efficiency": {
        "the speed-up": ({"speedup / ranks": "speedup"}, "That is the speed-up"),
        "strong for both": ({RELATIVE: "alone / seconds"}, "Don't divide by N"),
        "weak for both": ({"ranks if weak else 1": "ranks"}, "That is the speed-up"),
        "upside down": ({"alone / seconds": "seconds / alone"}, "Upside down"),
        "the inverse": ({"speedup / ranks": "ranks / speedup"}, "Upside down"),
        "multiplied": ({"speedup / ranks": "speedup * ranks"}, "don't multiply"),
        "the first in place of one rank's": ({"seconds[ranks == 1]": "seconds[0]"}, "wherever it stands"),
        "the most ranks in place of one": ({"seconds[ranks == 1]": "seconds.max()"}, "the efficiency should be"),
        "per cent": ({"speedup / ranks": "100 * speedup / ranks"}, "not in per cent"),
        "halved in place": ({"alone = seconds[ranks == 1]": "alone = seconds[ranks == 1]; seconds /= 2"}, "in place"),
    },
    "serial_fraction": {
        "a line with a free slope": (free_slope, "one number only"),
        "the parallel share": ({FRACTION: f"1 - {FRACTION}"}, "parallel share"),
        "linear in S": ({"1 / speedup": "speedup"}, "for 1/S, not for S"),
        "b without 1/N": ({"1 / speedup - 1 / ranks": "1 / speedup"}, "a 1/N is missing"),
        "divided by b²": ({"(a**2).sum()": "(b**2).sum()"}, "Upside down"),
        "not divided": ({FRACTION: "(a * b).sum()"}, "The quotient is missing"),
        "the mean of each": ({FRACTION: "(b[a > 0] / a[a > 0]).mean()"}, "mean of"),
        "the last point": ({FRACTION: "b[-1] / a[-1]"}, "use all points"),
        "least squares in S": ({FRACTION: IN_S}, "in 1/S"),
        "the best of the points": ({FRACTION: "min(b[1:] / a[1:]) if len(a) > 1 else b[0] / a[0]"}, "s should be"),
        "an array": ({FRACTION: "b / np.maximum(a, 1e-9)"}, "one number is expected"),
        "warnings": ({FRACTION: "(b / a).sum()"}, "returns nan"),
    },
}  # fmt: skip

RIGHT = {
    "pays_below": {"by bisection": pays_below_by_bisection},
    "tuned": {"a third of the step": tuned_by_a_third},
    "efficiency": {"by images a second": efficiency_by_rate},
    "serial_fraction": {"by NumPy": serial_fraction_by_lstsq},
}
