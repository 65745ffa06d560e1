"""Checks of notebook 4a: what a ring costs, the hierarchical all-reduce, where they cross, halving on hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from course_lib.collectives import simulated
from course_lib.collectives.simulated import DeadlockError, Outcome
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook import answers
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# ring_seconds


def _ring_costs(cases: Iterable[tuple[int, float, float, float]], answer: Callable) -> None:
    for n, nbytes, alpha, beta in cases:
        rounds, chunk, whole = n - 1, alpha + beta * nbytes / n, alpha + beta * nbytes  # rounds of one half
        with answers.case(f"{n} ranks, {nbytes:g} bytes, α = {alpha:g} s, β = {beta:g} s per byte"):
            answers.compare(
                answers.number(answer(n, nbytes, alpha, beta)),
                allreduce.ring(n, nbytes, Link(alpha, 1 / beta)),
                "the number of seconds",
                {
                    "that is the reduce-scatter alone: the all-gather takes as long again.": rounds * chunk,
                    "the messages are chunks: a round carries n/N bytes.": 2 * rounds * whole,
                    "an all-reduce has two halves, and the messages are chunks of n/N bytes.": rounds * whole,
                    "a chunk needs one round fewer than there are ranks, in each half.": 2 * n * chunk,
                    "the ranks send at the same time: count rounds, not messages.": 2 * n * rounds * chunk,
                    "the ranks send at the same time: count rounds, not messages, in both halves.": n * rounds * chunk,
                    "each round has its own α.": alpha + 2 * rounds * beta * nbytes / n,
                    "over all rounds it is 2(N−1) chunks of n/N bytes that pass.": 2 * rounds * alpha + beta * nbytes,
                    "the latency α is missing.": 2 * rounds * beta * nbytes / n,
                    "the time for the bytes is missing.": 2 * rounds * alpha,
                    "β is seconds per byte: multiply.": 2 * rounds * (alpha + nbytes / n / beta),
                    "only the bytes are divided by N; every round has a whole α.": 2 * rounds / n * whole,
                },
            )


def _ring_one_rank_and_arrays(answer: Callable) -> None:
    _ring_costs([(1, 1000.0, 3.0, 0.01)], answer)
    ranks, nbytes = np.array([[1], [4], [64]]), np.array([1.0, 1e6])
    with answers.unchanged():
        try:
            seconds = answer(ranks.copy(), nbytes.copy(), 1e-5, 1e-9)
        except ValueError as error:
            if "truth value" not in str(error):
                raise
            raise Wrong("an array has no single truth value: no `if` is needed, for one rank N − 1 is 0.") from None
        got = answers.array(seconds, (3, 2), "for ranks [3, 1], bytes [2] it")
    if not answers.same(got, allreduce.ring(ranks, nbytes, Link(1e-5, 1e9))):
        raise Wrong("right for single numbers, wrong for arrays: use no `if` and no `int` on them.")


# hierarchical_all_reduce


def _run(answer: Callable, values: Sequence[np.ndarray], group: int) -> Outcome:
    def program(me: simulated.Rank, x: np.ndarray) -> np.ndarray:
        with answers.unchanged():  # each rank is a thread, and NumPy silences warnings in one thread only
            return answer(me, x, group)

    try:
        return simulated.run(program, values)
    except DeadlockError as error:
        sentence = "A rank that receives needs a sender: follow one member and its leader through all steps."
        raise Wrong(f"{error} {sentence}") from None


def _mistakes(result: np.ndarray, values: Sequence[np.ndarray], rank: int, group: int) -> dict:
    first = rank - rank % group
    own, leaders = sum(values[first : first + group]), sum(values[::group])
    average = np.mean(values, axis=0).astype(result.dtype)
    return {
        f"rank {rank} still has only its own numbers.": values[rank],
        f"rank {rank} has the sum of its own group only: the leaders must add up theirs.": own,
        f"rank {rank} has the sum of the leaders' own numbers: first they take in those of their members.": leaders,
        f"rank {rank} has the average; an all-reduce is a sum here.": average,
    }


def _two_groups(answer: Callable) -> None:
    values = [simulated.marked(rank, 3) for rank in range(8)]
    with answers.case("8 ranks in groups of 4"):
        for rank, result in enumerate(_run(answer, [value.copy() for value in values], 4).results):
            result = answers.array(result, (3,), f"rank {rank}")
            mistakes = _mistakes(result, values, rank, 4)
            mistakes[f"rank {rank} {_tally(result[0])}"] = result  # whatever it is
            answers.compare(result, sum(values), f"rank {rank}", mistakes, rtol=1e-8)


def _tally(number: float) -> str:
    """Which ranks' first marked numbers are not in a sum, or more than once."""
    try:
        counts = np.bincount(simulated.origin(number)[1], minlength=8)
    except (ValueError, OverflowError):
        return f"has {number}, which is no sum of the ranks' numbers."
    for rank in np.flatnonzero(counts > 1):
        return f"has the numbers of rank {rank} {counts[rank]} times."
    missing = " and ".join(map(str, np.flatnonzero(counts == 0)))
    return f"lacks the numbers of rank {missing}." if missing else f"has {number} in place of 11111111."


