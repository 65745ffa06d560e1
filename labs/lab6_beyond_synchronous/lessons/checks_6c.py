"""Checks of notebook 6c: what a rank sends and keeps, momentum and compression, a low-rank mean, and the ranks at
which an all-gather stops paying."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.collectives import simulated
from course_lib.collectives.simulated import DeadlockError
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook.answers import array, case, compare, name_mistake, number, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# --- send_largest

LENGTH = 24


def _vectors(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A gradient and what was kept: the largest sum is where neither is large, and large ones are negative, too."""
    random = np.random.default_rng(seed)
    signs = random.choice([-1, 1], LENGTH)
    gradient = signs * random.permutation(np.linspace(0.05, 1.0, LENGTH))
    kept = random.choice([-1, 1], LENGTH) * random.permutation(np.linspace(0.02, 1.3, LENGTH))
    gradient[:3] = signs[:3] * np.array([0.961, 0.972, 0.983])
    kept[:3] = -0.9 * gradient[:3]  # they cancel
    gradient[3:6], kept[3:6] = signs[3:6] * 0.31, signs[3:6] * np.array([1.11, 1.12, 1.14])
    return gradient.astype(np.float32), kept.astype(np.float32)


def _top(values: np.ndarray, k: int) -> np.ndarray:
    return np.sort(np.argsort(np.abs(values), kind="stable")[len(values) - k :])


