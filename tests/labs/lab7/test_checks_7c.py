"""Notebook 7c: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import math

import pytest

from course_lib import movement
from labs.lab7_splitting_the_model.lessons import checks_7c, systolic
from labs.lab7_splitting_the_model.lessons.checks_7c import check, points

NOTEBOOK = "7c_data_movement"
EXERCISES = ("enough", "order", "exponents", "cycles")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


GAIN = "arithmetic * inputs * outputs - word * (inputs + outputs)"
LEAST = "math.ceil(word * inputs * outputs / per_example)"
BLOCKS = "[(short, side), (middle, other), (longest, 1), (middle, 1), (short, 1)]"
SIDE = "min(sizes[short], max(1, math.isqrt(words) - 2))"
OTHER = "max(1, min(sizes[middle], (words - 2 * side) // (side + 2)))"
ONES = "[(loop, 1) for loop in sizes]"
THIRD = "math.isqrt(words // 3)"
MINUS = "[-1] * len(loops)"
BOUNDS = "[(0, math.log(nest.sizes[loop], words)) for loop in loops]"
RESULT = "dict(zip(loops, found.x))"
WAVE = "batch + 2 * (side - 1)"
PLAIN = "tiles * (side + wave)"
BUFFERED = "side + (tiles - 1) * max(side, batch) + wave"
WRONG = {
    "weights alone": ("enough", [(GAIN, "arithmetic * inputs * outputs")], "weights are counted alone"),
    "no outputs": ("enough", [(GAIN, "arithmetic * inputs * outputs - word * inputs")], "outputs of every example"),
    "no inputs": ("enough", [(GAIN, "arithmetic * inputs * outputs - word * outputs")], "inputs of every example"),
    "outputs read, too": (
        "enough", [(GAIN, "arithmetic * inputs * outputs - word * (inputs + 2 * outputs)")], "written once",
    ),
    "rounded down": ("enough", [(LEAST, "int(word * inputs * outputs / per_example)")], "round up"),
    "not rounded": ("enough", [(LEAST, "word * inputs * outputs / per_example")], "whole number"),
    "a negative batch": ("enough", [("per_example > 0", "True")], "negative"),
    "always none": ("enough", [(LEAST, "None")], "is enough"),
    "never none": ("enough", [("None", "10**6")], "no batch is"),
    "no blocks": ("order", [(BLOCKS, ONES)], "thrown out before it is used again"),
    "three equal blocks": (
        "order", [(BLOCKS, f"[(loop, max(1, {THIRD})) for loop in sizes] + {ONES}")],
        "nearly all of the room to one array",
    ),
    "a block of the longest loops": (
        "order",
        [(BLOCKS, "[(longest, math.isqrt(words) - 2), (middle, math.isqrt(words) - 2), (short, 1), (middle, 1), "
                  "(longest, 1)]")],
        "the room that the short loop leaves",
    ),
    "a block as large as the cache": (
        "order", [(SIDE, "min(sizes[short], math.isqrt(words))"), (OTHER, "min(sizes[middle], math.isqrt(words))")],
        "the block nearly fits",
    ),
    "no step of 1": ("order", [(BLOCKS, "[(short, 2), (middle, 1), (longest, 1)]")], "one of 1 for each"),
    "a loop is missing": ("order", [(BLOCKS, "[(short, 1), (middle, 1)]")], "the loops are i, p and j"),
    "loops only": ("order", [(BLOCKS, "list(sizes)")], "pairs of a loop and a step"),
    "the largest as the smallest": ("exponents", [(MINUS, "[1] * len(loops)")], "looks for the smallest"),
    "loops without ends": ("exponents", [(BOUNDS, "None")], "what does that say of the exponent"),
    "lengths as bounds": (
        "exponents", [(BOUNDS, "[(0, nest.sizes[loop]) for loop in loops]")], "what does that say of the exponent",
    ),
    "natural logarithms": (
        "exponents", [(BOUNDS, "[(0, math.log(nest.sizes[loop])) for loop in loops]")], "to the base M",
    ),
    "lengths returned": (
        "exponents", [(RESULT, "{loop: words**power for loop, power in zip(loops, found.x)}")], "return the exponents",
    ),
    "one condition for all": (
        "exponents",
        [("np.array(held, float)", "np.sum(held, axis=0, keepdims=True)"), ("[1] * len(held)", "[1]")],
        "one that all arrays share",
    ),
    "halves": (
        "exponents", [(RESULT, "{loop: min(0.5, end) for loop, (_, end) in zip(loops, longest)}")], "may differ",
    ),
    "a part of M / 3 words": (
        "exponents", [("[1] * len(held)", "[1 - math.log(3, words)] * len(held)")], "may have M words",
    ),
    "a list": ("exponents", [(RESULT, "list(found.x)")], "a dict with an exponent"),
    "M in place of its power": ("exponents", [("[1] * len(held)", "[words] * len(held)")], "words of"),
    "no loading": ("cycles", [(PLAIN, "side + tiles * wave - side")], "weights"),
    "one way only": ("cycles", [(WAVE, "batch + side - 1")], "two ways"),
    "a side for both ways": ("cycles", [(WAVE, "batch + side")], "to the right and side"),
    "a step too many": ("cycles", [(WAVE, "batch + 2 * side")], "side − 1 steps"),
    "one wave for all": ("cycles", [(PLAIN, "tiles * (side + batch) + wave - batch")], "until the one before it"),
    "one tile": ("cycles", [(PLAIN, "side + wave")], "there are several"),
    "loaded in no time": ("cycles", [(BUFFERED, "side + tiles * batch + wave - batch")], "next weights"),
    "waits after the last": (
        "cycles", [(BUFFERED, "side + tiles * max(side, batch) + wave - batch")], "no weights to wait for",
    ),
    "as without": ("cycles", [(BUFFERED, PLAIN)], "while the units multiply"),
    "every wave runs out": (
        "cycles", [(BUFFERED, "side + (tiles - 1) * max(side, batch) + batch + tiles * (wave - batch)")],
        "only once is it waited for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_three_equal_blocks_get_a_part(answer):
    three = f"[(loop, max(1, {THIRD})) for loop in sizes] + {ONES}"
    assert 1.5 < points(answer(NOTEBOOK, "order", (BLOCKS, three)), 5) < 3.5


def test_other_good_orders_are_right():
    def order(sizes, words):
        """The best of many, tried with a model of the words."""
        best = None
        for a, b, c in (("i", "p", "j"), ("i", "j", "p"), ("p", "j", "i")):
            for side in range(1, sizes[a] + 1):
                for other in range(1, sizes[b] + 1):
                    if side * other + 2 * (side + other) > words:
                        break
                    whole = math.prod(sizes.values())
                    words_moved = whole / side + whole / other + sizes[a] * sizes[b]
                    if best is None or words_moved < best[0]:
                        best = words_moved, [(a, side), (b, other), (c, 1), (b, 1), (a, 1)]
        return best[1]

    assert points(order, 5) == 5.0


def test_infinity_is_none():
    def enough(*layer):
        return checks_7c.WIDE.get(layer, math.inf)

    assert points(enough, 3) == 3.0


@pytest.mark.parametrize("layer", [*checks_7c.WIDE, *checks_7c.NARROW])
def test_the_smallest_batch_is_the_smallest(layer):
    inputs, outputs, arithmetic, word = layer
    found = checks_7c.WIDE.get(layer)

    def memory_over_arithmetic(batch):
        return word * (inputs * outputs + batch * (inputs + outputs)) / (arithmetic * batch * inputs * outputs)

    if found is None:
        assert memory_over_arithmetic(10**9) >= 1
    else:
        assert memory_over_arithmetic(found) <= 1 + 1e-9 < memory_over_arithmetic(found - 1)


@pytest.mark.parametrize("buffered", [False, True])
def test_the_cycles_are_what_the_array_takes(answer, buffered):
    known = {**checks_7c.BUFFERED, **checks_7c.STARVED} if buffered else checks_7c.ONE_BY_ONE
    cycles = answer(NOTEBOOK, "cycles")
    for case, expected in known.items():
        assert cycles(*case, buffered) == expected
        if case != checks_7c.ENDLESS:
            assert systolic.layer(*case, buffered).cycles == expected
    for case in ((16, 3, 16), (9, 4, 8)):
        assert systolic.layer(*case, buffered).cycles == cycles(*case, buffered)


def test_tile_and_inequality_have_the_same_optimum(answer):
    exponents = answer(NOTEBOOK, "exponents")
    for nest, words in (*checks_7c.PRODUCTS, *checks_7c.SHORTER, *checks_7c.OTHERS):
        assert sum(exponents(nest, words).values()) == pytest.approx(checks_7c.most(nest, words))


def test_the_words_of_a_product_are_at_least_those_by_its_shortest_loop():
    for batch in (1, 3, 7, 20, 200):
        sums = checks_7c.most(movement.matrix_product(batch, 500, 500), 256)
        assert 256 ** (sums - 1) == pytest.approx(min(16, batch))


def test_the_simulation_is_no_formula(capsys):
    def cycles(batch, tiles, side, buffered):
        return systolic.layer(batch, tiles, side, buffered).cycles

    assert points(cycles, 4) < 4
    assert "too many to simulate" in capsys.readouterr().out