def _sums(answer: Callable, ranks: int, group: int, length: int, dtype: type = np.int64) -> None:
    random = np.random.default_rng([ranks, group, length])
    values = [random.integers(-9, 10, length).astype(dtype) for _ in range(ranks)]
    with answers.case(f"{ranks} ranks in groups of {group}, {length} numbers"):
        for rank, result in enumerate(_run(answer, [value.copy() for value in values], group).results):
            result = answers.array(result, (length,), f"rank {rank}")
            if result.dtype != dtype:
                raise Wrong(f"rank {rank} is given numbers of type {np.dtype(dtype)} and returns {result.dtype}.")
            answers.compare(result, sum(values), f"rank {rank}", _mistakes(result, values, rank, group), rtol=0)


def _any_ranks(answer: Callable) -> None:
    for group in (1, 2, 3, 4):
        for ranks in (1, 2, 4, 5, 6, 9):
            _sums(answer, ranks, group, 12)
    _sums(answer, 3, 8, 12)


def _any_numbers(answer: Callable) -> None:
    for length in (0, 1, 5, 33):
        _sums(answer, 6, 2, length)
    for dtype in (np.float64, np.float16):
        _sums(answer, 6, 3, 10, dtype)
    given = [np.arange(6.0) for _ in range(6)]
    with answers.unchanged(*given):
        _run(answer, given, 3)


def _traffic(answer: Callable) -> None:
    ranks, group, length = 12, 3, 48
    with answers.case(f"{ranks} ranks in groups of {group}, {length} numbers"):
        outcome = _run(answer, [np.ones(length) for _ in range(ranks)], group)
        trace = outcome.trace
        across = trace.source // group != trace.target // group
        for source, target in zip(trace.source[across], trace.target[across]):
            if source % group or target % group:
                raise Wrong(f"rank {source} sends to rank {target}: between groups only leaders talk.")
        sent = np.bincount(trace.source[across], trace.elements[across], ranks).max(initial=0)
        groups = ranks // group
        needed = 2 * (groups - 1) * length // groups
        if sent == 0:
            raise Wrong("no message passes between groups.")
        if sent > needed:
            raise Wrong(f"a leader sends {sent:.0f} numbers to other leaders; with their ring it is {needed}.")
        inside = np.bincount(trace.source[~across], trace.elements[~across], ranks)
        if inside[1] > 2 * length:
            raise Wrong(f"rank 1, a member, sends {inside[1]:.0f} numbers within its group; {length} are enough.")
        if outcome.unread:
            raise Wrong(f"{outcome.unread} messages were sent that nobody received.")


# crossing


