"""Lab 7: other answers, wrong and right, and what the checks compare with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from course_lib.parallel import pipeline, schedules
from labs.lab7_splitting_the_model.lessons import checks_7a, checks_7b, checks_7c, movement, systolic
from tests.labs.lab7.mistakes_7c import MISTAKES


def test_room_that_all_ranks_share_is_named(capsys):
    def route(group, tokens, choice, capacity, expert):
        places = [np.flatnonzero(choice == rank) for rank in range(group.size)]
        came = group.all_to_all([tokens[some] for some in places])
        every = np.concatenate(came)
        made = np.concatenate([expert(every[:capacity]), np.zeros_like(every[capacity:])])
        out = np.zeros(tokens.shape)
        ends = np.cumsum([len(some) for some in came])[:-1]
        for some, back in zip(places, group.all_to_all(np.split(made, ends))):
            out[some] = back
        return out

    assert checks_7a.points(route, 4) < 4
    assert "of all ranks together" in capsys.readouterr().out


def test_another_way_of_the_loss_is_right():
    def cut_cross_entropy(group, logits, labels):
        n, width = logits.shape
        top, place = logits.max(1), labels - group.rank * width
        here = (place >= 0) & (place < width)
        right = np.where(here, logits[np.arange(n), place * here], -np.inf)
        mine = np.stack([top, np.exp(logits - top[:, None]).sum(1), right], axis=1)[..., None]
        tops, sums, rights = np.moveaxis(group.all_gather(mine), 1, 0)
        most = tops.max(1)
        total = (sums * np.exp(tops - most[:, None])).sum(1)
        slope = np.exp(logits - most[:, None]) / total[:, None]
        slope[here, place[here]] -= 1
        return np.mean(np.log(total) + most - rights.max(1)), slope / n

    assert checks_7a.points(cut_cross_entropy, 5) == 5.0


GREEDY = """
def cuts(seconds, stages):
    ends, held = [], 0
    for layer, time in enumerate(seconds):
        left = len(seconds) - layer
        if layer and len(ends) < stages - 1 and (held >= sum(seconds) / stages or left == stages - 1 - len(ends)):
            ends.append(layer)
            held = 0
        held += time
    return ends
"""


def test_filling_up_to_the_mean_is_named(capsys):
    space = {}
    exec(GREEDY, space)
    assert 0 < checks_7b.points(space["cuts"], 5) < 5
    assert "leaves the rest to the last" in capsys.readouterr().out


@pytest.mark.slow
def test_all_plans_are_too_many(capsys):
    """Not tried at a hundred layers, where it would never end."""
    calls = []

    def cuts(seconds, stages):
        calls.append(len(seconds))
        every = itertools.combinations(range(1, len(seconds)), stages - 1)
        return list(min(every, key=lambda plan: checks_7b.slowest(seconds, plan)))

    assert checks_7b.points(cuts, 10) == pytest.approx(7)
    assert max(calls) == 30 and "don't try them all" in capsys.readouterr().out


def test_the_best_plan_is_the_best_of_all():
    random = np.random.default_rng(0)
    for layers, stages in ((6, 3), (8, 2), (9, 5), (4, 4), (3, 1)):
        seconds = random.integers(1, 9, layers).tolist()
        every = itertools.combinations(range(1, layers), stages - 1)
        assert checks_7b.fastest(seconds, stages) == min(checks_7b.slowest(seconds, plan) for plan in every)


def test_another_way_to_the_plan_is_right():
    def cuts(seconds, stages):
        def filled(limit):
            ends, held = [], 0
            for layer, time in enumerate(seconds):
                if held + time > limit:
                    ends.append(layer)
                    held = 0
                held += time
            return ends

        sums = [0, *np.cumsum(seconds)]
        limits = sorted({b - a for a, b in itertools.combinations(sums, 2) if b - a >= max(seconds)})
        ends = next(found for found in map(filled, limits) if len(found) < stages)
        spare = [layer for layer in range(1, len(seconds)) if layer not in ends]
        return sorted(ends + spare[: stages - 1 - len(ends)])

    assert checks_7b.points(cuts, 5) == 5.0


def test_the_library_s_own_work_and_schedule_are_right():
    def work(*arguments):
        return pipeline.follow(*arguments)

    def schedule(stages, micro):
        return schedules.one_forward_one_backward(stages, micro)

    assert checks_7b.points(work, 5) == 5.0 and checks_7b.points(schedule, 5) == 5.0


def test_delays_are_counted():
    assert [checks_7b.counted_delay(4, stage, ticks=True) for stage in range(4)] == [6, 4, 2, 0]
    assert [checks_7b.counted_delay(4, stage, ticks=False) for stage in range(4)] == [3, 2, 1, 0]


def test_three_equal_blocks_get_a_part(answer):
    edits, *_ = MISTAKES["order"]["three equal blocks"]
    assert 1.5 < checks_7c.points(answer("7c", "order", *edits.items()), 5) < 3.5


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

    assert checks_7c.points(order, 5) == 5.0


def test_infinity_is_none():
    def enough(*layer):
        return checks_7c.WIDE.get(layer, math.inf)

    assert checks_7c.points(enough, 3) == 3.0


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
    cycles = answer("7c", "cycles")
    for case, expected in known.items():
        assert cycles(*case, buffered) == expected
        if case != checks_7c.ENDLESS:
            assert systolic.layer(*case, buffered).cycles == expected
    for case in ((16, 3, 16), (9, 4, 8)):
        assert systolic.layer(*case, buffered).cycles == cycles(*case, buffered)


def test_tile_and_inequality_have_the_same_optimum(answer):
    exponents = answer("7c", "exponents")
    for nest, words in (*checks_7c.PRODUCTS, *checks_7c.SHORTER, *checks_7c.OTHERS):
        assert sum(exponents(nest, words).values()) == pytest.approx(checks_7c.most(nest, words))


def test_the_words_of_a_product_are_at_least_those_by_its_shortest_loop():
    for batch in (1, 3, 7, 20, 200):
        sums = checks_7c.most(movement.matrix_product(batch, 500, 500), 256)
        assert 256 ** (sums - 1) == pytest.approx(min(16, batch))


def test_the_simulation_is_no_formula(capsys):
    def cycles(batch, tiles, side, buffered):
        return systolic.layer(batch, tiles, side, buffered).cycles

    assert checks_7c.points(cycles, 4) < 4
    assert "too many to simulate" in capsys.readouterr().out
