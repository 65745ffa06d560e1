"""Lab 5: other answers, wrong and right, and what the checks compare with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course_lib import precision
from labs.lab5_precision_and_memory.lessons import (
    checks_5a,
    checks_5b,
    checks_5c,
    checks_5d,
    diagnosis_5b,
    pruning,
    sparse_regression,
)


def test_the_library_s_rounding_is_right():
    def quantise(x, exponent, mantissa):
        return precision.quantise(x, exponent, mantissa)

    assert checks_5a.points(quantise, 5) == 5.0


def test_another_bound_is_right():
    def bound(maxima):
        logs = np.log2(maxima[-12:])
        return float(2 ** (logs.max() + 0.5 + logs.std()))

    assert checks_5a.points(bound, 4) == 4.0


@pytest.mark.parametrize("target", (1.0, *checks_5a.TARGETS))
@pytest.mark.parametrize("rate", [0.1, 0.01])
@pytest.mark.parametrize("mantissa", [7, 10])
def test_a_weight_stops_where_the_derivation_says(target, rate, mantissa):
    spacing = 2.0 ** (math.floor(math.log2(target)) - mantissa)
    right = spacing / (2 * rate)
    start = target + 1.5 * right  # as in the check's message
    assert math.frexp(start)[1] == math.frexp(target)[1]  # no power of two between
    assert right - spacing <= checks_5a.descend(target, rate, mantissa, start) <= right + spacing


def test_ways_that_send_too_much_are_told_apart(capsys):
    from labs.lab5_precision_and_memory.lessons import narrow_wire

    def mean_of_all(me, x, cast):
        return cast(me.all_reduce(cast(x)) / np.float32(me.size))

    assert checks_5b.points(mean_of_all, 6) == 4.5
    assert "not everybody needs all" in capsys.readouterr().out

    def mean_of_all(me, x, cast):
        if me.rank:
            me.send(cast(x), 0)
            return me.receive(0)
        mean = cast(sum((me.receive(rank) for rank in range(1, me.size)), cast(x)) / np.float32(me.size))
        for rank in range(1, me.size):
            me.send(mean, rank)
        return mean

    assert checks_5b.points(mean_of_all, 6) == 4.5
    assert "one rank does the work of all" in capsys.readouterr().out

    def mean_of_all(me, x, cast):
        return narrow_wire.ring_mean(me, x, cast)

    assert checks_5b.points(mean_of_all, 6) < 6
    assert "each partial sum is rounded" in capsys.readouterr().out

    def mean_of_all(me, x, cast):
        for rank in range(me.size):
            if rank != me.rank:
                me.receive(rank)
        return x

    assert checks_5b.points(mean_of_all, 6) < 1
    assert "Send to all first" in capsys.readouterr().out


def test_other_factors_and_choices_are_right():
    def factor(gradient, ranks, top, largest_of_all):
        _, exponent = np.frexp(float(largest_of_all(max(gradient.max(), -gradient.min()))) * ranks)
        return float(np.ldexp(top, -int(exponent)))

    def choose(budget, ranks, error):
        way, each = ("once", budget) if ranks == 2 else ("twice", int(budget * ranks / (2 * (ranks - 1))))
        exponent = min((2, 3, 4, 5), key=lambda e: error(way, (e, max(0, each - 1 - e))) if e < each else np.inf)
        return way, (exponent, each - 1 - exponent)

    assert checks_5b.points(factor, 3) == 3.0
    assert checks_5b.points(choose, 3) == 3.0


RIGHT = {"A": 3, "B": 4, "C": 1, "D": 2}


@pytest.mark.parametrize(
    "answered, word",
    [
        ({**RIGHT, "A": 2}, "gone apart"),
        ({**RIGHT, "A": 6}, "the same weights"),
        ({**RIGHT, "B": 2}, "too short, not too long"),
        ({**RIGHT, "B": 5}, "which numbers are those lengths"),
        ({**RIGHT, "C": 3}, "long before a sum overflows"),
        ({**RIGHT, "D": 1}, "there was room"),
        ({**RIGHT, "D": 5}, "compare the tensors"),
        ({"A": 3, "B": 4, "C": 1}, "D has no diagnosis"),
        ([3, 4, 1, 2], "for each training"),
        (None, "is a `return` missing"),
    ],
)
def test_a_wrong_diagnosis_is_told_why(answered, word, capsys):
    def diagnosis():
        return answered

    assert diagnosis_5b.diagnosis_points(diagnosis, 4) < 4
    assert word in capsys.readouterr().out


def test_the_right_diagnosis_is_right(answer):
    solution = answer("5b", "diagnosis")
    assert solution() == RIGHT
    assert diagnosis_5b.diagnosis_points(solution, 4) == 4.0


def test_other_ways_through_the_chain_are_right():
    def in_segments(chain, x, slope):
        n = chain.layers
        length = math.isqrt(n)
        kept = {0: x}
        for layer in range(n - 1):
            x = chain.forward(layer, x)
            if (layer + 1) % length == 0:
                kept[layer + 1] = x
        del x
        for layer in reversed(range(n)):
            near = max(start for start in kept if start <= layer)
            for within in range(near, layer):
                kept[within + 1] = chain.forward(within, kept[within])
            slope = chain.backward(layer, kept[layer], slope)
            del kept[layer]
        return slope

    def prefetch(needed, seconds):
        starts = np.zeros(len(needed))
        for place in range(len(needed) - 1, -1, -1):
            end = needed[place] if place == len(needed) - 1 else min(needed[place], starts[place + 1])
            starts[place] = end - seconds[place]
        return starts

    for other in (in_segments, prefetch):
        assert checks_5c.points(other, 10) == 10


def test_a_list_that_is_filled_anew_holds_the_old_arrays():
    def in_segments(chain, x, slope):
        length, inputs = round(math.sqrt(chain.layers)), []
        starts = list(range(0, chain.layers, length))
        snapshots = {0: x}
        for layer in range(starts[-1]):
            x = chain.forward(layer, x)
            if layer + 1 in starts:
                snapshots[layer + 1] = x
        del x
        for start in reversed(starts):
            again = [snapshots.pop(start)]
            for layer in range(start, min(start + length, chain.layers) - 1):
                again.append(chain.forward(layer, again[-1]))
            inputs = again
            for place in reversed(range(len(inputs))):
                slope = chain.backward(start + place, inputs[place], slope)
        return slope

    assert checks_5c.points(in_segments, 10) == 7
    assert "let go of it" in str(checks_5c.check(in_segments))


def test_copies_are_refused():
    def in_segments(chain, x, slope):
        return chain.backward(0, x.copy(), slope)

    assert "no copy" in str(checks_5c.check(in_segments))


def test_other_measures_of_strength_and_other_schedules_are_right():
    def stays(kernel, density, grain):
        axes = {"weights": (), "rows": 1, "filters": (0, 1, 2)}[grain]
        strength = (kernel**2).sum(axes, keepdims=True)
        order = np.argsort(np.argsort(-strength, axis=None)).reshape(strength.shape)
        return np.zeros(kernel.shape) + (order < max(1, round(density * strength.size)))

    def pruned_share(update, updates, final):
        return final * (1 - (1 - min(1, update / (0.8 * updates))) ** 4)

    assert checks_5d.points(stays, 4) == 4.0
    assert checks_5d.points(pruned_share, 4) == 4.0


def test_a_fair_schedule_gets_a_part():
    def pruned_share(update, updates, final):
        return final * min(1.0, update / (0.75 * updates))

    assert 2.0 < checks_5d.points(pruned_share, 4) < 4.0


def test_the_simple_schedules_stand_in_the_order_that_the_text_tells():
    start, middle, steadily, cubic = (
        sparse_regression.errors(share).mean()
        for share in (
            lambda update, updates, final: final,
            lambda update, updates, final: final * (update >= updates / 2),
            lambda update, updates, final: final * update / (updates - 1),
            lambda update, updates, final: pruning.cubic(final)(update, updates),
        )
    )
    assert cubic < 0.01 < steadily < middle < start


def test_sizes_agree_with_scipy_where_it_takes_the_same_indices():
    import scipy.sparse

    dense = np.zeros((300, 70_000), np.float32)
    dense[np.random.default_rng(0).integers(300, size=99_000), np.arange(99_000) % 70_000] = 1
    made = scipy.sparse.csr_matrix(dense)
    found = checks_5d.reference_sizes(300, 70_000, made.nnz, 4)["compressed rows"]
    assert found == made.data.nbytes + made.indices.nbytes + made.indptr.nbytes
