"""Checks of notebook 5b: a mean that is rounded twice, the factor of a tensor, bits for a budget."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from course_lib.collectives import simulated
from course_lib.collectives.simulated import DeadlockError, Outcome
from course_lib.notebook.answers import array, case, name_mistake, number, several, short
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab5_precision_and_memory.lessons import narrow_training as training
from labs.lab5_precision_and_memory.lessons import narrow_wire as wire

# --- mean_of_all

FORM = (3, 1)  # up to 12
CAST = training.casting(FORM)


def _parts(ranks: int, length: int) -> np.ndarray:
    """What the ranks hold [N, L]: of all sizes that the format has; some of their sums are beyond it."""
    random = np.random.default_rng([ranks, length])
    signs = np.where(random.random(length) < 0.5, -1, 1)  # mostly common to all ranks, as gradients' are
    size = random.uniform(0, 1, (ranks, length)) * np.exp2(random.uniform(-3, 3.4, length))
    return (signs * size).astype(np.float32)


def _on_ranks(answer: Callable, parts: np.ndarray) -> Outcome:
    def program(me: simulated.Rank, x: np.ndarray) -> Any:
        with np.errstate(all="ignore"):  # of each thread
            before = x.copy()
            result = answer(me, x, CAST)
            if not np.array_equal(x, before):
                raise Wrong("x is changed in place: make a new array.")
            return result

    try:
        return simulated.run(program, [part.copy() for part in parts])
    except DeadlockError as error:
        raise Wrong(f"{error} Send to all first, then receive.") from error


def _means(answer: Callable, ranks: int, length: int) -> tuple[np.ndarray, list[np.ndarray]]:
    parts = _parts(ranks, length)
    return parts, [
        array(result, (length,), f"rank {rank}") for rank, result in enumerate(_on_ranks(answer, parts).results)
    ]


def _in_format(mean_of_all: Callable) -> None:
    outcome = _on_ranks(mean_of_all, _parts(4, 32))
    if not outcome.messages:
        raise Wrong("nothing is sent at all.")
    for message in outcome.messages:
        if not np.array_equal(CAST(message.payload), message.payload, equal_nan=True):
            raise Wrong(
                f"what rank {message.source} sends in round {message.round + 1} is not in the format: whatever travels "
                "has to be `cast` before, sums too."
            )


def _few_numbers(mean_of_all: Callable) -> None:
    for ranks, length in ((4, 32), (5, 40), (2, 6)):
        sent = np.zeros(ranks, int)
        for message in _on_ranks(mean_of_all, _parts(ranks, length)).messages:
            sent[message.source] += message.payload.size
        allowed = 2 * (ranks - 1) * length // ranks
        most = int(sent.max())
        if most <= allowed:
            continue
        told = (
            f"of {length} numbers on {ranks} ranks, rank {sent.argmax()} sends {most}; in a ring each sends {allowed}: "
        )
        if most == (ranks - 1) * length and (sent == most).all():
            raise Wrong(told + "not everybody needs all of what everybody has. Who could add up what?")
        if most == (ranks - 1) * length:
            raise Wrong(told + "one rank does the work of all. Share the numbers out.")
        raise Wrong(told + "each number has to go to one rank, and its mean to the others.")


def _rounded_twice(mean_of_all: Callable) -> None:
    for ranks, length in ((2, 24), (4, 32), (8, 64)):
        parts, results = _means(mean_of_all, ranks, length)
        rounded = CAST(parts)
        exact = rounded.sum(0) / np.float32(ranks)  # few bits: float32 holds these sums exactly
        mistakes = {
            "that is the ring's result: each partial sum is rounded. Add up unrounded, on one rank.": training.ring(
                parts, CAST
            ),
            "the sum is rounded, and then divided: a sum that is beyond the format becomes infinite. What has to fit "
            "into the format is the mean.": CAST(rounded.sum(0)) / np.float32(ranks),
            "the parts are divided before they are rounded: the small ones are lost. Divide the sum.": CAST(
                CAST(parts / np.float32(ranks)).sum(0)
            ),
            "it is the sum; the mean is asked for.": rounded.sum(0),
            "the sum is rounded and not divided; the mean is asked for.": CAST(rounded.sum(0)),
            "the mean is not rounded at all; yet other ranks have to be sent it.": exact,
            "the parts are not rounded before they are added up.": CAST(parts.sum(0) / np.float32(ranks)),
        }
        for rank, result in enumerate(results):
            with case(f"on {ranks} ranks"), np.errstate(all="ignore"):
                if not np.array_equal(result, CAST(exact)):
                    name_mistake(result, CAST(exact), mistakes)
                    place = int(np.flatnonzero(result != CAST(exact))[0])
                    raise Wrong(
                        f"rank {rank} returns {result[place]:g} for the parts "
                        f"{', '.join(f'{x:g}' for x in rounded[:, place])} (rounded); their mean, rounded, is "
                        f"{CAST(exact)[place]:g}."
                    )


def _agree(mean_of_all: Callable) -> None:
    _, (first, *others) = _means(mean_of_all, 4, 32)
    for rank, other in enumerate(others, 1):
        if not np.array_equal(first, other, equal_nan=True):
            count = int(np.sum(first != other))
            raise Wrong(
                f"ranks 0 and {rank} return different numbers in {count} of {len(first)} places, so their weights will "
                "go apart: who adds up must itself go on with what it sends to the others."
            )


def _any_length(mean_of_all: Callable) -> None:
    for ranks, length in ((4, 10), (4, 3), (3, 7), (1, 5)):
        with case(f"{ranks} ranks, {length} numbers"):
            parts, results = _means(mean_of_all, ranks, length)
            expected = CAST(CAST(parts).sum(0) / np.float32(ranks))
            for rank, result in enumerate(results):
                if not np.allclose(result, expected, rtol=0.5, atol=0.1):  # a mean of three may be rounded otherwise
                    raise Wrong(f"rank {rank} returns something else than the mean: do all numbers belong to a rank?")


# --- factor

TOP = wire.top(FORM)


def _asked(answer: Callable, parts: Sequence[np.ndarray], top: float = TOP) -> list[float]:
    """What each rank returns."""
    asked = [0] * len(parts)

    def program(me: simulated.Rank, part: np.ndarray) -> Any:
        join = wire.largest_of_all(me)

        def largest_of_all(value: Any) -> float:
            if np.size(value) != 1:
                raise Wrong(
                    f"`largest_of_all` is given {np.size(value):,} numbers: that costs as much as the gradient. One is "
                    "enough."
                )
            asked[me.rank] += 1
            return join(float(np.asarray(value).reshape(())))

        with np.errstate(all="ignore"):  # of each thread
            return answer(part.copy(), me.size, top, largest_of_all)

    try:
        outcome = simulated.run(program, parts)
    except DeadlockError as error:
        raise Wrong(
            f"{error} Some ranks ask `largest_of_all` and others don't: every rank has to, whatever its gradient is."
        ) from error
    if not outcome.messages:
        raise Wrong("no rank asks `largest_of_all`: none can know what the others have.")
    if max(asked) > 1:
        raise Wrong(f"`largest_of_all` is asked {max(asked)} times: each rank sends one number. Which is enough?")
    found = [number(value, f"rank {rank}") for rank, value in enumerate(outcome.results)]
    for rank, value in enumerate(found):
        if value <= 0:
            raise Wrong(f"rank {rank} returns {value:g}: a factor is positive.")
    return found


def _gradients(ranks: int, scale: float, seed: int = 0) -> list[np.ndarray]:
    """Gradients whose largest numbers stand in the same place; the largest of all is negative, and not on rank 0."""
    random = np.random.default_rng([ranks, seed])
    parts = random.normal(0, 0.1, (ranks, 50)).clip(-0.15, 0.15)
    parts[:, 7] = -np.linspace(0.6, 1.0, ranks)
    parts[:, 3] = 0.15
    return list((scale * parts).astype(np.float32))


SCALES = (1.0, 0.037, 2.0**-9, 300.0)


def _power_of_two(factor: Callable) -> None:
    for scale in SCALES:
        value = _asked(factor, _gradients(4, scale))[0]
        if np.frexp(value)[0] != 0.5:
            raise Wrong(
                f"it returns {value:g}. Multiplying by it and dividing by it again rounds every number twice more. "
                "Which factors round nothing?"
            )


def _same_everywhere(factor: Callable) -> None:
    for scale in SCALES:
        found = _asked(factor, _gradients(4, scale))
        if len(set(found)) > 1:
            raise Wrong(
                f"the ranks multiply by {', '.join(f'{value:g}' for value in found)}: what they send can't be added up."
            )


def _room(factor: Callable) -> None:
    for ranks in (2, 4, 8, 3):
        for scale in SCALES:
            parts = np.array(_gradients(ranks, scale))
            value = max(_asked(factor, list(parts)))
            size = float(np.abs(parts).max())
            if ranks * size * value <= TOP:
                continue
            told = f"on {ranks} ranks the largest number is {size:.3g} and the factor {value:g}, the top {TOP:g}: "
            if size * value <= TOP:
                raise Wrong(told + "what a rank sends fits, but not the sum that comes of it round the ring.")
            if ranks * float(parts.max()) * value <= TOP:
                raise Wrong(told + "a negative number can be large, too.")
            raise Wrong(told + "it is beyond the top at once.")


def _high(factor: Callable) -> None:
    for ranks in (2, 4, 8):
        for scale in SCALES:
            parts = np.array(_gradients(ranks, scale))
            value = min(_asked(factor, list(parts)))
            octaves = np.log2(TOP / (ranks * np.abs(parts).max() * value))
            if octaves > 1:
                raise Wrong(
                    f"on {ranks} ranks the sum stays {octaves:.1f} octaves below the top, and as many are lost at the "
                    "bottom: a factor twice as large would have done."
                )


def _zeros(factor: Callable) -> None:
    parts = _gradients(3, 1.0)
    parts[1][:] = 0
    with case("rank 1 has nothing but zeros"):
        _asked(factor, parts)
    with case("all ranks have nothing but zeros"):
        try:
            _asked(factor, [np.zeros(5, np.float32)] * 3)
        except ZeroDivisionError as error:
            raise Wrong("it divides by 0.") from error


# --- choose

CASES = ((2, 8, 0.5), (8, 8, 1.0), (4, 12, 0.5), (8, 14, 2.0))  # ranks, bits, and how unlike the gradients are in size
CLOSE, DRAWS, LENGTH = 1.15, 3, 8_000  # CLOSE: times the smallest error


def words(way: str, ranks: int) -> Fraction:
    """Numbers that a rank sends for each number of the gradient."""
    return Fraction(ranks - 1) if way == "once" else Fraction(2 * (ranks - 1), ranks)


@functools.lru_cache
def drawn(ranks: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Something like gradients [N, L], of two tensors of unlike sizes; and the ends of the tensors.

    Args:
        spread: standard deviation of the logarithm of their sizes, apart from that of a normal distribution.
    """
    random, second = np.random.default_rng([ranks, seed]), 3 * LENGTH // 4

    def values(*shape: int) -> np.ndarray:
        return random.normal(size=shape) * np.exp(spread * random.normal(size=shape))

    parts = values(LENGTH) + values(ranks, LENGTH)
    parts[:, second:] *= 0.02
    return parts.astype(np.float32), np.array([0, second, LENGTH])


