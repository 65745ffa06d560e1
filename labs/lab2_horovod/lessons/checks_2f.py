"""Checks of notebook 2f: settings of Horovod for a link, and how training scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.notebook.answers import (
    array,
    case,
    compare_with_values,
    number,
    returned,
    same,
    short,
    shown,
    unchanged,
)
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

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
            compare_with_values(number(answer(uncompressed, compressed)), expected, "the bandwidth", mistakes)


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
ENOUGH_MB = 2**-2  # the smallest threshold that costs no time
SLOW, OTHERS = 100, (300, 2_000, 10_000)  # Mbit/s
# Medians of recorded/tuning.csv: two ranks, one machine, Wide ResNet of depth 16.
FUSED_LATER = ((2**-2, 0.0), (2**-4, 0.0120), (0, 0.0449))  # from so many MiB: seconds more
Step = tuple[float, float]  # seconds where bytes cost nothing, bytes
RECORDED: tuple[Step, Step] = ((0.0168, 4 * 172_218), (0.0208, 2 * 172_218))  # without and with fp16
FREE_CYCLE_MS = 5  # the longest recorded cycle that costs no time, in the recorded step without fp16
# Steps of other machines and links: 25 million weights on GPUs, which convert quickly; a slow processor; a fast one;
# long steps.
ELSEWHERE: tuple[tuple[tuple[Step, Step], int], ...] = (
    (((0.100, 100e6), (0.102, 50e6)), 10_000),
    (((0.050, 700e3), (0.072, 350e3)), 300),
    (((0.050, 700e3), (0.072, 350e3)), 50),
    (((0.006, 200e3), (0.009, 100e3)), 1_000),
    (((0.190, 50e6), (0.230, 25e6)), 10_000),
)
MACHINES = tuple((RECORDED, megabits) for megabits in (SLOW, *OTHERS)) + ELSEWHERE


def expected_step(choice: Mapping[str, Any], megabits: float, machine: tuple[Step, Step] = RECORDED) -> float:
    """The seconds of a step by the recorded table, with the time of its bytes on a link of so many Mbit/s."""
    seconds, size = machine[choice["compression"] == "fp16"]
    computed = seconds + next(later for least, later in FUSED_LATER if choice["fusion_mb"] >= least)
    return max(computed, 1e-3 * choice["cycle_ms"]) + size * 8e-6 / megabits


def longest_cycle(seconds: float) -> int:
    """The longest of CYCLES_MS whose share of a step of so many seconds is known to cost no time."""
    (recorded, _), _ = RECORDED
    return max(cycle for cycle in CYCLES_MS if cycle / seconds <= FREE_CYCLE_MS / recorded)


def best(megabits: float, machine: tuple[Step, Step] = RECORDED) -> dict[str, Any]:
    """The settings that the exercise asks for."""

    def step(name: str) -> float:
        seconds, size = machine[name == "fp16"]
        return seconds + size * 8e-6 / megabits

    compression = min(("none", "fp16"), key=step)
    cycle = longest_cycle(machine[compression == "fp16"][0])
    return {"fusion_mb": ENOUGH_MB, "cycle_ms": cycle, "compression": compression}


def wrong_knob(choice: Mapping[str, Any], megabits: float, machine: tuple[Step, Step] = RECORDED) -> str:
    """A sentence on the setting that costs this choice the most time; "" where none does."""
    better = best(megabits, machine)
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


def _told(megabits: float, machine: tuple[Step, Step]) -> str:
    (without, _), (compressed, _) = machine
    steps = f"t is {1e3 * without:g} ms without compression and {1e3 * compressed:g} ms with it"
    return f"at {megabits:,} Mbit/s, where {steps}"


def _compression(answer: Callable) -> None:
    for machine, megabits in MACHINES:
        choice, asked = _choice(answer, megabits, machine), best(megabits, machine)
        if choice["compression"] != asked["compression"]:
            fast, slow = (
                1e3 * (t + size * 8e-6 / megabits)
                for t, size in (machine[one["compression"] == "fp16"] for one in (asked, choice))
            )
            told = f"{_told(megabits, machine)}, your choice takes {slow:.0f} ms, bytes included, the other {fast:.0f}."
            raise Wrong(f"{told} {wrong_knob({**asked, 'compression': choice['compression']}, megabits, machine)}")


def _cycle(answer: Callable) -> None:
    for machine, megabits in MACHINES:
        choice = _choice(answer, megabits, machine)
        seconds = machine[choice["compression"] == "fp16"][0]
        cycle, longest = choice["cycle_ms"], longest_cycle(seconds)
        share, free = 1e-3 / seconds, 1e-3 * FREE_CYCLE_MS / RECORDED[0][0]
        told = f"{_told(megabits, machine)}, you choose {choice['compression']!r} and a cycle of {cycle:g} ms"
        if cycle < longest:
            raise Wrong(
                f"{told}: all ranks talk more often than they need. {longest} ms are {longest * share:.2f} of the "
                f"step, and a share of {free:.1f} (rounded) costs no time."
            )
        if cycle > longest:
            raise Wrong(
                f"{told}. The cycle is too long: it is {cycle * share:.2f} of the step, and the recorded step shows "
                f"only that {free:.2f} ({FREE_CYCLE_MS} of {1e3 * RECORDED[0][0]:g} ms) costs no time. A "
                "gradient that is ready waits for the end of its cycle."
            )


def _memory(answer: Callable) -> None:
    choice = _choice(answer, SLOW)
    if choice["fusion_mb"] > ENOUGH_MB:
        raise Wrong(
            f"it takes {choice['fusion_mb']:g} MiB of scarce memory; in the recorded run a smaller threshold is as "
            "fast, to within the scatter of its blocks."
        )
    if choice["fusion_mb"] < ENOUGH_MB:
        raise Wrong(
            f"it saves in the wrong place. {wrong_knob({**best(SLOW), 'fusion_mb': choice['fusion_mb']}, SLOW)}"
        )


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
        compare_with_values(
            list(got), list(expected), "the efficiency", {name: list(wrong) for name, wrong in mistakes.items()}
        )


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
            compare_with_values(_fitted(answer, ranks, speedup), serial, "s", mistakes, atol=1e-9)


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
        compare_with_values(_fitted(answer, COUNTS, speedup), a @ b / (a @ a), "s", mistakes, rtol=1e-4)


EXERCISES = Exercises(
    Exercise(
        "pays_below",
        Criterion("break-even", "The bandwidth at which both take equally long", 0.7, _break_even),
        Criterion("never-slower", "Where compression costs no time", 0.3, _never_slower),
    ),
    Exercise(
        "tuned",
        Criterion("slow-link", "A slow link: half of the given step", 0.3, _slow_link),
        Criterion("compression", "Compression where it pays, on other links and machines", 0.3, _compression),
        Criterion("cycle", "The longest cycle that is known to cost no time", 0.2, _cycle),
        Criterion("memory", "No more memory than needed", 0.2, _memory),
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
