"""Checks of notebook 2c: what a timeline tells, equal numbers of steps, and how training scales."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from course_lib.notebook.answers import (
    array,
    case,
    compare,
    number,
    plain,
    returned,
    same,
    several,
    short,
    shown,
    unchanged,
)
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong


def _compare(got: Any, expected: Any, told: str, mistakes: Mapping[str, Any], **tolerances: float) -> None:
    """As `compare`, with both values beside the mistake's name."""
    values = f"{told} should be {shown(expected)}; it is {shown(got)}."
    compare(got, expected, told, {f"{values} {name}": wrong for name, wrong in mistakes.items()}, **tolerances)


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
            if not same(got, expected) and same(_covered(answer, *zip(*in_order)), expected):
                mistakes["It is right only if they come in order of their starts: sort them first."] = got
            _compare(got, expected, "the number of seconds", mistakes)

    return judge


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
        "The sign is wrong: who comes later has the larger number.": [-seconds for seconds in expected],
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
        "It counts from rank 0; the first may be another rank.": list(by_rank.sub(by_rank[0], axis=0).mean()),
        "It compares the means of the ranks: take the first of each tensor in each step before you average.": list(
            by_rank.mean() - by_rank.mean().min()
        ),
    }
    _compare(got, expected, "the lateness of three ranks", mistakes)


