"""Checks of notebook 4a: what a ring costs, the hierarchical all-reduce, where they cross, α and β fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from course_lib import simulated
from course_lib.assess.exercises import Exercise, Exercises, Part, one_number
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.simulated import DeadlockError, Outcome


def _close(a: object, b: object, rtol: float = 1e-6) -> bool:
    """Equal as far as rounding goes, however small."""
    return bool(np.allclose(a, b, rtol=rtol, atol=0))


def _named(value: float, expected: float, wrong: Iterable[tuple[float, str]], told: str) -> str:
    """Which of the wrong values it is, else what was expected."""
    for other, why in wrong:
        if _close(value, other) and not _close(other, expected):
            return f"{told}: {value:.6g} s. {why}"
    return f"{told}: it returns {value:.6g}, it should be {expected:.6g} s."


# ring_seconds


def _ring_costs(answer: Callable, cases: Iterable[tuple[int, float, float, float]]) -> str:
    for n, size, alpha, beta in cases:
        value = answer(n, size, alpha, beta)
        expected = allreduce.ring(n, size, Link(alpha, beta))
        if reason := one_number(value):
            return reason
        if _close(value, expected):
            continue
        told = f"{n} ranks, {size:g} bytes, α = {alpha:g} s, β = {beta:g} s per byte"
        half = n - 1
        wrong = (
            (half * (alpha + beta * size / n), "That is the reduce-scatter alone: the all-gather takes as long again."),
            (2 * half * (alpha + beta * size), "The messages are chunks: a round carries n/N bytes."),
            (half * (alpha + beta * size), "Two halves, and the messages are chunks of n/N bytes."),
            (2 * n * (alpha + beta * size / n), "A chunk needs one round fewer than there are ranks, in each half."),
            (n * half * (alpha + beta * size / n), "The ranks send at the same time: count rounds, not messages."),
            (2 * n * half * (alpha + beta * size / n), "The ranks send at the same time: count rounds, not messages."),
            (alpha + 2 * half / n * beta * size, "Each round has its own α."),
            (2 * half * alpha + beta * size, "Over all rounds it is 2(N−1) chunks of n/N bytes that pass."),
            (2 * half / n * beta * size, "The latency α is missing."),
            (2 * half * alpha, "The time for the bytes is missing."),
            (2 * half * (alpha + size / n / beta), "β is seconds per byte: multiply."),
            (2 * half / n * (alpha + beta * size), "Only the bytes are divided by N; every round has a whole α."),
        )
        return _named(value, expected, wrong, told)
    return ""


def _ring_latency(answer: Callable) -> str:
    return _ring_costs(answer, [(5, 0.0, 3.0, 0.01), (2, 0.0, 1e-5, 1e-9), (1024, 0.0, 1e-5, 1e-10)])


def _ring_bytes(answer: Callable) -> str:
    return _ring_costs(answer, [(5, 1000.0, 3.0, 0.01), (2, 1e6, 1e-5, 1e-9), (1000, 1e8, 1e-5, 1e-10)])


def _ring_arrays(answer: Callable) -> str:
    if reason := _ring_costs(answer, [(1, 1000.0, 3.0, 0.01)]):
        return reason
    ranks, nbytes = np.array([[1], [4], [64]]), np.array([1.0, 1e6])
    value = answer(ranks, nbytes, 1e-5, 1e-9)
    if np.shape(value) != (3, 2):
        return f"for ranks [3, 1] and bytes [2] it returns shape {np.shape(value)}: plain arithmetic gives (3, 2)."
    if not _close(value, allreduce.ring(ranks, nbytes, Link(1e-5, 1e-9))):
        return "right for single numbers, wrong for arrays: use no `if` and no `int` on them."
    return ""


# hierarchical_all_reduce


def _run(answer: Callable, values: list[np.ndarray], group: int) -> tuple[Outcome | None, str]:
    try:
        return simulated.run(lambda me, x: answer(me, x, group), values), ""
    except DeadlockError as error:
        return None, f"{error} Whoever receives needs a sender: follow one member and its leader through all steps."


def _sums(answer: Callable, ranks: int, group: int, length: int, dtype: type = np.int64) -> str:
    random = np.random.default_rng([ranks, group, length])
    values = [random.integers(-9, 10, length).astype(dtype) for _ in range(ranks)]
    outcome, reason = _run(answer, [value.copy() for value in values], group)
    told = f"{ranks} ranks in groups of {group}, {length} numbers: "
    if outcome is None:
        return told + reason
    expected = np.sum(values, axis=0).astype(dtype)
    for rank, result in enumerate(outcome.results):
        if result is None:
            return told + f"rank {rank} returns None: members return what their leader sends them."
        result = np.asarray(result)
        if result.shape != (length,):
            return told + f"rank {rank} returns shape {result.shape}; it should be ({length},)."
        if result.dtype != dtype:
            return told + f"of type {np.dtype(dtype)} come in, {result.dtype} go out."
        if not np.array_equal(result, expected):
            return told + f"rank {rank} {_why_not(result, values, expected, rank, group)}"
    return ""


def _why_not(result: np.ndarray, values: list[np.ndarray], expected: np.ndarray, rank: int, group: int) -> str:
    first = rank - rank % group
    own = np.sum(values[first : first + group], axis=0)
    leaders = np.sum(values[::group], axis=0)
    if np.array_equal(result, values[rank]):
        return "still has only its own numbers."
    if np.array_equal(result, own):
        return "has the sum of its own group only: the leaders must add up theirs."
    if np.array_equal(result, leaders):
        return "has the sum of the leaders' own numbers: first they take in those of their members."
    if np.allclose(np.asarray(result, float) * len(values), expected):
        return "has the average; an all-reduce is a sum here."
    return f"has {result[:4]} … in place of {expected[:4]} …"


# Each rank's number is a digit of its own, so that the sum tells who is in it and how often.
def _digits(answer: Callable) -> str:
    values = [np.full(3, 10**rank, np.int64) for rank in range(8)]
    outcome, reason = _run(answer, values, 4)
    if outcome is None:
        return f"8 ranks in groups of 4: {reason}"
    for rank, result in enumerate(outcome.results):
        if result is None:
            return f"rank {rank} returns None: members return what their leader sends them."
        if np.shape(result) != (3,):
            return f"rank {rank} returns {result!r} where 3 numbers are expected."
        number = int(np.asarray(result)[0])
        digits = [number // 10**other % 10 for other in range(8)]
        if number == 11_111_111:
            continue
        reason = _why_not(np.asarray(result), values, np.full(3, 11_111_111), rank, 4)
        if "in place of" not in reason:
            return f"8 ranks in groups of 4: rank {rank} {reason}"
        if twice := [other for other in range(8) if digits[other] > 1]:
            return f"8 ranks in groups of 4: rank {rank} has the numbers of rank {twice[0]} {digits[twice[0]]} times."
        missing = [str(other) for other in range(8) if not digits[other]]
        return f"8 ranks in groups of 4: rank {rank} lacks the numbers of rank {' and '.join(missing)}."
    return ""


def _any_ranks(answer: Callable) -> str:
    cases = [(ranks, group) for group in (1, 2, 3, 4) for ranks in (1, 2, 4, 5, 6, 9)] + [(3, 8)]
    return next(filter(None, (_sums(answer, ranks, group, 12) for ranks, group in cases)), "")


def _any_numbers(answer: Callable) -> str:
    for length in (0, 1, 5, 33):
        if reason := _sums(answer, 6, 2, length):
            return reason
    for dtype in (np.float64, np.float16):
        if reason := _sums(answer, 6, 3, 10, dtype):
            return reason
    given = [np.arange(6.0) for _ in range(6)]
    _run(answer, given, 3)
    if any(not np.array_equal(array, np.arange(6.0)) for array in given):
        return "it changes the array that it was given: let the leader add up in a copy."
    return ""


def _traffic(answer: Callable) -> str:
    ranks, group, length = 12, 3, 48
    outcome, reason = _run(answer, [np.ones(length)] * ranks, group)
    if outcome is None:
        return reason
    trace = outcome.trace
    across = trace.source // group != trace.target // group
    told = f"{ranks} ranks in groups of {group}, {length} numbers: "
    for source, target in zip(trace.source[across], trace.target[across]):
        if source % group or target % group:
            return told + f"rank {source} sends to rank {target}: between groups only leaders talk."
    sent = np.bincount(trace.source[across], trace.elements[across], ranks).max(initial=0)
    groups = ranks // group
    least = 2 * (groups - 1) * length // groups
    if sent == 0:
        return told + "no message passes between groups."
    if sent > least:
        return told + f"a leader sends {sent:.0f} numbers to other leaders; with their ring it is {least}."
    inside = np.bincount(trace.source[~across], trace.elements[~across], ranks)
    if inside[1] > 2 * length:
        return told + f"rank 1, a member, sends {inside[1]:.0f} numbers within its group; {length} are enough."
    if outcome.unread:
        return told + f"{outcome.unread} messages were sent that nobody received."
    return ""


# crossing


def _coefficients(ranks: int, group: int) -> tuple[float, float]:
    """By how many α the ring is slower, by how many bytes' β (of one) the hierarchical all-reduce is."""
    leaders = ranks / group
    rounds = 2 * (ranks - 1) - 4 * (group - 1) - 2 * (leaders - 1)
    volume = 4 * (group - 1) / group + 2 * (leaders - 1) / leaders - 2 * (ranks - 1) / ranks
    return rounds, volume


