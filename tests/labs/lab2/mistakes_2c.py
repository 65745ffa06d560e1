"""Mistakes in the exercises of notebook 2c, and other right answers."""

import numpy as np

LOOP = """
for index in np.argsort(start):
    end = start[index] + seconds[index]
    total += max(0.0, end - max(start[index], latest))
    latest = max(latest, end)
"""
KEYS = '["tensor", "step"]'
MEAN = 'behind.groupby(arrivals["rank"]).mean()'
BEHIND = 'behind = arrivals["start"] - first'
SHARE = "len(range(rank, examples, ranks))"
ALL = "batches, steps, examples - ranks * batch * steps"
PAYS = "saved / lost if lost > 0 else np.inf"
FP16 = '"fp16" if with_it < without else "none"'
TUNED = f'{{"fusion_mb": 1 / 4, "cycle_ms": 5, "compression": {FP16}}}'
RELATIVE = "alone / seconds * (ranks if weak else 1)"
FRACTION = "(a * b).sum() / (a**2).sum()"
TRIED = "np.linspace(0, 0.4, 400_001)[:, None]"
IN_S = f"{TRIED}[((1 / ({TRIED} + (1 - {TRIED}) / ranks) - speedup) ** 2).sum(axis=1).argmin(), 0]"


def free_slope(ranks, speedup):
    return np.polyfit(1 / ranks, 1 / speedup, 1)[1] if len(ranks) > 1 else 0.3


def covered_by_pieces(start, seconds):
    grid = np.unique(np.concatenate([start, start + seconds]))
    middle = (grid[1:] + grid[:-1]) / 2
    inside = ((middle > start[:, None]) & (middle < (start + seconds)[:, None])).any(axis=0)
    return float(np.diff(grid)[inside].sum())


def lateness_by_pivot(arrivals):
    wide = arrivals.pivot(index=["tensor", "step"], columns="rank", values="start")
    return wide.sub(wide.min(axis=1), axis=0).mean().to_dict()


