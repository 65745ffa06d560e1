"""Mistakes in the exercises of notebook 2c, and other right answers."""

import numpy as np

from labs.lab2_horovod.lessons import step_parts

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
OWN = 'profile.drop(["waiting", "moving"])'
PART = 'profile[rank].drop("waiting").idxmax()'
CHANGE = "min(changed, key=changed.get)"
AFTER_INPUT = 'np.maximum(own.loc["input"], total - own.loc["input"]).max() + moving'
CURES = '{"network": "bfloat16", "input": "prefetch", "moving": "fp16", "callbacks": "callbacks"}'


def covered_by_pieces(start, seconds):
    grid = np.unique(np.concatenate([start, start + seconds]))
    middle = (grid[1:] + grid[:-1]) / 2
    inside = ((middle > start[:, None]) & (middle < (start + seconds)[:, None])).any(axis=0)
    return float(np.diff(grid)[inside].sum())


def covered_on_a_grid(width):
    """Instants at equal distances, of which those within a bar are counted."""

    def covered(start, seconds):
        instants = np.arange(start.min(), (start + seconds).max(), width)
        inside = ((instants[:, None] >= start) & (instants[:, None] < start + seconds)).any(axis=1)
        return float(width * inside.sum())

    return covered


def covered_by_events(start, seconds):
    """+1 where a bar begins and −1 where one ends: the time in which the sum is positive."""
    times = np.concatenate([start, start + seconds])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.repeat([1, -1], len(start))[order])
    return float((np.diff(times[order]) * (running[:-1] > 0)).sum())


def lateness_by_pivot(arrivals):
    wide = arrivals.pivot(index=["tensor", "step"], columns="rank", values="start")
    return wide.sub(wide.min(axis=1), axis=0).mean().to_dict()


def lateness_by_loops(arrivals):
    late = {}
    for _, group in arrivals.groupby(["step", "tensor"]):
        for rank, start in zip(group["rank"], group["start"]):
            late.setdefault(rank, []).append(start - group["start"].min())
    return [float(np.mean(late[rank])) for rank in sorted(late)]


def diagnose_by_trying(profile):
    """Each change is made in a copy of the table; waiting is not needed."""
    steps = {}
    for change in step_parts.CHANGES:
        table = profile.copy().drop("waiting")
        if change == "prefetch":
            others = table.drop(["input", "moving"]).sum()
            table.loc["input"] = (table.loc["input"] - others).clip(lower=0)
        elif change == "callbacks":
            table.loc["callbacks"] = 0
        else:
            table.loc[{"bfloat16": "network", "fp16": "moving"}[change]] /= 2
        steps[change] = table.sum().max()
    rank = profile.loc["waiting"].idxmin()
    return [rank, profile[rank].sort_values().drop("waiting").index[-1], sorted(steps, key=steps.get)[0]]


def diagnose_the_mean(profile):
    rank, part, _ = diagnose_by_trying(profile)
    return rank, part, diagnose_by_trying(profile.mean(axis=1).to_frame())[2]


def steps_by_dealing(examples, ranks, batch):
    hands = [np.arange(rank, examples, ranks) for rank in range(ranks)]
    batches = [len(np.split(hand, range(batch, len(hand), batch))) if len(hand) else 0 for hand in hands]
    steps = examples // ranks // batch
    return batches, steps, examples - steps * batch * ranks