def _crossing_at(answer: Callable, cases: Iterable[tuple[int, int, float, float]]) -> str:
    for ranks, group, alpha, beta in cases:
        value = answer(ranks, group, alpha, beta)
        if reason := one_number(value):
            return reason
        rounds, volume = _coefficients(ranks, group)
        expected = alpha / beta * rounds / volume
        if _close(value, expected):
            continue
        told = f"{ranks} ranks in leaders of {group}, α = {alpha:g} s, β = {beta:g} s per byte"
        leaders = ranks / group
        half = 2 * (ranks - 1) - 2 * (group - 1) - 2 * (leaders - 1)
        thin = 2 * (group - 1) / group + 2 * (leaders - 1) / leaders - 2 * (ranks - 1) / ranks
        cut = 4 * (group - 1) / group + 2 * (leaders - 1) / ranks - 2 * (ranks - 1) / ranks
        full = 4 * (group - 1) + 2 * (leaders - 1) / leaders - 2 * (ranks - 1) / ranks
        wrong = (
            (beta / alpha * rounds / volume, "α and β are exchanged: latency saved over time per byte lost."),
            (expected * beta, "That is a time: divide by β."),
            (rounds / volume, "α/β is missing."),
            (-expected, "The sign is wrong: the ring has more rounds, the hierarchical one more bytes."),
            (alpha / beta * volume / rounds, "Upside down: rounds saved over bytes lost."),
            (
                alpha / beta * half / thin if thin else np.inf,
                "Within a group there are a reduction and a broadcast, of 2(k−1) rounds each.",
            ),
            (alpha / beta * half / volume, "Within a group there are 4(k−1) rounds."),
            (alpha / beta * rounds / thin if thin else np.inf, "4(k−1) messages of n/k bytes pass within a group."),
            (alpha / beta * rounds / cut if cut else np.inf, "The leaders are N/k: their chunks have n·k/N bytes."),
            (alpha / beta * rounds / full, "Within a group the messages have n/k bytes."),
            (alpha / beta * ranks / 2, "That is what it comes to for very many ranks; here it should be exact."),
        )
        for other, why in wrong:
            if _close(value, other):
                return f"{told}: {value:.6g} bytes. {why}"
        return f"{told}: it returns {value:.6g}, it should be {expected:.6g} bytes."
    return ""