def _sent(answer: Callable, gradient: np.ndarray, kept: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    with unchanged(gradient, kept):
        found = answer(gradient, kept, k)
    positions, values, after = several(found, "positions", "values", "what is kept")
    positions = _positions(positions, k, len(gradient))
    return positions, array(values, (k,), "as values it"), array(after, gradient.shape, "as what is kept it")


def _positions(value: Any, k: int, length: int) -> np.ndarray:
    positions = array(value, (k,), "as positions it")
    if positions.dtype.kind not in "iu":
        raise Wrong("positions are whole numbers that say where the sent numbers stand.")
    if len(np.unique(positions)) < k:
        raise Wrong("a position is sent twice.")
    if k and (positions.min() < 0 or positions.max() >= length):
        raise Wrong(f"a position lies outside 0 … {length - 1}.")
    return positions


CASES = ((0, 4), (1, 1), (2, 7), (3, LENGTH))


def _chosen(send: Callable) -> None:
    for seed, k in CASES:
        gradient, kept = _vectors(seed)
        with case(f"{LENGTH} numbers, k = {k}"):
            positions, _, _ = _sent(send, gradient, kept, k)
            right = _top(gradient + kept, k)
            found = np.sort(positions)
            mistakes = {
                "the numbers are chosen by the gradient alone. A number that was small in ten updates may be large in "
                "their sum.": _top(gradient, k),
                "the numbers are chosen by what was kept alone: the newest gradient counts, too.": _top(kept, k),
                "only positive numbers count as large: choose by size.": np.sort(np.argsort(gradient + kept)[-k:]),
                "the smallest are chosen.": np.sort(np.argsort(np.abs(gradient + kept))[:k]),
            }
            name_mistake(found, right, mistakes)
            if not np.array_equal(found, right):
                raise Wrong(f"the positions are {found.tolist()}; of largest size are {right.tolist()}.")


def _nothing_lost(send: Callable) -> None:
    for seed, k in CASES:
        gradient, kept = _vectors(seed)
        with case(f"{LENGTH} numbers, k = {k}"):
            positions, values, after = _sent(send, gradient, kept, k)
            sent = np.zeros(LENGTH)
            sent[positions] = values
            given = gradient + kept
            rest = given.copy()
            rest[positions] = 0
            if same(sent + after, given, 1e-5, 1e-6) and same(after, rest, 1e-5, 1e-6):
                continue
            if same(values, gradient[positions], 1e-5) and k < LENGTH:
                raise Wrong(
                    "what is sent are numbers of the gradient; what was kept at these positions waits for ever."
                )
            if same(values, np.abs(given[positions]), 1e-5):
                raise Wrong("sizes are sent: their signs are lost.")
            mistakes = {
                "what was sent is kept as well: it will be sent again and again.": given,
                "of what was kept before, nothing is left: each gradient must add to it.": np.where(
                    rest == 0, 0, gradient
                ),
                "nothing is kept.": np.zeros(LENGTH),
                "the new gradient is not kept where it is not sent.": np.where(rest == 0, 0, kept),
                "kept is what was sent; the others are lost.": given - rest,
                "it keeps a whole gradient, also where it was sent.": gradient,
            }
            name_mistake(after, rest, mistakes, rtol=1e-5, atol=1e-6)
            place = int(np.argmax(np.abs(sent + after - given)))
            raise Wrong(
                f"at position {place} the gradient is {gradient[place]:.3g}, and {kept[place]:.3g} was kept; sent is "
                f"{sent[place]:.3g} and kept now {after[place]:.3g}: something is lost or counted twice."
            )


# --- send_velocity


def _histories(answer: Callable, momentum: float, k: int, updates: int = 40) -> tuple[np.ndarray, ...]:
    """What was sent so far, and what momentum would have moved so far, and where it was sent: [updates, L] each."""
    random = np.random.default_rng(11)
    gradients = (random.normal(size=(updates, 6)) * np.array([3, 1.5, 1, 0.5, 0.3, 0.2]) + 0.2).astype(np.float32)
    velocity, kept = np.zeros(6, np.float32), np.zeros(6, np.float32)
    sent, moved, pace, told = np.zeros(6), np.zeros(6), np.zeros(6), []
    for gradient in gradients:
        with unchanged(gradient, velocity, kept):
            found = answer(gradient, velocity, kept, k, momentum)
        positions, values, velocity, kept = several(found, "positions", "values", "velocity", "what is kept")
        positions, values = _positions(positions, k, 6), array(values, (k,), "as values it")
        velocity, kept = array(velocity, (6,), "as velocity it"), array(kept, (6,), "as what is kept it")
        here = np.zeros(6, bool)
        here[positions] = True
        sent[positions] += values
        pace = momentum * pace + gradient
        moved = moved + pace
        told.append((sent.copy(), moved.copy(), here))
    return tuple(np.array(part) for part in zip(*told))


def _without_compression(send: Callable) -> None:
    """And nothing is left to keep."""
    gradient, zero = np.array([1, -2, 0.5], np.float32), np.zeros(3, np.float32)
    *_, velocity, kept = several(
        send(gradient, zero.copy(), zero.copy(), 3, 0.9), "positions", "values", "velocity", "what is kept"
    )
    if same(velocity, zero) and same(kept, gradient):
        raise Wrong("all numbers are sent, and yet something is kept: are velocity and what is kept exchanged?")
    for momentum in (0.9, 0.5):
        sent, moved, _ = _histories(send, momentum, 6)
        with case(f"all numbers are sent, β = {momentum:g}"):
            if not same(sent[1], moved[1], 1e-3, 1e-4):
                raise Wrong(
                    f"after two updates {np.round(sent[1], 3).tolist()} has been sent; ordinary momentum has moved by "
                    f"{np.round(moved[1], 3).tolist()}. Where all is sent, the velocity has to live on."
                )
            if not same(sent, moved, 1e-3, 1e-3):
                raise Wrong("after many updates what was sent is not what ordinary momentum has moved.")


def _on_arrival(send: Callable) -> None:
    for momentum, k in ((0.9, 1), (0.9, 2), (0.5, 1)):
        sent, moved, here = _histories(send, momentum, k)
        with case(f"{k} of 6 numbers sent, β = {momentum:g}"):
            if same(sent[here], moved[here], 1e-3, 1e-3):
                continue
            update, place = np.argwhere(here & ~np.isclose(sent, moved, rtol=1e-3, atol=1e-3))[0]
            told = (
                f"at update {update} number {place} is sent, and with it {sent[update, place]:.4g} in all; by ordinary "
                f"momentum its weight would have moved by {moved[update, place]:.4g}"
            )
            first = int(np.argmax(here[:, place]))
            if first < update or not same(sent[first, place], moved[first, place], 1e-3, 1e-3):
                raise Wrong(
                    f"{told}. While a number waits, its velocity must grow and fade as ever, and each of its steps be "
                    "kept; sending takes the steps away, not the velocity."
                )
            raise Wrong(f"{told}.")


def _largest_steps(send: Callable) -> None:
    """The largest of what has been kept is sent, velocity included."""
    velocity, kept = np.array([0, 1, 0, 0.2], np.float32), np.array([1.4, 0, -0.1, 0.1], np.float32)
    gradient = np.array([0.1, 0.3, -0.95, 0.1], np.float32)
    right = kept + np.float32(0.9) * velocity + gradient
    with unchanged(gradient, velocity, kept):
        found = send(gradient, velocity, kept, 2, np.float32(0.9))
    positions, values, *_ = several(found, "positions", "values", "velocity", "what is kept")
    positions, values = _positions(positions, 2, len(gradient)), array(values, (2,), "as values it")
    expected = _top(right, 2)
    mistakes = {
        "the numbers are chosen without their velocities.": _top(kept + gradient, 2),
        "the numbers are chosen by velocity alone: what has been kept counts.": _top(0.9 * velocity + gradient, 2),
    }
    name_mistake(np.sort(positions), expected, mistakes)
    if not np.array_equal(np.sort(positions), expected):
        raise Wrong(f"positions {np.sort(positions).tolist()} are sent; of largest size are {expected.tolist()}.")
    if not same(values, right[positions], 1e-4, 1e-6):
        raise Wrong(
            f"at these positions {values.tolist()} is sent; all that waits there is {right[positions].tolist()}."
        )


# --- low_rank_mean

SHAPE = (12, 8)


class _Counting:
    """A simulated rank that counts the numbers that it all-reduces, and lets nothing else through."""

    def __init__(self, me: simulated.Rank) -> None:
        self._me, self.rank, self.size, self.numbers, self.calls = me, me.rank, me.size, 0, 0

    def all_reduce(self, x: Any) -> np.ndarray:
        x = np.asarray(x)
        self.numbers += x.size
        self.calls += 1
        return self._me.all_reduce(x)


def _matrices(ranks: int, seed: int, rank: int | None = None) -> tuple[list[np.ndarray], np.ndarray]:
    """The matrices of the ranks, whose mean has the given rank (or all), and a random right matrix of two columns."""
    random = np.random.default_rng([ranks, seed])
    own = random.normal(size=(ranks, *SHAPE)) * np.geomspace(3, 0.1, SHAPE[1])
    if rank:
        own -= own.mean(0)
        own += random.normal(size=(SHAPE[0], rank)) @ random.normal(size=(rank, SHAPE[1]))
    return list(own), random.normal(size=(SHAPE[1], 2))


def _low_rank(answer: Callable, own: list[np.ndarray], right: np.ndarray) -> tuple[list, list, int, int]:
    """What all ranks return: approximations, right matrices; and the numbers and calls of rank 0's all-reduces."""
    counters = {}

    def program(me: simulated.Rank, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counters[me.rank] = counting = _Counting(me)
        mine = right.copy()
        with unchanged(matrix, mine):
            found = several(answer(counting, matrix, mine), "the approximation", "the right matrix")
        return array(found[0], SHAPE, "as approximation it"), array(found[1], right.shape, "as right matrix it")

    try:
        results = simulated.run(program, [matrix.copy() for matrix in own]).results
    except DeadlockError as error:
        raise Wrong(f"{error} Every rank has to make the same calls of `me.all_reduce`.") from error
    return [one for one, _ in results], [two for _, two in results], counters[0].numbers, counters[0].calls


def _projected(mean: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    left = np.linalg.qr(mean @ right)[0]
    return left @ left.T @ mean, mean.T @ left


def _few_numbers(step: Callable) -> None:
    own, right = _matrices(3, 0)
    *_, numbers, calls = _low_rank(step, own, right)
    most = 2 * sum(SHAPE)
    if not calls:
        raise Wrong("nothing is all-reduced: each rank knows only its own matrix.")
    if numbers > most:
        raise Wrong(
            f"{numbers} numbers are all-reduced for a matrix of {SHAPE[0]} × {SHAPE[1]} and two columns; "
            f"{most} are enough: both thin matrices, once each."
        )


def _agree(step: Callable) -> None:
    found, rights, *_ = _low_rank(step, *_matrices(3, 1))
    for rank in (1, 2):
        if not np.array_equal(found[0], found[rank]):
            raise Wrong(
                f"ranks 0 and {rank} return different approximations: both factors have to be the same everywhere."
            )
        if not np.array_equal(rights[0], rights[rank]):
            raise Wrong(
                f"ranks 0 and {rank} return different right matrices: in the next update their products with "
                "them can't be added up."
            )


def _recovers(step: Callable) -> None:
    for ranks, rank in ((1, 2), (2, 2), (4, 2)):
        own, right = _matrices(ranks, 2, rank)
        mean = np.mean(own, axis=0)
        told = f"{ranks} ranks, whose mean has rank {rank}" if ranks > 1 else f"one rank, whose matrix has rank {rank}"
        with case(f"{told}, two columns"), np.errstate(all="ignore"):
            found = _low_rank(step, own, right)[0][0]
            left = mean @ right
            mistakes = {
                "it is the sum of the ranks; the mean is asked for.": ranks * mean,
                "it is too large by the number of ranks squared.": ranks**2 * mean,
                "the factors are multiplied as they are, and their lengths with them: the columns of one have to be "
                "orthonormal.": left @ left.T @ mean,
                "it is divided by the number of ranks once too often.": mean / ranks,
            }
            name_mistake(found, mean, mistakes, rtol=1e-4, atol=1e-6)
            if not same(found, mean, 1e-4, 1e-6):
                error = np.linalg.norm(found - mean) / np.linalg.norm(mean)
                raise Wrong(
                    f"two columns can hold this mean exactly; the result is off by {error:.2g} of its length. Are the "
                    "columns of one factor orthonormal, the same on all ranks, and is the other factor made with them?"
                )


def _best_in_one(step: Callable) -> None:
    for ranks in (1, 3):
        own, right = _matrices(ranks, 3)
        mean = np.mean(own, axis=0)
        best, _ = _projected(mean, right)
        with case(f"{ranks} ranks, a mean of full rank" if ranks > 1 else "one rank, a matrix of full rank"):
            found = _low_rank(step, own, right)[0][0]
            own_left = [np.linalg.qr(matrix @ right)[0] for matrix in own]
            mixed = np.mean([left @ left.T @ matrix for left, matrix in zip(own_left, own)], axis=0)
            mistakes = {
                "each rank orthogonalises its own product: orthogonalise what all have in common.": mixed,
                "the product with `right` is orthogonalised on the wrong side.": (
                    mean @ np.linalg.qr(right)[0] @ np.linalg.qr(right)[0].T
                ),
            }
            name_mistake(found, best, mistakes, rtol=1e-4, atol=1e-6)
            if not same(found, best, 1e-4, 1e-6):
                least, error = (np.linalg.norm(matrix - mean) / np.linalg.norm(mean) for matrix in (best, found))
                raise Wrong(
                    f"the error is {error:.3g} of the mean's length; with the same `right` {least:.3g} is possible. "
                    "Project the mean onto the columns of mean × right."
                )


def _improves(step: Callable) -> None:
    own, right = _matrices(2, 4)
    mean = np.mean(own, axis=0)
    u, s, v = np.linalg.svd(mean)
    least = np.linalg.norm(mean - u[:, :2] * s[:2] @ v[:2]) / np.linalg.norm(mean)
    with np.errstate(all="ignore"):
        first = found = _low_rank(step, own, right)
        for _ in range(40):
            if not np.isfinite(found[1][0]).all() or not np.abs(found[1][0]).max() < 1e12:
                raise Wrong("called again and again, `right` grows beyond all bounds.")
            found = _low_rank(step, own, found[1][0])
    errors = [np.linalg.norm(one[0][0] - mean) / np.linalg.norm(mean) for one in (first, found)]
    if errors[1] > 1.02 * least:
        told = f"after 41 calls with the same matrices the error is {errors[1]:.3g}, where {least:.3g} is possible"
        if np.isclose(*errors, rtol=1e-3):
            raise Wrong(
                f"{told}. It does not improve from call to call: what it returns as `right` should help the next."
            )
        raise Wrong(f"{told}.")


# --- dense_from

LINKS = {
    "100 Mbit/s": Link(1e-4, 12.5e6),
    "10 Gbit/s": Link(2e-5, 1.25e9),
    "a link without latency": Link(0.0, 1e9),
}
EXCHANGES = ((355_110, 3_551), (355_110, 355), (1_000_000, 40_000), (25_000_000, 25_000))


def reference_dense_from(numbers: int, sent: int, link: Link) -> float:
    """See the exercise `dense_from`; both are sent round a ring, values and positions take 4 bytes each."""
    each = link.seconds(8 * sent) - 2 * link.alpha  # what a dense round would have to cost in bytes
    if each <= 0:
        return math.inf
    ranks = max(2, math.floor(8 * numbers * link.beta / each) + 1)
    return float(ranks)


def _crossing(name: str) -> Callable[[Callable], None]:
    def judge(dense_from: Callable) -> None:
        link = LINKS[name]
        for numbers, sent in EXCHANGES:
            expected = reference_dense_from(numbers, sent, link)
            got = dense_from(numbers, sent, link)
            told = f"{sent:,} of {numbers:,} numbers, {name}: from how many ranks on it"
            if isinstance(got, float) and math.isinf(got) and got > 0:
                if math.isfinite(expected):
                    raise Wrong(f"{told} says never; at {expected:,.0f} ranks the dense ring is quicker.")
                continue
            got = number(got, told)
            if math.isinf(expected):
                raise Wrong(
                    f"{told} says {got:,.0f}. The dense ring is never quicker here: it has twice as many rounds, and "
                    "the latency of a round costs more than the sparse bytes. Return math.inf."
                )
            if abs(got - expected) <= 1:
                if got != round(got):
                    raise Wrong(f"{told} says {got:.6g}: ranks come in whole numbers.", 0.5)
                if got != expected:
                    why = (
                        f"it is the next number, {expected:,.0f}: quicker, not as quick"
                        if got < expected
                        else f"it is quicker with {expected:,.0f} already"
                    )
                    raise Wrong(f"{told} says {got:,.0f}; {why}.", 0.5)
                continue
            alternatives = {
                "positions are sent, too, and take as many bytes as the values.": (4 * sent, 1),
                "an all-reduce has two halves, each of N − 1 rounds.": (8 * sent, 2),
            }
            for sentence, (nbytes, halves) in alternatives.items():
                each = link.seconds(nbytes) - (2 / halves) * link.alpha
                wrong = 8 / halves * numbers * link.beta / each if each > 0 else math.inf
                if math.isfinite(wrong) and abs(got - wrong) <= 1.5:
                    raise Wrong(f"{told} says {got:,.0f}: {sentence}")
            without = numbers / sent
            if link.alpha and abs(got - without) <= 1.5:
                raise Wrong(
                    f"{told} says {got:,.0f}: that is right without latency; a ring all-reduce has more messages."
                )
            if 2 <= got < 1e7:
                seconds = [
                    (got - 1) * link.seconds(8 * sent),
                    allreduce.ring(got, 4 * numbers, link),
                ]
                raise Wrong(
                    f"{told} says {got:,.0f}, where the all-gather takes {seconds[0]:.4g} s and the dense ring "
                    f"{seconds[1]:.4g} s; it is from {expected:,.0f} on."
                )
            compare(got, expected, told)

    return judge


EXERCISES = Exercises(
    Exercise(
        "send_largest",
        Criterion("chosen", "The largest of all that waits", 0.5, _chosen),
        Criterion("kept", "Nothing is lost, nothing sent twice", 0.5, _nothing_lost),
    ),
    Exercise(
        "send_velocity",
        Criterion("everything", "All sent: ordinary momentum", 0.3, _without_compression),
        Criterion("arrival", "Late, but in full", 0.5, _on_arrival),
        Criterion("largest", "The largest of all that waits", 0.2, _largest_steps),
    ),
    Exercise(
        "low_rank_mean",
        Criterion("numbers", "Few numbers travel", 0.15, _few_numbers),
        Criterion("agree", "All ranks agree", 0.15, _agree),
        Criterion("exact", "Exact where two columns suffice", 0.25, _recovers),
        Criterion("projected", "The best that `right` allows", 0.2, _best_in_one),
        Criterion("improves", "Better from update to update", 0.25, _improves),
    ),
    Exercise(
        "dense_from",
        *(
            Criterion(name.replace(" ", "-").replace("/", "-"), name[0].upper() + name[1:], 1 / 3, _crossing(name))
            for name in LINKS
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