def _crossing(cases: Iterable[tuple[int, int, float, float]], answer: Callable) -> None:
    for n, k, alpha, beta in cases:
        groups = n / k
        ring, leaders = 2 * (n - 1), 2 * (groups - 1)  # rounds of all ranks, and of the leaders
        saved, lost = alpha * (ring - leaders - 4 * (k - 1)), beta * (4 * (k - 1) / k + leaders / groups - ring / n)
        half_saved, half_lost = saved + alpha * 2 * (k - 1), lost - beta * 2 * (k - 1) / k
        whole_lost = lost + beta * (4 * (k - 1) - 4 * (k - 1) / k)
        small_lost = lost + beta * (leaders / n - leaders / groups)
        plain_lost = lost + beta * (2 * (k - 1) - 4 * (k - 1) / k)
        nbytes = saved / lost
        with answers.case(f"{n} ranks in groups of {k}, α = {alpha:g} s, β = {beta:g} s per byte"):
            answers.compare(
                answers.number(answer(n, k, alpha, beta)),
                nbytes,
                "the number of bytes",
                {
                    "that is what it comes to for very many ranks; here it should be exact.": alpha / beta * n / 2,
                    "α and β are exchanged: latency saved over time per byte lost.": nbytes * (beta / alpha) ** 2,
                    "that is a time: divide by β.": nbytes * beta,
                    "α/β is missing.": nbytes * beta / alpha,
                    "the sign is wrong: the ring has more rounds, the hierarchical one more bytes.": -nbytes,
                    "the fraction is upside down: it is rounds saved over bytes lost.": (alpha / beta) ** 2 / nbytes,
                    "within a group there are a reduction and a broadcast, of 2(k−1) rounds each.": (
                        half_saved / half_lost
                    ),
                    "within a group there are 4(k−1) rounds.": half_saved / lost,
                    "that is the plain way, 2(k−1) whole tensors; the paper's has 4(k−1) rounds of n/k bytes.": (
                        half_saved / plain_lost
                    ),
                    "a ring of N has 2(N−1) rounds, not 2N, and the groups likewise.": (
                        alpha * max(0, 2 * (n - 2 * k - groups)) / lost
                    ),
                    "4(k−1) messages of n/k bytes pass within a group.": saved / half_lost,
                    "the leaders are N/k: their chunks have n·k/N bytes.": saved / small_lost,
                    "within a group the messages have n/k bytes.": saved / whole_lost,
                    "the rings of the leaders and of all ranks differ in their bytes: 2(N/k−1) chunks of n·k/N bytes "
                    "against 2(N−1) of n/N.": saved / (beta * 4 * (k - 1) / k),
                },
            )


def _no_crossing(answer: Callable) -> None:
    for ranks, rounds in ((16, "no more"), (8, "fewer")):
        if abs(answers.number(answer(ranks, 8, 1e-5, 1e-10))) >= 1e-6:
            raise Wrong(f"{ranks} ranks in groups of 8: a ring has {rounds} rounds here, so it always wins: return 0.")


# halve