def _crossing_many(answer: Callable) -> str:
    return _crossing_at(answer, [(1024, 8, 1e-5, 1e-10), (2048, 16, 2e-6, 1e-9)])


def _crossing_few(answer: Callable) -> str:
    return _crossing_at(answer, [(12, 3, 1.0, 1.0), (64, 4, 1e-5, 1e-9), (64, 8, 1e-5, 1e-9)])


def _crossing_never(answer: Callable) -> str:
    for ranks, group in ((16, 8), (8, 8), (12, 8)):
        if ranks % group:
            continue
        value = answer(ranks, group, 1e-5, 1e-10)
        if reason := one_number(value):
            return reason
        if abs(value) >= 1e-6:
            rounds, _ = _coefficients(ranks, group)
            why = "A ring has no more rounds here" if rounds == 0 else "A ring has fewer rounds here"
            return f"{ranks} ranks in groups of {group}: it returns {value:.6g}. {why}: it always wins, return 0."
    return ""


# fit_link

SIZES = 4.0 ** np.arange(1, 13)


def _pair(value: object) -> tuple[float, float] | str:
    if value is None:
        return "it returns None: is a `return` missing?"
    if np.shape(value) != (2,):
        return f"it returns {value!r}; it should be the two numbers α, β."
    return float(value[0]), float(value[1])