def _keeps_table(answer: Callable) -> None:
    table = _arrivals()
    given = table.copy()
    got = _by_rank(answer(given))
    if not given.equals(table):
        raise Wrong("it changes the table that it is given: add no columns to it, work on a copy.")
    if min(got) < 0:
        raise Wrong("nobody can come before the first: no lateness is below 0.")


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
    _compare(list(batches), [-(-share // batch) for share in shares], "`batches`", mistakes)


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
    _compare(steps, min(shares) // batch, "`steps`", mistakes)


def _left(result: tuple, examples: int, ranks: int, batch: int, shares: list[int]) -> None:
    steps = min(shares) // batch
    mistakes = {
        "Each step uses a batch on every rank.": examples - steps * batch,
        "These are the examples that are used.": steps * ranks * batch,
        "That is what does not divide among the ranks; the last batches are left out too.": examples % ranks,
        "That is left on one rank; add up all ranks.": min(shares) - steps * batch,
    }
    _compare(result[2], examples - steps * ranks * batch, "`left`", mistakes)


# pays_below

# (seconds, bytes) of a step without and with compression
STEPS = (((0.020, 600_000), (0.024, 300_000)), ((0.1, 5_000_000), (0.150, 1_000_000)))
NEVER_SLOWER = (((0.020, 600_000), (0.020, 300_000)), ((0.020, 600_000), (0.018, 300_000)))


def _break_even(answer: Callable) -> None:
    for uncompressed, compressed in STEPS:
        slower, saved = compressed[0] - uncompressed[0], uncompressed[1] - compressed[1]
        expected = saved / slower
        mistakes = {
            "Upside down: that is the seconds for a byte.": slower / saved,
            "That is in bits a second; asked are bytes.": 8 * expected,
            "These are all bytes of the plain step. It is those saved that must make up for the lost time.": (
                uncompressed[1] / slower
            ),
            "These are the bytes that still travel. It is those saved that must make up for the lost time.": (
                compressed[1] / slower
            ),
            "The sign is wrong: compression takes longer and sends less.": -expected,
        }
        with case(f"(seconds, bytes) plain {uncompressed}, compressed {compressed}"):
            _compare(number(answer(uncompressed, compressed)), expected, "the bandwidth", mistakes)


def _never_slower(answer: Callable) -> None:
    for uncompressed, compressed in NEVER_SLOWER:
        with case(f"(seconds, bytes) plain {uncompressed}, compressed {compressed}"):
            try:
                got = number(answer(uncompressed, compressed), finite=False)
            except ZeroDivisionError:
                raise Wrong("both take equally long without a cable, and you divide by 0.") from None
            if got != np.inf:
                raise Wrong(
                    f"compression costs no time here and saves bytes: it pays on every link, so inf; it is {got:g}."
                )


# tuned

GIVEN = {"fusion_mb": 0, "cycle_ms": 20, "compression": "none"}
THRESHOLDS_MB, CYCLES_MS = (0, 2**-4, 2**-2, 128), (1, 5, 20, 50)  # those of recorded/tuning.csv
BEST = {"fusion_mb": 2**-2, "cycle_ms": 5, "compression": "none"}  # where bytes cost nothing
SLOW, OTHERS = 100, (300, 2_000, 10_000)  # Mbit/s
# Medians of recorded/tuning.csv: two ranks, one machine, Wide ResNet of depth 16.
FUSED_LATER = ((2**-2, 0.0), (2**-4, 0.0120), (0, 0.0449))  # from so many MiB: seconds more
Step = tuple[float, float]  # seconds where bytes cost nothing, bytes
RECORDED: tuple[Step, Step] = ((0.0168, 4 * 172_218), (0.0208, 2 * 172_218))  # without and with fp16
# Whose steps differ from the recorded: 25 million weights on GPUs, which convert quickly; a slow processor.
ELSEWHERE: tuple[tuple[tuple[Step, Step], int], ...] = (
    (((0.100, 100e6), (0.102, 50e6)), 10_000),
    (((0.050, 700e3), (0.070, 350e3)), 300),
)


def expected_step(choice: Mapping[str, Any], megabits: float, machine: tuple[Step, Step] = RECORDED) -> float:
    """The seconds of a step by the recorded table, with the time of its bytes on a link of so many Mbit/s."""
    seconds, size = machine[choice["compression"] == "fp16"]
    computed = seconds + next(later for least, later in FUSED_LATER if choice["fusion_mb"] >= least)
    return max(computed, 1e-3 * choice["cycle_ms"]) + size * 8e-6 / megabits


def _compression(megabits: float, machine: tuple[Step, Step]) -> str:
    return min(("none", "fp16"), key=lambda name: expected_step({**BEST, "compression": name}, megabits, machine))


def wrong_knob(choice: Mapping[str, Any], megabits: float, machine: tuple[Step, Step] = RECORDED) -> str:
    """A sentence on the knob that costs this choice the most time; "" where none does."""
    better = {**BEST, "compression": _compression(megabits, machine)}
    gained = {
        knob: expected_step(choice, megabits, machine) - expected_step({**choice, knob: value}, megabits, machine)
        for knob, value in better.items()
    }
    knob = max(gained, key=gained.get)
    if gained[knob] < 1e-9:
        return ""
    return {
        "fusion_mb": "The fusion threshold is too small: 41 gradients travel in many messages, and each takes time.",
        "cycle_ms": "The cycle is too long: a gradient that is ready waits for its end.",
        "compression": "There the bytes take longer than converting them, and compression would halve them."
        if better["compression"] == "fp16"
        else "There converting the numbers takes longer than the bytes that it saves: compression loses.",
    }[knob]


def _choice(answer: Callable, megabits: float, machine: tuple[Step, Step] = RECORDED) -> dict[str, Any]:
    choice = returned(answer(megabits, *machine))
    if not isinstance(choice, dict) or set(choice) != set(GIVEN):
        raise Wrong(f"it returns {short(choice)}; it should be a dict with the keys {', '.join(map(repr, GIVEN))}.")
    choice = dict(choice)
    for knob, recorded in (("fusion_mb", THRESHOLDS_MB), ("cycle_ms", CYCLES_MS)):
        choice[knob] = number(choice[knob], f"{knob!r}:")
        if not any(same(choice[knob], value) for value in recorded):
            values = ", ".join(f"{value:g}" for value in recorded)
            raise Wrong(f"{knob!r} should be one of the recorded values {values}; it is {shown(choice[knob])}.")
    if not isinstance(choice["compression"], str) or choice["compression"] not in ("none", "fp16"):
        raise Wrong(f"'compression' should be 'none' or 'fp16'; it is {short(choice['compression'])}.")
    return choice


def _slow_link(answer: Callable) -> str:
    choice = _choice(answer, SLOW)
    step, given = (1e3 * expected_step(knobs, SLOW) for knobs in (choice, GIVEN))
    told = f"at {SLOW} Mbit/s a step should take {step:.0f} ms by the recorded table, the given one {given:.0f} ms"
    if step > given / 2:
        raise Wrong(f"{told}; asked is half of that. {wrong_knob(choice, SLOW)}")
    return f"Right: {told}."


def _elsewhere(answer: Callable) -> None:
    for machine, megabits in (*((RECORDED, megabits) for megabits in OTHERS), *ELSEWHERE):
        choice = _choice(answer, megabits, machine)
        step = expected_step(choice, megabits, machine)
        best = expected_step({**BEST, "compression": _compression(megabits, machine)}, megabits, machine)
        if step > 1.1 * best:
            (without, _), (compressed, _) = machine
            raise Wrong(
                f"at {megabits:,} Mbit/s, where a step computes {1e3 * without:.0f} ms without compression and "
                f"{1e3 * compressed:.0f} ms with it, yours takes {1e3 * step:.0f} ms and the best {1e3 * best:.0f} ms. "
                f"{wrong_knob(choice, megabits, machine)}"
            )


def _nothing_wasted(answer: Callable) -> None:
    choice = _choice(answer, SLOW)
    if choice["fusion_mb"] > BEST["fusion_mb"]:
        raise Wrong(
            f"it takes {choice['fusion_mb']:g} MiB of a full memory; in the recorded run a smaller threshold is as "
            "fast, to within the scatter of its blocks."
        )
    if choice["cycle_ms"] < BEST["cycle_ms"]:
        raise Wrong(
            f"with a cycle of {choice['cycle_ms']:g} ms all ranks talk more often than they need: in the recorded run "
            "a longer one costs no time."
        )
    if why := wrong_knob({**choice, "compression": _compression(SLOW, RECORDED)}, SLOW):
        raise Wrong(f"it saves in the wrong place. {why}")


def halved(share: float, choice: Mapping[str, Any], megabits: float = SLOW) -> str:
    """A sentence on a measured step, as a share of the given one's."""
    if share <= 0.5:
        return f"Halved, and more: {share:.2f} of the given step."
    why = wrong_knob(choice, megabits) or "By the recorded table it should be: measure again when nothing else runs."
    return f"Not halved: {share:.2f} of the given step. {why}"


# efficiency

RANKS = np.array([1, 2, 4, 8])
STRONG = np.array([0.8, 0.5, 0.4, 0.4])  # seconds of a step
WEAK = np.array([0.8, 1.0, 1.6, 2.0])


def _efficiency(answer: Callable, weak: bool, order: Sequence[int]) -> None:
    ranks, seconds = RANKS[list(order)], (WEAK if weak else STRONG)[list(order)]
    with case(f"{'weak' if weak else 'strong'} scaling, ranks {_few(ranks)}, seconds {_few(seconds)}"):
        with unchanged(ranks, seconds):
            got = array(answer(ranks, seconds, weak), (4,))
        strong = 0.8 / seconds / ranks
        expected = strong * ranks if weak else strong
        mistakes = {
            "All do N times the work here: with equal seconds the efficiency is 1. Don't divide by N.": strong,
            "That is the speed-up. Efficiency is the speed-up divided by N.": expected * ranks,
            "Upside down: T(1) belongs on top.": 1 / expected,
            "Divide by N, don't multiply.": expected * ranks**2,
            "As a fraction, not in per cent.": 100 * expected,
            "Compare with the entry of one rank, wherever it stands, not with the first.": expected * seconds[0] / 0.8,
        }
        _compare(list(got), list(expected), "the efficiency", {name: list(wrong) for name, wrong in mistakes.items()})


def _few(values: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values) + "]"


def _any_order(answer: Callable) -> None:
    _efficiency(answer, False, (2, 0, 3, 1))
    _efficiency(answer, True, (3, 1, 0, 2))


# serial_fraction

COUNTS = np.array([1, 2, 4, 8, 16])


def _amdahl(serial: float, ranks: np.ndarray) -> np.ndarray:
    return 1 / (serial + (1 - serial) / ranks)


def _fitted(answer: Callable, ranks: np.ndarray, speedup: np.ndarray) -> float:
    ranks, speedup = ranks.copy(), speedup.copy()
    with unchanged(ranks, speedup):
        return number(answer(ranks, speedup))


def _exact(answer: Callable) -> None:
    for serial, ranks in ((0.1, COUNTS), (0.02, np.array([1, 3, 5])), (0.3, np.array([2])), (0.0, COUNTS)):
        speedup = _amdahl(serial, ranks)
        a, b = 1 - 1 / ranks, 1 / speedup - 1 / ranks
        mistakes = {
            "That is the parallel share, 1 − s.": 1 - serial,
            "The law is linear in s for 1/S, not for S.": a @ (speedup - 1 / ranks) / (a @ a),
            "Upside down: divide by the sum of the squares of what s is multiplied by.": a @ b / (b @ b)
            if b.any()
            else None,
            "s = 0 gives 1/S = 1/N, not 0: a 1/N is missing on the side without s.": a @ (1 / speedup) / (a @ a),
            "The quotient is missing: the derivative of the sum of squares is 0 where s = Σab / Σa².": a @ b,
        }
        with case(f"speed-ups {_few(speedup)} on {_few(ranks)} ranks follow the law"):
            _compare(_fitted(answer, ranks, speedup), serial, "s", mistakes, atol=1e-9)


def _least_squares(answer: Callable) -> None:
    speedup = _amdahl(0.05, COUNTS) * np.array([1.0, 0.9, 1.1, 0.95, 0.8])
    a, b = 1 - 1 / COUNTS, 1 / speedup - 1 / COUNTS
    each = b[1:] / a[1:]
    tried = np.linspace(0, 0.3, 300_001)
    in_speedup = tried[((_amdahl(tried[:, None], COUNTS) - speedup) ** 2).sum(axis=1).argmin()]
    mistakes = {
        "That fits S; asked are least squares in 1/S, where s stands in a straight line.": in_speedup,
        "That is the mean of each point's own s; least squares gives points with more ranks more weight.": each.mean(),
        "That is the last point's own s: use all points.": each[-1],
        "That is the second point's own s: use all points.": each[0],
        "That is the median of each point's own s; asked are least squares.": np.median(each),
        "A line with a free intercept; the law's line goes through 0.": np.polyfit(a, b, 1)[0],
        "A line with a free slope; the law has one number only, s.": np.polyfit(1 / COUNTS, 1 / speedup, 1)[1],
    }
    with case(f"with measuring errors, ranks {_few(COUNTS)}, speed-ups {_few(speedup)}"):
        _compare(_fitted(answer, COUNTS, speedup), a @ b / (a @ a), "s", mistakes, rtol=1e-4)


EXERCISES = Exercises(
    Exercise(
        "covered",
        Criterion("in-a-row", "Bars one after the other", 0.25, _bars([0.0, 2.0, 5.0], [1.0, 2.0, 0.5], 3.5)),
        Criterion("overlap", "Bars that overlap", 0.25, _bars([0.0, 1.0, 7.0], [3.0, 3.0, 1.0], 5.0)),
        Criterion("nested", "A bar within another", 0.25, _bars([0.0, 1.0, 4.0], [5.0, 1.0, 2.0], 6.0, end_before=7.0)),
        Criterion("any-order", "In any order", 0.25, _bars([7.0, 0.0, 1.0], [1.0, 3.0, 3.0], 5.0)),
    ),
    Exercise(
        "lateness",
        Criterion("mean-lateness", "Mean lateness of each rank", 0.75, _mean_lateness),
        Criterion("table-kept", "The table stays as it is", 0.25, _keeps_table),
    ),
    Exercise(
        "steps_per_epoch",
        Criterion("batches", "Batches of each rank", 0.4, _each_epoch(_batches)),
        Criterion("steps", "Steps that all can take", 0.4, _each_epoch(_steps)),
        Criterion("left", "Examples left out", 0.2, _each_epoch(_left)),
    ),
    Exercise(
        "pays_below",
        Criterion("break-even", "The bandwidth at which both take equally long", 0.7, _break_even),
        Criterion("never-slower", "Where compression costs no time", 0.3, _never_slower),
    ),
    Exercise(
        "tuned",
        Criterion("slow-link", "A slow link: half of the given step", 0.3, _slow_link),
        Criterion("elsewhere", "Other links and machines: as good as the best", 0.4, _elsewhere),
        Criterion("nothing-wasted", "No memory and no talk without need", 0.3, _nothing_wasted),
    ),
    Exercise(
        "efficiency",
        Criterion("strong", "Strong scaling", 0.4, lambda answer: _efficiency(answer, False, range(4))),
        Criterion("weak", "Weak scaling", 0.4, lambda answer: _efficiency(answer, True, range(4))),
        Criterion("any-order", "Compared with one rank, wherever it stands", 0.2, _any_order),
    ),
    Exercise(
        "serial_fraction",
        Criterion("exact", "Speed-ups that follow the law", 0.6, _exact),
        Criterion("least-squares", "Least squares where they don't quite", 0.4, _least_squares),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
