"""Checks of notebook 7c: batches that memory's energy asks for, an order that moves few words, tiles, and cycles."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping

from course_lib.notebook.answers import case, compare, items, number, returned, several, whole
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab7_splitting_the_model.lessons import movement

# --- enough

BITS_64, BITS_16 = (25, 2_560), (0.8, 640)
WIDE = {  # the layer → the smallest batch
    (4_096, 1_000, *BITS_64): 118,
    (1_024, 1_024, *BITS_64): 128,
    (784, 3_000, *BITS_64): 123,
    (8_192, 8_192, *BITS_16): 995,
}
NARROW = ((128, 128, *BITS_64), (4_096, 100, *BITS_64), (1_024, 1_024, *BITS_16))


def _smallest(least: float) -> int:
    return math.ceil(least - 1e-9)


def _told(inputs: int, outputs: int, arithmetic: float, word: float) -> str:
    return f"{inputs:,} inputs, {outputs:,} outputs, {arithmetic:g} and {word:,} pJ"


def _wide(enough: Callable) -> None:
    for layer, right in WIDE.items():
        inputs, outputs, arithmetic, word = layer
        found = enough(*layer)
        with case(_told(*layer)):
            if found is None or number(found, finite=False) == math.inf:
                raise Wrong(f"a batch of {right} is enough.")
            found, weights = number(found), inputs * outputs
            if found != int(found):
                raise Wrong(f"{found:g} examples? A batch is a whole number: round up.")
            only = [arithmetic * weights - word * kept for kept in (0, inputs, outputs, inputs + 2 * outputs)]
            mistakes = {
                "the weights are counted alone: the inputs and outputs of every example move, too.": only[0],
                "the outputs of every example have to be written to DRAM.": only[1],
                "the inputs of every example have to be read from DRAM.": only[2],
                "an output is written once, and nothing of it has to be read.": only[3],
            }
            batches = {why: _smallest(word * weights / gain) for why, gain in mistakes.items() if gain > 0}
            batches["with one example fewer memory takes more than arithmetic: round up."] = right - 1
            compare(found, right, "the smallest batch", batches)


def _narrow(enough: Callable) -> None:
    for layer in NARROW:
        found = enough(*layer)
        if found is None or number(found, finite=False) == math.inf:
            continue
        with case(_told(*layer)):
            found = number(found)
            if found < 0:
                raise Wrong(f"a batch of {found:g}? What does a negative answer of the equation mean?")
            raise Wrong(
                f"{found:g} is not enough, and no batch is: every example takes more energy for moving its inputs and "
                "outputs than for computing with them. Return None."
            )


# --- order

LONG = (((24, 24, 24), 108), ((20, 31, 17), 60))
SHORT = (((2, 64, 64), 64), ((40, 3, 40), 100), ((48, 48, 2), 64))
LONG_LIMIT, FAIR, SHORT_LIMIT = 1.75, 3.0, 1.25  # times the lower bound


def _counted(order: Callable, shape: tuple[int, int, int], words: int) -> tuple[float, str]:
    """Words over the lower bound, and how often each array comes on average, in words."""
    nest = movement.matrix_product(*shape)
    found = returned(order(dict(nest.sizes), words))
    try:
        pairs = [several(pair, "a loop", "a step") for pair in items(found, "pairs are expected")]
        steps = {loop for loop, _ in pairs}
    except (TypeError, Wrong):
        raise Wrong('it should return pairs of a loop and a step, as in [("i", 8), ("i", 1), …].') from None
    pairs = [(loop, whole(step, "as a step it")) for loop, step in pairs]
    if steps != set(nest.sizes) or not all(step for _, step in pairs):
        raise Wrong("the loops are i, p and j, each in at least one pair, and steps are 1 or more.")
    try:
        fetched = movement.moved(nest, pairs, words)
    except ValueError as error:
        raise Wrong(f"{error}.") from None
    total, least = sum(fetched.values()), movement.least_words(nest, words)
    larger = sum(movement.moved(nest, pairs, words * 5 // 4).values())
    if total > 1.5 * larger:
        raise Wrong(
            f"{total / least:.2f} times the lower bound. In a cache a quarter larger this order would move "
            f"{larger / total:.0%} of these words: the block nearly fits. What passes by it needs room, too, and LRU "
            "keeps that the longest which came last."
        )
    often = ", ".join(f"{name} {count / nest.words(name):.1f} times" for name, count in fetched.items())
    return total / least, often


def _case(shape: tuple[int, int, int], words: int) -> str:
    return "i, p, j of " + ", ".join(map(str, shape)) + f" in a cache of {words} words"


def _any_order(order: Callable) -> str:
    ratio, _ = _counted(order, (7, 5, 6), 40)
    return f"The words of a small product are {ratio:.1f} times the lower bound."


def _long(order: Callable) -> str:
    worst = 0.0
    for shape, words in LONG:
        with case(_case(shape, words)):
            ratio, often = _counted(order, shape, words)
            if ratio > LONG_LIMIT:
                why = (
                    "What comes and goes row by row needs no whole block: give nearly all of the room to one array."
                    if ratio <= FAIR
                    else "An array that comes many times over is thrown out before it is used again: put a smaller "
                    "block of it inside the loop that it does not depend on."
                )
                raise Wrong(
                    f"{ratio:.2f} times the lower bound, at most {LONG_LIMIT} is asked for. On average a word of an "
                    f"array is fetched: {often}. {why}",
                    0.5 if ratio <= FAIR else 0.0,
                )
        worst = max(worst, ratio)
    return f"At most {worst:.2f} times the lower bound."


def _short(order: Callable) -> str:
    worst = 0.0
    for shape, words in SHORT:
        with case(_case(shape, words)):
            ratio, often = _counted(order, shape, words)
            if ratio > SHORT_LIMIT:
                large = max(movement.matrix_product(*shape).arrays, key=movement.matrix_product(*shape).words)
                raise Wrong(
                    f"{ratio:.2f} times the lower bound, at most {SHORT_LIMIT} is asked for. On average a word of an "
                    f"array is fetched: {often}. Here {large} is by far the largest: it should come once, and the room "
                    "that the short loop leaves should spare the others."
                )
        worst = max(worst, ratio)
    return f"At most {worst:.2f} times the lower bound."


# --- exponents

PRODUCTS = (movement.matrix_product(4_096, 4_096, 4_096), 256), (movement.matrix_product(900, 500, 700), 1_024)
SHORTER = (
    (movement.matrix_product(4, 4_096, 4_096), 256),
    (movement.matrix_product(4_096, 6, 900), 1_024),
    (movement.matrix_product(3, 5, 2), 64),
    (movement.matrix_product(2, 3, 5_000), 256),
)
OTHERS = (
    (movement.matrix_vector(4_096, 900), 256),
    (movement.all_pairs(5_000, 3_000), 256),
    (movement.pointwise_convolution(32, 784, 3, 16), 1_024),
)


def most(nest: movement.Nest, words: int) -> float:
    """The largest sum of exponents, which is the smallest sum of the dual program: see `movement.inequality`."""
    found = movement.inequality(nest, words)
    short = sum(t * math.log(nest.sizes[loop], words) for loop, t in found.loops.items())
    return sum(found.arrays.values()) + short


def _exponents(nests: tuple) -> Callable[[Callable], None]:
    def judge(exponents: Callable) -> None:
        for nest, words in nests:
            sizes = ", ".join(f"{loop} {size:,}" for loop, size in nest.sizes.items())
            with case(f"arrays {', '.join(nest.arrays.values())}, loops {sizes}, M = {words:,}"):
                _feasible_and_largest(nest, words, returned(exponents(copy.deepcopy(nest), words)))

    return judge


def _feasible_and_largest(nest: movement.Nest, words: int, found: object) -> None:
    if not isinstance(found, dict) or set(found) != set(nest.sizes):
        raise Wrong("it should return a dict with an exponent for each loop, as in {'i': 0.5, …}.")
    powers = {loop: number(power, f"for {loop} it") for loop, power in found.items()}
    slack, best = 1e-6, most(nest, words)
    if max(powers.values()) >= 2:
        raise Wrong("these look like lengths: return the exponents, with which a tile is M to the power of them long.")
    for loop, power in powers.items():
        if power < -slack:
            raise Wrong(f"{loop} gets {power:.3g}: a tile is at least 1 long, and its exponent at least 0.")
        if power > math.log(nest.sizes[loop], words) + slack:
            raise Wrong(
                f"the tile is {words**power:.0f} long in {loop}, which takes only {nest.sizes[loop]:,} values: what "
                "does that say of the exponent, to the base M?"
            )
    for array, loops in nest.arrays.items():
        if sum(powers[loop] for loop in loops) > 1 + slack:
            held = words ** sum(powers[loop] for loop in loops)
            raise Wrong(f"the tile needs {held:,.0f} words of {array}, and the cache holds {words:,}.")
    total = sum(powers.values())
    if total < slack < best:
        raise Wrong("every exponent is 0, a tile of one iteration. `linprog` looks for the smallest value.")
    if total < best - slack:
        raise Wrong(
            f"the tile has M to the power of {total:.3g} iterations; one that fits has {best:.3g}. Each array's part "
            "may have M words, and the lengths may differ. Is there a condition too many, or one that all arrays share?"
        )


# --- cycles

ENDLESS = (10**13, 3, 16)  # a formula takes no longer for it
# batch, tiles and side → cycles
ONE_BY_ONE = {(5, 1, 4): 15, (1, 1, 16): 47, (5, 3, 4): 45, (64, 8, 16): 880, ENDLESS: 30_000_000_000_138}
BUFFERED = {(64, 8, 16): 558, (20, 3, 4): 70, (5, 1, 4): 15, ENDLESS: 30_000_000_000_046}
STARVED = {(1, 8, 16): 159, (5, 3, 8): 43, (3, 2, 4): 17}


def _cycles(cases: Mapping[tuple[int, int, int], int], buffered: bool) -> Callable[[Callable], None]:
    def judge(cycles: Callable) -> None:
        for (batch, tiles, side), expected in cases.items():
            told = f"batch {batch}, {tiles} tiles, side {side}, {'' if buffered else 'not '}buffered: the cycles"
            fill = 2 * (side - 1)
            mistakes = {
                "the first weights have to be loaded, too.": expected - side,
                "the last sum has side − 1 columns to go to the right and side − 1 rows down: two ways.": (
                    expected - (side - 1) * (1 if buffered else tiles)
                ),
                "the last sum goes side − 1 columns to the right and side − 1 rows down.": (
                    expected - (side - 2) * (1 if buffered else tiles)
                ),
                "a wave that crosses `side` units makes side − 1 steps in each direction.": (
                    expected + (2 if buffered else 2 * tiles)
                ),
                "one cycle too many or too few in a direction: count the pictures.": (
                    expected + (1 if buffered else tiles)
                ),
            }
            if buffered:
                mistakes |= {
                    "a batch shorter than `side` has to wait for the next weights.": side + tiles * batch + fill,
                    "after the last tile there are no weights to wait for.": side + tiles * max(batch, side) + fill,
                    "that is without a second register: weights are loaded while the units multiply.": (
                        tiles * (side + batch + fill)
                    ),
                    "the wave of a tile runs out while the next one enters: only once is it waited for.": (
                        side + (tiles - 1) * max(batch, side) + batch + tiles * fill
                    ),
                }
            else:
                mistakes |= {
                    "without a second register every tile waits until the one before it is through.": (
                        tiles * (side + batch) + fill
                    ),
                    "every tile has its weights to load.": side + tiles * (batch + fill),
                    "that is one tile; there are several.": side + batch + fill,
                }
            try:
                found = number(cycles(batch, tiles, side, buffered))
            except MemoryError:
                raise Wrong(f"{told} take a formula: that many are too many to simulate.") from None
            compare(found, expected, told, mistakes)

    return judge


EXERCISES = Exercises(
    Exercise(
        "enough",
        Criterion("wide", "Wide layers", 0.6, _wide),
        Criterion("narrow", "Layers for which no batch is enough", 0.4, _narrow),
    ),
    Exercise(
        "order",
        Criterion("order", "All iterations, each once", 0.1, _any_order),
        Criterion("long", "Long loops", 0.5, _long),
        Criterion("short", "A short loop", 0.4, _short),
    ),
    Exercise(
        "exponents",
        Criterion("products", "Large products", 0.35, _exponents(PRODUCTS)),
        Criterion("short", "Short loops", 0.35, _exponents(SHORTER)),
        Criterion("others", "Other arrays", 0.3, _exponents(OTHERS)),
    ),
    Exercise(
        "cycles",
        Criterion("plain", "One tile after the other", 0.4, _cycles(ONE_BY_ONE, False)),
        Criterion("buffered", "A second register, large batches", 0.3, _cycles(BUFFERED, True)),
        Criterion("starved", "A second register, small batches", 0.3, _cycles(STARVED, True)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