def _fit_exact(answer: Callable) -> str:
    for ranks in (5, 2):
        alpha, beta = 3e-4, 2e-9
        seconds = allreduce.ring(ranks, SIZES, Link(alpha, beta))
        found = _pair(answer(ranks, SIZES.copy(), seconds.copy()))
        if isinstance(found, str):
            return found
        if _close(found, (alpha, beta), rtol=1e-3):
            continue
        told = f"{ranks} ranks, times of a ring with α = {alpha:g} s and β = {beta:g} s per byte: "
        got = f"found α = {found[0]:.4g}, β = {found[1]:.4g}. "
        turns = 2 * (ranks - 1)
        for wrong, why in (
            ((beta, alpha), "They are exchanged: α first."),
            ((turns * alpha, turns / ranks * beta), "Those belong to the whole all-reduce: it has 2(N−1) messages."),
            ((turns * alpha, beta), "That α belongs to the whole all-reduce: it has 2(N−1) rounds."),
            ((alpha, turns / ranks * beta), "That β belongs to the whole tensor: 2(N−1) messages of n/N bytes pass."),
            ((alpha, beta / ranks), "A message has n/N bytes."),
            ((alpha * 2, beta * 2), "Both halves count: 2(N−1) rounds."),
            ((alpha, 1 / beta), "β is seconds per byte, not bytes per second."),
        ):
            if _close(found, wrong, rtol=1e-3):
                return told + got + why
        return told + got + "Such times are met exactly by the right α and β."
    return ""


def _fit_relative(answer: Callable) -> str:
    exact = allreduce.ring(2, SIZES, Link(3e-4, 2e-9))
    seconds = exact * np.random.default_rng(1).lognormal(0, 0.15, len(SIZES))
    found = _pair(answer(2, SIZES.copy(), seconds.copy()))
    if isinstance(found, str):
        return found
    best = allreduce.fit(2, SIZES, seconds)
    if _close(found, (best.alpha, best.beta), rtol=1e-3):
        return ""
    design = np.stack([np.full_like(SIZES, 2.0), SIZES], 1)
    plain = np.linalg.lstsq(design, seconds, rcond=None)[0]
    if _close(found, plain, rtol=1e-3):
        return (
            f"these are the least squares of the errors in seconds: α = {found[0]:.2g} s, where the small tensors say "
            f"{best.alpha:.2g} s. The largest tensor decides alone; take errors relative to the measured seconds."
        )
    ends = np.array([seconds[0] / 2, seconds[-1] / SIZES[-1]])
    if _close(found, ends, rtol=0.02):
        return "this uses the smallest and the largest tensor only; let all of them count."
    return (
        f"with noisy times it finds α = {found[0]:.4g}, β = {found[1]:.4g}; the least squares of the relative errors "
        f"are at {best.alpha:.4g} and {best.beta:.4g}."
    )


EXERCISES = Exercises(
    Exercise(
        "ring_seconds",
        (
            Part("Latency", 0.4, _ring_latency),
            Part("Bytes", 0.4, _ring_bytes),
            Part("One rank, and arrays", 0.2, _ring_arrays),
        ),
    ),
    Exercise(
        "hierarchical_all_reduce",
        (
            Part("Eight ranks in two groups", 0.35, _digits),
            Part("Any number of ranks and any group", 0.25, _any_ranks),
            Part("Any length and type", 0.15, _any_numbers),
            Part("Between groups: only leaders, in a ring", 0.25, _traffic),
        ),
    ),
    Exercise(
        "crossing",
        (
            Part("Many ranks", 0.4, _crossing_many),
            Part("Few ranks", 0.4, _crossing_few),
            Part("Where the ring always wins", 0.2, _crossing_never),
        ),
    ),
    Exercise(
        "fit_link",
        (
            Part("Exact times", 0.5, _fit_exact),
            Part("Noisy times, relative errors", 0.5, _fit_relative),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
