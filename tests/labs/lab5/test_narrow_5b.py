"""Notebook 5b: packing, the ring, and trainings whose emulated ranks are what simulated and real ones are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from course_lib.collectives import simulated
from course_lib.ranks import launch
from labs.lab5_precision_and_memory.lessons import narrow_training as training
from labs.lab5_precision_and_memory.lessons import narrow_wire as wire

FORMS = ((2, 1), (3, 0), (3, 1), (4, 0), (3, 2), (4, 3), (5, 2), (3, 4), (5, 10), (8, 7))
NOTEBOOK = "5b_gradients_in_four_bits"


@pytest.fixture(autouse=True)
def slice_of_the_data(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "1279")


@pytest.mark.parametrize("form", FORMS)
def test_every_pattern_is_a_number_and_comes_back_bit_for_bit(form):
    values = wire._values(np.arange(2 ** wire.bits(form)), form)
    values = values[~np.isnan(values)]
    content = wire.pack(values, form)
    assert len(content) == -(-len(values) * wire.bits(form) // 8)
    back = wire.unpack(content, len(values), form)
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(np.signbit(back), np.signbit(values))
    np.testing.assert_array_equal(training.casting(form)(values), values)


@pytest.mark.parametrize(
    "form, dtype",
    [((5, 2), ml_dtypes.float8_e5m2), ((8, 7), ml_dtypes.bfloat16), ((5, 10), np.float16)],
)
def test_patterns_are_those_of_ieee(form, dtype):
    codes = np.arange(2 ** wire.bits(form))
    theirs = codes.astype(f"u{wire.bits(form) // 8}").view(dtype).astype(np.float32)
    np.testing.assert_array_equal(wire._values(codes, form), theirs)


def test_any_count_is_packed_without_a_gap():
    for form in FORMS:
        for count in (0, 1, 2, 3, 7):
            values = training.casting(form)(np.linspace(-1, 1, count).astype(np.float32))
            np.testing.assert_array_equal(wire.unpack(wire.pack(values, form), count, form), values)


def test_float32_travels_as_it_is():
    values = np.array([np.pi, -1e-40, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(wire.unpack(wire.pack(values, wire.FLOAT32), 4, wire.FLOAT32), values)


@pytest.mark.parametrize("values", [[0.3], [16.0], [0.0625]])
def test_what_is_not_in_the_format_does_not_travel(values):
    with pytest.raises(ValueError, match="round them first"):
        wire.pack(np.array(values), (3, 0))


def test_nan_travels_where_there_is_a_mantissa():
    np.testing.assert_array_equal(wire.unpack(wire.pack(np.array([np.nan]), (3, 1)), 1, (3, 1)), [np.nan])
    with pytest.raises(ValueError, match="no mantissa"):
        wire.pack(np.array([np.nan]), (3, 0))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("form", [(3, 0), (3, 1), (4, 3)])
def test_emulated_means_are_those_of_simulated_ranks_bit_for_bit(ranks, form, answer):
    parts = np.random.default_rng(ranks).normal(0, 1.5, (ranks, 21)).astype(np.float32)
    cast, mean_of_all = training.casting(form), answer(NOTEBOOK, "mean_of_all")
    programs = {"ring": wire.ring_mean, "twice": mean_of_all}
    programs["once"] = lambda me, x, cast: me.all_reduce(cast(x)) / np.float32(me.size)
    for way, program in programs.items():
        with np.errstate(all="ignore"):
            outcome = simulated.run(lambda me, x, program=program: program(me, x, cast), list(parts))
            emulated = training.WAYS[way](parts, cast)
        for result in outcome.results:
            np.testing.assert_array_equal(result, emulated, err_msg=way)


def test_a_ring_sends_what_it_should():
    outcome = simulated.run(lambda me, x: wire.ring_mean(me, x, np.copy), [np.ones(12, np.float32)] * 4)
    assert outcome.trace.elements.sum() == 2 * 3 * 12


def test_the_largest_of_all_is_known_to_all():
    outcome = simulated.run(lambda me, x: wire.largest_of_all(me)(x), [0.25, 3.5, -7.0])
    assert outcome.results == [3.5] * 3


def test_the_factor_agrees_with_the_solution(answer):
    solution = answer(NOTEBOOK, "factor")
    for seed in range(20):
        part = np.exp(np.random.default_rng(seed).normal(-3, 3, 5)).astype(np.float32)
        for ranks in (1, 2, 5, 8):
            expected = training.factor(part.max(), ranks, (3, 0))
            assert solution(part, ranks, wire.top((3, 0)), float) == expected


@pytest.mark.parametrize("largest", [0.0, 1e-38, 3e38])
def test_every_factor_is_a_number(largest):
    assert 0 < training.factor(np.array([largest]), 8, (3, 0))[0] < np.inf


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("form", [(3, 0), (3, 1), (2, 1), (4, 3)])
def test_with_the_factor_no_sum_overflows_even_where_all_ranks_agree(ranks, form):
    random = np.random.default_rng(0)
    for _ in range(200):
        part = random.uniform(0.5, 1, 4) * 2.0 ** random.integers(-9, 9)
        parts = np.repeat(part[None], ranks, 0).astype(np.float32)
        assert np.isfinite(training.reducer(form, "each", "ring")(parts, np.array([0, 4]))).all()


def test_one_factor_for_all_is_that_of_the_largest_tensor():
    largest, ends = np.array([1.0, 0.01]), np.array([0, 2, 3])
    np.testing.assert_array_equal(training.factors(largest, ends, (3, 0), 8, "all"), [1, 1, 1])
    np.testing.assert_array_equal(training.factors(largest, ends, (3, 0), 8, "each"), [1, 1, 64])
    np.testing.assert_array_equal(training.factors(largest, ends, (3, 0), 8, "none"), [1, 1, 1])


def test_what_is_lost_is_what_is_sent_as_0():
    parts, ends = np.array([[1.0, 0.1, 0.0, 0.5]], np.float32), np.array([0, 4])
    assert training.lost(parts, ends, (3, 0), "none", "ring") == pytest.approx(1 / 3)
    assert training.error(parts, ends, (3, 0), "none") == pytest.approx(0.1 / np.linalg.norm(parts))


@pytest.fixture
def problem():
    return training.fashion(640)


def test_gradients_are_those_of_finite_differences():
    network, random = training.Network((6, 5, 4, 3)), np.random.default_rng(1)
    weights = network.draw(0).astype(np.float64)
    x, y = random.normal(size=(2, 3, 6)), random.integers(3, size=(2, 3))
    _, found = network.gradients(weights, x, y)
    for place in range(0, network.ends[-1], 7):
        around = np.repeat(weights[None], 2, 0)
        around[:, place] += [1e-6, -1e-6]
        losses = [network.gradients(w, x, y)[0] for w in around]
        assert found[:, place].mean() == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-5)


def test_shares_of_ranks_make_the_gradient_of_all(problem):
    one, eight = (
        training.Training(problem, 64, 0.05, 10, 1, training.reducer(), ranks=ranks).run(10) for ranks in (1, 8)
    )
    np.testing.assert_allclose(one.weights, eight.weights, atol=1e-5)
    assert one.accuracy(problem.validation) > 0.2


def test_ranks_may_have_weights_of_their_own(problem):
    def own(parts, ends):
        return parts

    run = training.Training(problem, 64, 0.05, 4, 1, own, ranks=2).run()
    alone = training.Training(problem, 64, 0.05, 4, 1, own, ranks=2, own=slice(1, 2)).run()
    assert np.abs(run.weights[0] - run.weights[1]).max() > 0
    np.testing.assert_array_equal(run.weights[1], alone.weights[0])


def test_an_update_that_is_not_finite_ends_the_training_or_is_left_out(problem):
    def overflowing(parts, ends):
        return np.full(parts.shape[1], np.inf, np.float32)

    run = training.Training(problem, 64, 0.05, 4, 1, overflowing).run()
    assert not run.finite and run.update == 1
    assert run.accuracy(problem.test) == 0.1
    kept = training.Training(problem, 64, 0.05, 4, 1, overflowing, skip=True).run()
    assert kept.finite and (kept.update, kept.skipped) == (4, 4)


@pytest.mark.slow
@pytest.mark.ranks
def test_real_ranks_train_what_emulated_ones_do_bit_for_bit(problem, answer):
    mean_of_all = answer(NOTEBOOK, "mean_of_all")
    means = {"ring": wire.ring_mean, "twice": mean_of_all}
    forms = ((4, 3), (3, 1), (3, 0))

    def function():
        import horovod.tensorflow as hvd

        from labs.lab5_precision_and_memory.lessons import narrow_training as training
        from labs.lab5_precision_and_memory.lessons import narrow_wire as wire

        hvd.init()
        me, problem, weights = wire.connect(), training.fashion(640), {}
        own = slice(me.rank, me.rank + 1)
        for way, mean in means.items():
            program = wire.ring_mean if way == "ring" else mean
            for form in forms:
                reduce = training.over_tcp(me, form, program)
                weights[way, form] = training.Training(problem, 64, 0.05, 20, 1, reduce, me.size, own).run(6).weights
        reduce = training.over_tcp(me, wire.FLOAT32)
        weights["float32"] = training.Training(problem, 64, 0.05, 20, 1, reduce, me.size, own).run(6).weights
        steps = training.time_steps(me, ((3, 0), wire.FLOAT32), 2, 8, (7, 8, 8))
        me.close()
        hvd.shutdown()
        return weights, steps

    for ranks in (2, 4):
        results = launch.call(function, ranks, env=launch.ONE_THREAD)
        for way in means:
            for form in forms:
                reduce = training.reducer(form, "each", way)
                emulated = training.Training(problem, 64, 0.05, 20, 1, reduce, ranks).run(6)
                for weights, _ in results:
                    np.testing.assert_array_equal(weights[way, form], emulated.weights, err_msg=f"{ranks} {way} {form}")
        plain = training.Training(problem, 64, 0.05, 20, 1, training.reducer(), ranks).run(6)
        for weights, steps in results:
            np.testing.assert_allclose(weights["float32"], plain.weights, atol=1e-6)
            assert [tuple(row["form"]) for row in steps] == [(3, 0), wire.FLOAT32] * 2
            numbers, headers = 2 * (ranks - 1) * (7 * 8 + 8 + 8 * 8 + 8) // ranks, 4 * 2 * (ranks - 1)
            assert steps[1]["bytes"] == 4 * numbers + headers
            largest = (ranks - 1) * (4 + 4 * 4)  # of four tensors, to each of the others
            assert steps[0]["bytes"] == numbers // 2 + headers + largest
