"""Checks of notebook 2c: what a timeline and a profile tell, and equal numbers of steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from course_lib.notebook.answers import (
    case,
    compare_with_values,
    number,
    plain,
    returned,
    same,
    several,
    short,
    unchanged,
    whole,
)
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab2_horovod.lessons import step_parts

# covered


def _covered(answer: Callable, start: Sequence[float], seconds: Sequence[float]) -> float:
    start, seconds = np.array(start), np.array(seconds)
    with unchanged(start, seconds):
        return number(answer(start, seconds))


def _bars(
    start: Sequence[float], seconds: Sequence[float], expected: float, end_before: float | None = None
) -> Callable:
    """A judge by these bars. `end_before`: what comes out with the end of the bar before, not the latest end so far."""
    ends = np.add(start, seconds)
    in_order = sorted(zip(start, seconds))

    def judge(answer: Callable) -> None:
        with case("bars " + ", ".join(f"{a:g} to {b:g}" for a, b in zip(start, ends))):
            got = _covered(answer, start, seconds)
            mistakes = {
                "That is milliseconds; the table has seconds.": 1000 * expected,
                "Where bars overlap, the time counts twice: count only what no earlier bar has covered.": sum(seconds),
                "The gaps, in which there is no bar, are counted too.": max(ends) - min(start),
                "Remember the latest end so far: a bar may end later than the next one.": end_before,
                "A bar within another one takes time away; it should add nothing.": _with_negative_parts(in_order),
            }
            if not same(got, expected) and same(got, expected, rtol=0.3):
                mistakes[_TOO_COARSE] = got
            if not same(got, expected) and same(_covered(answer, *zip(*in_order)), expected):
                mistakes["It is right only if they come in order of their starts: sort them first."] = got
            compare_with_values(got, expected, "the number of seconds", mistakes)

    return judge


_TOO_COARSE = (
    "It is nearly right: a grid of instants is too coarse. Bars last from microseconds to seconds, so compute with "
    "their ends."
)
# Starts and lengths in seconds, as in a timeline: some bars are shorter than any grid that is practical.
_FINE = [0.0, 0.0000412, 0.0034417, 0.0034909], [0.0023178, 0.0000137, 0.0000561, 0.0000123]


def _with_negative_parts(bars: Sequence[tuple[float, float]]) -> float:
    """What comes out where a bar that ends before an earlier one adds a negative number."""
    total, latest = 0.0, -np.inf
    for start, seconds in bars:
        total += start + seconds - max(start, latest)
        latest = max(latest, start + seconds)
    return total


# lateness


def _arrivals() -> pd.DataFrame:
    """Three ranks, two tensors, three steps, in a shuffled order. Rank 2 comes late, rank 1 first."""
    random = np.random.default_rng(3)
    rows = []
    for step in range(3):
        for place, tensor in enumerate(("kernel", "bias")):
            for rank, late in enumerate((0.25, 0.0, 1.0)):
                rows.append((tensor, step, rank, 10 * step + place + late + 0.5 * rank * (step == 2)))
    table = pd.DataFrame(rows, columns=["tensor", "step", "rank", "start"])
    return table.iloc[random.permutation(len(table))].reset_index(drop=True)


def _by_rank(result: Any) -> list[float]:
    returned(result)
    with contextlib.suppress(Exception):  # whatever an array, a table or a dict raises where there is no such entry
        return [number(result[rank], finite=False) for rank in range(3)]
    raise Wrong(f"result[rank] should be the mean lateness of that rank, but the result is {short(result)}.")


def _after_first(table: pd.DataFrame, keys: list[str], how: str = "mean") -> list[float]:
    first = table.groupby(keys)["start"].transform("min") if keys else table["start"].min()
    return list((table["start"] - first).groupby(table["rank"]).agg(how))


def _mean_lateness(answer: Callable) -> None:
    table = _arrivals()
    got, expected = _by_rank(answer(table.copy())), [1 / 6, 1 / 12, 1.25]
    by_rank = table.pivot(index=["tensor", "step"], columns="rank", values="start")
    mistakes = {
        "That is milliseconds; return seconds.": [1000 * seconds for seconds in expected],
        "The sign is wrong: a rank that comes later has the larger number.": [-seconds for seconds in expected],
        "It counts from the very first arrival of all: group by tensor and step.": _after_first(table, []),
        "It counts from the step's first arrival of any tensor. Group by tensor too.": _after_first(table, ["step"]),
        "It counts from the tensor's first arrival in any step: group by step too.": _after_first(table, ["tensor"]),
        "It compares each rank with itself: the first of all ranks is what counts.": _after_first(table, ["rank"]),
        "That is the sum over tensors and steps; return the mean.": _after_first(table, ["tensor", "step"], "sum"),
        "That is the worst case; return the mean.": _after_first(table, ["tensor", "step"], "max"),
        "That is the median; return the mean.": _after_first(table, ["tensor", "step"], "median"),
        "It counts from the mean arrival: count from the first.": list(
            by_rank.sub(by_rank.mean(axis=1), axis=0).mean()
        ),
        "It counts from the last arrival: count from the first.": list(by_rank.sub(by_rank.max(axis=1), axis=0).mean()),
        "It counts back from the last arrival: count from the first.": list(
            -by_rank.sub(by_rank.max(axis=1), axis=0).mean()
        ),
        "It counts from rank 0; the first may be another rank.": list(by_rank.sub(by_rank[0], axis=0).mean()),
        "It compares the means of the ranks: take the first of each tensor in each step before you average.": list(
            by_rank.mean() - by_rank.mean().min()
        ),
    }
    compare_with_values(got, expected, "the lateness of three ranks", mistakes)


def _keeps_table(answer: Callable) -> None:
    table = _arrivals()
    given = table.copy()
    _by_rank(answer(given))
    if not given.equals(table):
        raise Wrong("it changes the table that it is given: add no columns to it, work on a copy.")


# diagnose

# Milliseconds of a step by rank: (network, metrics, input, callbacks, Horovod, others, Keras), and of the moving bytes.
_OWN = ("network", "metrics", "input", "callbacks", "Horovod", "others", "Keras")
_RUNS = (
    (((8, 1, 1, 0, 1, 0, 3), (6, 0, 33, 1, 0, 0, 3)), 26),
    (((19, 2, 2, 29, 1, 0, 2), (36, 3, 1, 0, 1, 2, 7), (18, 3, 1, 0, 2, 1, 5)), 2),
    (((32, 1, 2, 1, 0, 0, 5), (15, 3, 2, 14, 2, 2, 7)), 26),
    (((26, 0, 5, 0, 2, 1, 4), (35, 3, 1, 29, 1, 1, 7), (30, 2, 13, 1, 0, 2, 5)), 2),
    (((39, 0, 1, 1, 2, 2, 2), (15, 0, 1, 0, 1, 0, 3), (22, 1, 33, 0, 2, 1, 7)), 3),
)


def run_profile(own: Sequence[Sequence[float]], moving: float) -> pd.DataFrame:
    """The profile of a run, as from `step_parts.milliseconds`: the own work of each rank, and the moving bytes."""
    table = pd.DataFrame(dict(enumerate(own)), index=list(_OWN), dtype=float)
    work = table.sum()
    table.loc["waiting"] = work.max() - work
    table.loc["moving"] = float(moving)
    return table.loc[list(step_parts.PARTS)].rename_axis(columns="rank")


def _each_run(judge: Callable) -> Callable:
    """A judge by _RUNS; `judge` gets what is returned, the profile and the rank that limits it."""

    def judge_all(answer: Callable) -> None:
        for own, moving in _RUNS:
            profile = run_profile(own, moving)
            own_work = profile.drop(step_parts.SHARED).sum()
            parts = ", ".join(
                f"{part} {'/'.join(f'{one:g}' for one in values)}"
                for part, values in profile.iterrows()
                if values.max() > _SMALL
            )
            with case(f"{len(own)} ranks, parts above {_SMALL} ms in rank order: {parts}"):
                given = profile.copy()
                result = several(answer(given), "rank", "part", "change")
                if not given.equals(profile):
                    raise Wrong("it changes the profile that it is given: work on a copy.")
                judge(result, profile, int(own_work.idxmax()))

    return judge_all


_SMALL = 4  # ms


def _limiting_rank(result: tuple, profile: pd.DataFrame, limit: int) -> None:
    rank = whole(result[0], "as the rank, it")
    if rank == limit:
        return
    work = profile.drop(step_parts.SHARED).sum()
    if rank not in work.index:
        raise Wrong(f"there is no rank {rank}.")
    told = f"rank {rank} has {work[rank]:g} ms of own work and rank {limit} has {work[limit]:g} ms"
    if rank == profile.loc["waiting"].idxmax():
        raise Wrong(f"{told}. Rank {rank} waits longest because it is ready first: the others wait for rank {limit}.")
    raise Wrong(f"{told}: the step ends when rank {limit} is ready.")


def _largest_part(result: tuple, profile: pd.DataFrame, limit: int) -> None:
    part, column = result[1], profile[limit].drop("waiting")
    if not isinstance(part, str) or part not in step_parts.PARTS:
        raise Wrong(f"the part should be one of {', '.join(step_parts.PARTS)}; it is {short(part)}.")
    if part == "waiting":
        raise Wrong("waiting is no cause: name what the slowest rank does while the others wait for it.")
    if part != column.idxmax():
        told = f"on rank {limit}, which limits the run, {column.idxmax()} takes {column.max():g} ms and {part} "
        raise Wrong(f"{told}{column[part]:g} ms. What other ranks do while they wait costs no time.")


def _best_change(result: tuple, profile: pd.DataFrame, limit: int) -> None:
    change = result[2]
    if not isinstance(change, str) or change not in step_parts.CHANGES:
        raise Wrong(f"the change should be one of {', '.join(step_parts.CHANGES)}; it is {short(change)}.")
    steps = {one: step_parts.after(profile, one) for one in step_parts.CHANGES}
    best = min(steps, key=steps.get)
    if change != best:
        why = " ".join([sentence for sentence, wrong in _mistaken(profile, limit, steps) if wrong == change][:2])
        raise Wrong(f"after {change!r} a step takes {steps[change]:g} ms, after {best!r} {steps[best]:g} ms. {why}")


def _mistaken(profile: pd.DataFrame, limit: int, steps: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """(sentence, the change that is chosen by this mistake)."""

    def shortest(lengths: Mapping[str, float]) -> str:
        return min(lengths, key=lengths.get)

    own, moving = profile.drop(step_parts.SHARED), profile.loc["moving"].max()
    without_input = {**steps, "prefetch": own.drop("input").sum().max() + moving}
    yield (
        "Prefetching does not shorten the reading: it hides at most the rest of the rank's own work.",
        shortest(without_input),
    )
    alone = {change: step_parts.after(profile[[limit]], change) for change in steps}
    chosen = shortest(alone)
    work = own.sum().drop(limit)
    yield f"After {chosen!r}, rank {work.idxmax()} is the slowest, with {work.max():g} ms of own work.", chosen
    removed = {**steps, "bfloat16": own.drop("network").sum().max() + moving, "fp16": own.sum().max()}
    yield "It halves its part and does not remove it.", shortest(removed)
    waited = {**steps, "fp16": steps["fp16"] - profile.loc["waiting"].max() / 2}
    yield "Compression halves the moving; the waiting is for the own work of another rank.", shortest(waited)
    mean = profile.mean(axis=1).to_frame()
    averaged = {change: step_parts.after(mean, change) for change in steps}
    yield "The mean of the ranks hides the slowest one, which all others wait for.", shortest(averaged)
    first = {change: step_parts.after(profile[[0]], change) for change in steps}
    yield "Rank 0 is not the one that limits this run.", shortest(first)


# steps_per_epoch

# examples, ranks, batch
EPOCH_CASES = ((100, 3, 10), (1279, 2, 32), (2561, 2, 64), (60000, 4, 64), (7, 4, 2), (5, 2, 8))


def _each_epoch(judge: Callable) -> Callable:
    """A judge by EPOCH_CASES; `judge` gets what is returned, the numbers of examples, ranks, batch, and the shares."""

    def judge_all(answer: Callable) -> None:
        for examples, ranks, batch in EPOCH_CASES:
            with case(f"{examples:,} examples, {ranks} ranks, batches of {batch}"):
                result = several(answer(examples, ranks, batch), "batches", "steps", "left")
                judge(result, examples, ranks, batch, [len(range(rank, examples, ranks)) for rank in range(ranks)])

    return judge_all


def _batches(result: tuple, examples: int, ranks: int, batch: int, shares: list[int]) -> None:
    batches = plain(result[0])
    if batches is None or batches.shape != (ranks,):
        raise Wrong(f"`batches` should have a number for each rank; it is {short(result[0])}.")
    mistakes = {
        "The examples don't divide: the first ranks have one more.": [-(-(examples // ranks) // batch)] * ranks,
        "The last, smaller batch of a rank counts too.": [share // batch for share in shares],
        "A part of a batch is a batch: round up.": [share / batch for share in shares],
        "Where the batch size divides, there is no further batch.": [share // batch + 1 for share in shares],
        "These are examples; divide by the batch size.": shares,
        "A rank has its share of the examples only.": [-(-examples // batch)] * ranks,
    }
    compare_with_values(list(batches), [-(-share // batch) for share in shares], "`batches`", mistakes)


def _steps(result: tuple, examples: int, ranks: int, batch: int, shares: list[int]) -> None:
    steps = plain(result[1])
    if steps is None or steps.ndim:
        raise Wrong(f"`steps` is one number, the same for all ranks; it is {short(result[1])}.")
    mistakes = {
        "A rank with fewer examples has not so many.": max(shares) // batch,
        "The last of them is smaller on some rank; count full batches.": -(-min(shares) // batch),
        "Some rank has not so many: the others would wait for it.": -(-max(shares) // batch),
        "A rank has its share of the examples only.": examples // batch,
    }
    compare_with_values(steps, min(shares) // batch, "`steps`", mistakes)


def _left(result: tuple, examples: int, ranks: int, batch: int, shares: list[int]) -> None:
    steps = min(shares) // batch
    mistakes = {
        "Each step uses a batch on every rank.": examples - steps * batch,
        "These are the examples that are used.": steps * ranks * batch,
        "That is what does not divide among the ranks; the last batches are left out too.": examples % ranks,
        "That is left on one rank; add up all ranks.": min(shares) - steps * batch,
    }
    compare_with_values(result[2], examples - steps * ranks * batch, "`left`", mistakes)


EXERCISES = Exercises(
    Exercise(
        "covered",
        Criterion("in-a-row", "Bars one after the other", 0.2, _bars([0.0, 2.0, 5.0], [1.0, 2.0, 0.5], 3.5)),
        Criterion("overlap", "Bars that overlap", 0.2, _bars([0.0, 1.0, 7.0], [3.0, 3.0, 1.0], 5.0)),
        Criterion("nested", "A bar within another", 0.2, _bars([0.0, 1.0, 4.0], [5.0, 1.0, 2.0], 6.0, end_before=7.0)),
        Criterion("any-order", "In any order", 0.2, _bars([7.0, 0.0, 1.0], [1.0, 3.0, 3.0], 5.0)),
        Criterion("fine", "Bars of microseconds", 0.2, _bars(*_FINE, 0.0023178 + 0.0000615)),
    ),
    Exercise(
        "lateness",
        Criterion("mean-lateness", "Mean lateness of each rank", 0.75, _mean_lateness),
        Criterion("table-kept", "The table stays as it is", 0.25, _keeps_table),
    ),
    Exercise(
        "diagnose",
        Criterion("rank", "The rank that limits the run", 0.25, _each_run(_limiting_rank)),
        Criterion("part", "The largest part of its step", 0.25, _each_run(_largest_part)),
        Criterion("change", "The change that shortens the step most", 0.5, _each_run(_best_change)),
    ),
    Exercise(
        "steps_per_epoch",
        Criterion("batches", "Batches of each rank", 0.4, _each_epoch(_batches)),
        Criterion("steps", "Steps that all can take", 0.4, _each_epoch(_steps)),
        Criterion("left", "Examples left out", 0.2, _each_epoch(_left)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