def _within(ranks: int, budget: int, spread: float) -> Callable[[Callable], str]:
    def mean_error(first: int, way: str, form: wire.Format) -> float:
        seeds = range(first, first + DRAWS)
        return float(np.mean([training.error(*drawn(ranks, spread, seed), form, "each", way) for seed in seeds]))

    def judge(choose: Callable) -> str:
        answer = choose(budget, ranks, lambda way, form: mean_error(1, way, form))
        way, form = several(answer, "the way", "the format")
        if not isinstance(way, str) or way not in training.WAYS:
            raise Wrong(f"there is no way {short(way)}: it is one of {', '.join(training.WAYS)}.")
        exponent, mantissa = several(form, "exponent bits", "mantissa bits", what="the format")
        if not (2 <= number(exponent) <= 8 and 0 <= number(mantissa) <= 23):
            raise Wrong(f"the format {short(form)} is none: 2 to 8 bits of exponent, 0 to 23 of mantissa.")
        form = (int(exponent), int(mantissa))
        each, spent = wire.bits(form), wire.bits(form) * words(way, ranks)
        if spent > budget:
            raise Wrong(
                f"by the way {way!r} a rank of {ranks} sends {float(words(way, ranks)):g} numbers for each of the "
                f"gradient, of {each} bits here: {float(spent):g} bits, where {budget} are allowed."
            )
        best_way, best = min(_affordable(ranks, budget), key=lambda one: mean_error(11, *one))
        mine, least = mean_error(11, way, form), mean_error(11, best_way, best)
        if mine <= CLOSE * least:
            return f"{way}, {wire.name(form)}: {float(spent):g} bits, an error of {mine:.2g}."
        told = (
            f"{way} with {wire.name(form)} has an error of {mine:.2g}, on gradients that you had not seen; there is "
            f"{least:.2g}. "
        )
        if way != best_way:
            why = {
                "once": "With so few ranks a mean need not travel at all.",
                "twice": "Count what a rank sends by each way: what it saves, it can spend on bits.",
                "ring": "",
            }[best_way]
            raise Wrong(told + f"Another way does better. {why}".strip())
        if each < wire.bits(best):
            raise Wrong(told + f"The budget is not spent: {wire.bits(best)} bits a number are affordable, not {each}.")
        raise Wrong(told + "The bits are as many, but split otherwise between exponent and mantissa.")

    return judge