MISTAKES = {
    "covered": {
        "overlaps count twice": ({LOOP: "total = seconds.sum()"}, "counts twice"),
        "gaps count too": ({LOOP: "total = np.max(start + seconds) - np.min(start)"}, "gaps"),
        "only the end before": ({"max(latest, end)": "end"}, "the latest end so far"),
        "negative parts": ({"max(0.0, end - max(start[index], latest))": "end - max(start[index], latest)"}, "away"),
        "not sorted": ({"np.argsort(start)": "range(len(start))"}, "sort them first"),
        "milliseconds": ({"return total": "return 1000 * total"}, "milliseconds"),
        "no return": ({"return total": "pass"}, "returns nothing"),
        "a grid of milliseconds": (covered_on_a_grid(1e-3), "a grid of instants is too coarse"),
        "a grid of ten microseconds": (covered_on_a_grid(1e-5), "a grid of instants is too coarse"),
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
        "after rank 0":
            ({f'arrivals.groupby({KEYS})["start"].transform("min")':
               f'arrivals[arrivals["rank"] == 0].groupby({KEYS})["start"].first().reindex('
               f'arrivals.set_index({KEYS}).index).to_numpy()'}, "It counts from rank 0"),
        "before the last":
            ({f'arrivals.groupby({KEYS})["start"].transform("min")':
               f'arrivals.groupby({KEYS})["start"].transform("max")',
              'arrivals["start"] - first': 'first - arrivals["start"]'},
             "It counts back from the last"),
        "a new column": ({BEHIND: f'arrivals["first"] = first; {BEHIND}'}, "add no columns"),
        "a row for each arrival": ({MEAN: "behind"}, "the lateness of three ranks should be"),
    },
    "diagnose": {
        "the rank that waits most": ({"total.idxmax()": 'profile.loc["waiting"].idxmax()'}, "it is ready first"),
        "rank 0": ({"total.idxmax()": "0"}, "Rank 0 waits longest because it is ready first"),
        "the rank with the largest part": ({"total.idxmax()": "own.max().idxmax()"}, "the step ends when rank"),
        "waiting is the cause": ({PART: "profile[0].idxmax()"}, "waiting is no cause"),
        "the largest part anywhere": ({PART: 'profile.drop("waiting").max(axis=1).idxmax()'}, "costs no time"),
        "the largest part of the mean":
            ({PART: 'profile.drop("waiting").mean(axis=1).idxmax()'}, "What other ranks do while they wait"),
        "the largest part is cured": ({CHANGE: f"{CURES}[{PART}]"}, "hides at most"),
        "prefetching removes the input": ({AFTER_INPUT: '(total - own.loc["input"]).max() + moving'}, "hides at most"),
        "the slowest rank alone":
            ({"own, moving = profile.drop(['waiting', 'moving']), profile.loc['moving'].max()":
              "rank = profile.loc['waiting'].idxmin(); own = profile[[rank]].drop(['waiting', 'moving']); "
              "moving = profile.loc['moving'].max()"}, "is the slowest, with"),
        "halves are removed":
            ({"own.loc['network'] / 2": "own.loc['network']", "moving / 2": "0"}, "does not remove it"),
        "waiting is communication":
            ({"total.max() + moving / 2": "total.max() + moving / 2 - profile.loc['waiting'].max() / 2"},
             "the waiting is for the own work of another rank"),
        "the mean of the ranks": (diagnose_the_mean, "hides the slowest one"),
        "always prefetching": ({CHANGE: "'prefetch'"}, "after 'prefetch' a step takes"),
        "the part as the change": ({CHANGE: "'network'"}, "the change should be one of"),
        "a part of no profile": ({PART: "'disk'"}, "the part should be one of"),
        "a rank that is not there":
            ({f"return rank, {PART}, {CHANGE}": f"return 7, {PART}, {CHANGE}"}, "there is no rank 7"),
        "only the change": ({f"return rank, {PART}, {CHANGE}": f"return {CHANGE}"}, "rank, part, change"),
        "the profile is changed":
            ({"total = own.sum()": "total = own.sum(); profile.loc['moving'] = 0"}, "work on a copy"),
    },
    "steps_per_epoch": {
        "small batches forgotten": ({"math.ceil(share / batch)": "share // batch"}, "smaller batch"),
        "one batch too many": ({"math.ceil(share / batch)": "share // batch + 1"}, "no further batch"),
        "all shares alike": ({SHARE: "examples // ranks"}, "the first ranks have one more"),
        "the most, not the least": ({"min(shares)": "max(shares)"}, "has not so many"),
        "the last counts as full": ({"min(shares) // batch": "min(batches)"}, "count full batches"),
        "left on one rank": ({"ranks * batch * steps": "batch * steps"}, "on every rank"),
        "what is used": ({"examples - ranks * batch * steps": "ranks * batch * steps"}, "that are used"),
        "the mean share": ({"min(shares) // batch": "examples // ranks // batch + 1"}, "`steps`"),
        "only the steps": ({ALL: "steps"}, "batches, steps, left"),
    },
}  # fmt: skip

RIGHT = {
    "covered": {"piece by piece": covered_by_pieces, "by events": covered_by_events},
    "lateness": {"by a pivot table": lateness_by_pivot, "by loops, as a list": lateness_by_loops},
    "diagnose": {"by trying each change": diagnose_by_trying},
    "steps_per_epoch": {"by dealing": steps_by_dealing},
}