def _halved(answer: Callable, values: Sequence[np.ndarray]) -> tuple[list[tuple[int, np.ndarray]], Outcome]:
    """Each rank's (first, sums), and the messages."""

    def program(me: simulated.Rank, x: np.ndarray) -> tuple:
        with answers.unchanged(x):
            return answer(me, x)

    try:
        outcome = simulated.run(program, values)
    except DeadlockError as error:
        raise Wrong(f"{error} Two partners exchange: each is the other's partner, in the same round.") from None
    parts = []
    for rank, result in enumerate(outcome.results):
        first, sums = answers.several(result, "first", "sums")
        parts.append(
            (int(answers.number(first)), answers.array(sums, (len(values[0]) // len(values),), f"rank {rank}"))
        )
    return parts, outcome


def _right_halves(answer: Callable) -> None:
    for ranks in (2, 1, 4, 8):
        values = [simulated.marked(rank, 8) for rank in range(ranks)]
        with answers.case(f"{ranks} ranks, 8 numbers"):
            parts, outcome = _halved(answer, [value.copy() for value in values])
            total, size = sum(values), 8 // ranks
            for rank, (first, sums) in enumerate(parts):
                if answers.same(sums, values[rank][first : first + size]) and ranks > 1:
                    raise Wrong(f"rank {rank} returns its own numbers: add what comes from the partner.")
                if 0 <= first <= 8 - size and answers.same(sums, total[first : first + size]):
                    continue
                for other in range(8 - size + 1):
                    if answers.same(sums, total[other : other + size]):
                        raise Wrong(
                            f"rank {rank} holds x[{other}:{other + size}], summed up, and says first = {first}."
                        )
                raise Wrong(f"rank {rank} {_halving_tally(sums[0], ranks)}")
            if len({first for first, _ in parts}) < ranks:
                twice = next(first for first, _ in parts if [f for f, _ in parts].count(first) > 1)
                raise Wrong(f"several ranks keep the part from {twice} on: of two partners each keeps its own half.")
            if outcome.unread:
                raise Wrong(f"{outcome.unread} messages were sent that nobody received.")


def _halving_tally(number: float, ranks: int) -> str:
    other = f"has {number}, which is no sum of one number over the ranks: what comes belongs to the half that is kept."
    try:
        counts = np.bincount(simulated.origin(number)[1], minlength=ranks)
    except (ValueError, OverflowError):
        return other
    missing = ", ".join(map(str, np.flatnonzero(counts == 0)))
    return f"lacks the numbers of rank {missing}." if missing else other


def _few_rounds(answer: Callable) -> None:
    ranks, length = 16, 64
    with answers.case(f"{ranks} ranks, {length} numbers"):
        trace = _halved(answer, [np.ones(length) for _ in range(ranks)])[1].trace
        sizes = sorted((int(size) for size in trace.largest()), reverse=True)
        if trace.rounds > 4:
            raise Wrong(f"it takes {trace.rounds} rounds; with the right partners log₂N = 4 are enough.")
        if sizes != [32, 16, 8, 4]:
            raise Wrong(f"the rounds' largest messages have {sizes} numbers; half of what is left is 32, 16, 8, 4.")


def _little_leaves(answer: Callable) -> None:
    ranks, group, length = 32, 8, 64
    with answers.case(f"{ranks} ranks, hosts of {group}, {length} numbers"):
        trace = _halved(answer, [np.ones(length) for _ in range(ranks)])[1].trace
        out = trace.source // group != trace.target // group
        left = np.bincount(trace.source[out] // group, trace.elements[out], ranks // group).max(initial=0) / length
        if left > 0.75:
            raise Wrong(
                f"{left:.2f} n leave a host, 0.75 n are enough. The first round carries most: with whom should it be?"
            )


EXERCISES = Exercises(
    Exercise(
        "ring_seconds",
        Criterion(
            "latency",
            "Latency",
            0.4,
            partial(_ring_costs, [(5, 0.0, 3.0, 0.01), (2, 0.0, 1e-5, 1e-9), (1024, 0.0, 1e-5, 1e-10)]),
        ),
        Criterion(
            "bytes",
            "Bytes",
            0.4,
            partial(_ring_costs, [(5, 1000.0, 3.0, 0.01), (2, 1e6, 1e-5, 1e-9), (1000, 1e8, 1e-5, 1e-10)]),
        ),
        Criterion("one-rank-and-arrays", "One rank, and arrays", 0.2, _ring_one_rank_and_arrays),
    ),
    Exercise(
        "hierarchical_all_reduce",
        Criterion("two-groups", "Eight ranks in two groups", 0.35, _two_groups),
        Criterion("any-ranks", "Any number of ranks and any group", 0.25, _any_ranks),
        Criterion("any-numbers", "Any length and type", 0.15, _any_numbers),
        Criterion("traffic", "Between groups: only leaders, in a ring", 0.25, _traffic),
    ),
    Exercise(
        "crossing",
        Criterion(
            "many-ranks", "Many ranks", 0.4, partial(_crossing, [(2048, 16, 2e-6, 1e-9), (1024, 8, 1e-5, 1e-10)])
        ),
        Criterion(
            "few-ranks",
            "Few ranks",
            0.4,
            partial(_crossing, [(12, 3, 1.0, 1.0), (64, 4, 1e-5, 1e-9), (64, 8, 1e-5, 1e-9)]),
        ),
        Criterion("no-crossing", "Where the ring always wins", 0.2, _no_crossing),
    ),
    Exercise(
        "halve",
        Criterion("sums", "Each rank one part, summed up", 0.4, _right_halves),
        Criterion("rounds", "log₂N rounds, of half of what is left", 0.2, _few_rounds),
        Criterion("hosts", "As little as possible leaves a host", 0.4, _little_leaves),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