def _affordable(ranks: int, budget: int) -> list[tuple[str, wire.Format]]:
    """All ways with all splits of the bits that they can afford."""
    return [
        (way, (exponent, each - 1 - exponent))
        for way in training.WAYS
        for each in [int(budget / words(way, ranks))]
        for exponent in range(2, min(each, 9))
    ]


EXERCISES = Exercises(
    Exercise(
        "mean_of_all",
        Criterion("format", "What travels is in the format", 0.2, _in_format),
        Criterion("numbers", "No rank sends more than in a ring", 0.25, _few_numbers),
        Criterion("twice", "Rounded twice, and the sum need not fit", 0.3, _rounded_twice),
        Criterion("agree", "All ranks return the same", 0.15, _agree),
        Criterion("lengths", "Any length, any number of ranks", 0.1, _any_length),
    ),
    Exercise(
        "factor",
        Criterion("power", "The factor itself rounds nothing", 0.2, _power_of_two),
        Criterion("same", "The same on all ranks", 0.2, _same_everywhere),
        Criterion("room", "No sum overflows", 0.25, _room),
        Criterion("high", "No octave is wasted", 0.2, _high),
        Criterion("zeros", "A gradient that is 0", 0.15, _zeros),
    ),
    Exercise(
        "choose",
        *(
            Criterion(
                f"{ranks}-{budget}", f"{ranks} ranks, {budget} bits", 1 / len(CASES), _within(ranks, budget, spread)
            )
            for ranks, budget, spread in CASES
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