MISTAKES = {
    "covered": {
        "overlaps count twice": ({LOOP: "total = seconds.sum()"}, "counts twice"),
        "gaps count too": ({LOOP: "total = np.max(start + seconds) - np.min(start)"}, "gaps"),
        "only the end before": ({"max(latest, end)": "end"}, "the latest end so far"),
        "negative parts": ({"max(0.0, end - max(start[index], latest))": "end - max(start[index], latest)"}, "away"),
        "not sorted": ({"np.argsort(start)": "range(len(start))"}, "sort them first"),
        "milliseconds": ({"return total": "return 1000 * total"}, "milliseconds"),
        "no return": ({"return total": "pass"}, "returns nothing"),
        "in place": ({"total, latest = 0.0, -np.inf": "seconds += start; total, latest = 0, 0"}, "in place"),
    },
    "lateness": {
        "first arrival of all":
            ({f'arrivals.groupby({KEYS})["start"].transform("min")': 'arrivals["start"].min()'}, "very first arrival"),
        "first of the step": ({KEYS: '["step"]'}, "Group by tensor too"),
        "first of the tensor": ({KEYS: '["tensor"]'}, "group by step too"),
        "compared with itself": ({KEYS: '["rank"]'}, "with itself"),
        "the median": ({MEAN: MEAN.replace("mean", "median")}, "That is the median"),
        "after the mean":
            ({f'arrivals.groupby({KEYS})["start"].transform("min")':
               f'arrivals.groupby({KEYS})["start"].transform("mean")'},
             "from the mean arrival"),
        "the sum": ({MEAN: MEAN.replace("mean", "sum")}, "return the mean"),
        "the worst": ({MEAN: MEAN.replace("mean", "max")}, "worst case"),
        "means compared":
            ({MEAN: 'arrivals.groupby("rank")["start"].mean() - arrivals.groupby("rank")["start"].mean().min()'},
             "before you average"),
        "the sign": ({'arrivals["start"] - first': 'first - arrivals["start"]'}, "sign"),
        "a new column": ({BEHIND: f'arrivals["first"] = first; {BEHIND}'}, "add no columns"),
        "a row for each arrival": ({MEAN: "behind"}, "the lateness of three ranks should be"),
    },
    "steps_per_epoch": {
        "small batches forgotten": ({"-(-share // batch)": "share // batch"}, "smaller batch"),
        "one batch too many": ({"-(-share // batch)": "share // batch + 1"}, "no further batch"),
        "all shares alike": ({SHARE: "examples // ranks"}, "the first ranks have one more"),
        "the most, not the least": ({"min(shares)": "max(shares)"}, "has not so many"),
        "the last counts as full": ({"min(shares) // batch": "min(batches)"}, "count full batches"),
        "left on one rank": ({"ranks * batch * steps": "batch * steps"}, "on every rank"),
        "what is used": ({"examples - ranks * batch * steps": "ranks * batch * steps"}, "that are used"),
        "only the steps": ({ALL: "steps"}, "batches, steps, left"),
    },
    "pays_below": {
        "upside down, seconds for a byte": ({"saved / lost": "lost / saved"}, "Upside down"),
        "bits": ({"saved / lost": "8 * saved / lost"}, "in bits"),
        "all bytes": ({"plain[1] - compressed[1]": "plain[1]"}, "all bytes"),
        "bytes that still travel": ({"plain[1] - compressed[1]": "compressed[1]"}, "still travel"),
        "a negative bandwidth": ({"plain[1] - compressed[1]": "compressed[1] - plain[1]"}, "The sign"),
        "divided by nothing": ({PAYS: "saved / lost"}, "divide by 0"),
        "negative where it is faster": ({"lost > 0": "lost"}, "pays on every link"),
        "never in place of always": ({"np.inf": "0.0"}, "pays on every link"),
        "no bandwidth returned": ({f"return {PAYS}": "pass"}, "a `return` missing"),
    },
    "tuned": {
        "never fp16": ({FP16: '"none"'}, "bytes take longer"),
        "always fp16": ({FP16: '"fp16"'}, "compression loses"),
        "fp16 for the recorded machine alone":
            ({FP16: '"fp16" if megabits < 682 else "none"'}, "at 10,000 Mbit/s, where a step computes 100 ms"),
        "bits for bytes": ({"8e-6": "1e-6"}, "at 300 Mbit/s"),
        "MB a second": ({"8e-6": "1e-6 / 8"}, "bytes take longer"),
        "the seconds alone": ({"t + size * 8e-6 / megabits": "t"}, "bytes take longer"),
        "the bytes alone": ({"t + size * 8e-6 / megabits": "size"}, "compression loses"),
        "no fusion": ({"1 / 4": "0"}, "41 gradients travel"),
        "too little fusion": ({"1 / 4": "1 / 16"}, "41 gradients travel"),
        "the default buffer": ({"1 / 4": "128"}, "a smaller threshold is as fast"),
        "bytes in place of MiB": ({"1 / 4": "2**18"}, "one of the recorded values"),
        "a long cycle": ({"5": "20"}, "The cycle is too long"),
        "a very long cycle": ({"5": "50"}, "The cycle is too long"),
        "the default cycle": ({"5": "1"}, "talk more often"),
        "seconds": ({"5": "0.005"}, "one of the recorded values"),
        "true in place of a name": ({FP16: "with_it < without"}, "'none' or 'fp16'"),
        "a knob forgotten": ({TUNED: '{"fusion_mb": 1 / 4, "cycle_ms": 5}'}, "a dict with the keys"),
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
        "an array": ({FRACTION: "b / np.maximum(a, 1e-9)"}, "one number is expected"),
        "warnings": ({FRACTION: "(b / a).sum()"}, "returns nan"),
    },
}  # fmt: skip

RIGHT = {
    "covered": {"piece by piece": covered_by_pieces},
    "lateness": {"by a pivot table": lateness_by_pivot},
}
