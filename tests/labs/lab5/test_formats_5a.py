"""The training in other formats, and what it loses."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.precision import LossScale, quantise
from labs.lab5_precision_and_memory.lessons import formats_5a
from labs.lab5_precision_and_memory.lessons.narrow_training import Part

RANDOM = np.random.default_rng(0)
ANY = RANDOM.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
USUAL = (RANDOM.normal(size=200_000) * np.exp2(RANDOM.uniform(-30, 20, 200_000))).astype(np.float32)


@pytest.fixture
def part():
    random = np.random.default_rng(1)
    images = random.normal(size=(640, 9)).astype(np.float32)
    return Part(images, images[:, :10].argmax(1))


@pytest.fixture
def network():
    return formats_5a.Network((9, 8, 8, 10))


@pytest.mark.parametrize("form", [(5, 10), (5, 2), (4, 3), (8, 7)])
@pytest.mark.parametrize("numbers", [ANY, USUAL], ids=["any", "usual"])
def test_the_fast_cast_rounds_as_the_library_does(form, numbers):
    if form == (8, 7):
        numbers = numbers[~(np.abs(numbers) < 2.0**-126)]
    found = formats_5a.casting(*form)("", numbers)
    assert found.dtype == np.float32
    assert np.array_equal(found, quantise(numbers, *form), equal_nan=True)


def test_by_chance_the_mean_stays():
    found = formats_5a.by_chance()("", np.full(100_000, 1.003, np.float32))
    assert set(found) == {np.float32(1), np.float32(1 + 2**-7)}
    assert found.mean(dtype=float) == pytest.approx(1.003, abs=1e-4)


def test_gradients_are_those_of_the_loss(network, part):
    weights, step = [tensor.astype(np.float64) for tensor in network.draw(1)], 1e-5
    _, found = network.gradients(weights, part.images.astype(float), part.labels)
    for number in range(len(weights)):
        at = np.unravel_index(np.abs(found[number]).argmax(), found[number].shape)
        ends = []
        for sign in (1, -1):
            moved = [tensor.copy() for tensor in weights]
            moved[number][at] += sign * step
            ends.append(network.gradients(moved, part.images.astype(float), part.labels)[0])
        assert found[number][at] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3)


def test_every_tensor_is_rounded_once(network, part):
    names = []

    def note(name, x):
        names.append(name)
        return x

    network.gradients(network.draw(1), part.images, part.labels, note)
    kinds = {"weights": 3, "activations": 3, "slopes": 3, "gradients": 3, "biases": 3}
    assert {kind: sum(name.startswith(kind) for name in names) for kind in kinds} == kinds
    assert len(set(names)) == len(names)


def test_a_power_of_two_as_scale_changes_nothing(network, part):
    ends = []
    for scaling in (None, LossScale(2.0**10, None)):
        way = formats_5a.Way(formats_5a.exact, scaling)
        *_, state = formats_5a.train(network, part, 0.05, 1, way, batch=64, epochs=2)
        ends.append(state)
    assert ends[0].updates == 20 and ends[1].left_out == 0
    for a, b in zip(ends[0].weights, ends[1].weights):
        assert np.array_equal(a, b)


def test_an_overflow_leaves_a_step_out(network, part):
    way = formats_5a.Way(formats_5a.float16, LossScale(2.0**40, 50))
    *_, state = formats_5a.train(network, part, 0.05, 1, way, batch=64, epochs=2)
    assert 0 < state.left_out < 20 * 3 and state.scale < 2.0**40
    assert all(np.isfinite(tensor).all() for tensor in state.weights)


@pytest.mark.parametrize("way", formats_5a.WAYS)
def test_every_way_trains(way, network, part):
    *_, state = formats_5a.train(network, part, 0.05, 1, formats_5a.WAYS[way](), batch=64, epochs=3)
    begin = network.evaluate(network.draw(1), part)[0]
    assert network.evaluate(state.weights, part)[0] < begin


def test_kept_weights_are_numbers_of_their_format(network, part):
    *_, state = formats_5a.train(network, part, 0.05, 1, formats_5a.WAYS["no master weights"](), batch=64, epochs=1)
    for tensor in state.weights:
        assert np.array_equal(tensor, quantise(tensor, 8, 7))


def test_flexpoint_plans_with_the_past():
    flexpoint = formats_5a.Flexpoint()
    assert flexpoint("a", np.float32([1, 0.3])) == pytest.approx([1, 0.3], abs=2**-15)
    assert flexpoint("a", np.float32([5.0, 0.0]))[0] == pytest.approx(
        4, abs=1e-3
    )  # 2 was planned for: the exponent ends at 4
    assert (flexpoint.tensors, flexpoint.too_large) == (2, 1)
    assert flexpoint("b", np.float32([5.0]))[0] == pytest.approx(5, abs=1e-3)


def test_lost_counts_what_was_not_zero_before():
    assert formats_5a.lost(np.float32([0, 1, 1e-9, 1e-9])) == pytest.approx(2 / 3)
    assert formats_5a.lost(np.zeros(3, np.float32)) == 0


def test_weights_that_overflowed_guess(network, part):
    assert network.evaluate([np.full(1, np.inf, np.float32)], part) == (float("inf"), 0.1)
