"""The scaling rules against their formulas, the warm-up in a real optimizer."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from course_lib.optimizers.schedules import Stage, WarmUp, cosine, growth, legw, linear_scaling, sqrt_scaling


def test_scaling_rules():
    assert linear_scaling(0.1, 8192, 256) == pytest.approx(3.2)
    assert sqrt_scaling(0.1, 8192, 512) == pytest.approx(0.4)
    assert linear_scaling(0.1, 64, 64) == sqrt_scaling(0.1, 64, 64) == 0.1
    # Goyal et al.: 0.1 for 256 examples becomes 3.2 for 8,192, after 5 epochs of warm-up.
    # LEGW keeps the updates of warm-up: 16 times the batch, 16 times the epochs.
    assert legw(0.1, 0.3125, 8192, 512) == (pytest.approx(0.4), pytest.approx(5.0))


def test_warm_up_starts_at_start_and_reaches_the_peak_after_its_steps():
    rates = [float(WarmUp(3.2, 5, start=0.1)(t)) for t in range(8)]
    np.testing.assert_allclose(rates, [0.1, 0.72, 1.34, 1.96, 2.58, 3.2, 3.2, 3.2], rtol=1e-6)


def test_what_follows_the_warm_up_counts_from_its_end():
    cosine = keras.optimizers.schedules.CosineDecay(2.0, 10)
    schedule = WarmUp(cosine, 4)
    np.testing.assert_allclose([schedule(t) for t in range(4)], [0, 0.5, 1, 1.5])
    np.testing.assert_allclose([schedule(4 + t) for t in range(12)], [cosine(t) for t in range(12)], rtol=1e-6)


def test_an_optimizer_made_anew_from_its_config_has_the_same_rates():
    original = keras.optimizers.SGD(WarmUp(keras.optimizers.schedules.CosineDecay(2.0, 10), 4, start=0.25))
    copy = keras.optimizers.SGD.from_config(original.get_config())
    weights = [tf.Variable([0.0]), tf.Variable([0.0])]
    rates = [0.25 + 1.75 * t / 4 for t in range(4)] + [float(keras.optimizers.schedules.CosineDecay(2.0, 10)(0))]
    for optimizer, w in zip((original, copy), weights):
        for _ in rates:
            optimizer.apply_gradients([(tf.constant([-1.0]), w)])
        np.testing.assert_allclose(w.numpy(), [sum(rates)], rtol=1e-6)


def test_a_cosine_falls_from_the_peak_to_zero_behind_its_warm_up():
    rate = cosine(0.8, 12, warm_up=4, start=0.2)
    expected = [0.2, 0.35, 0.5, 0.65, *(0.4 * (1 + np.cos(np.pi * t / 8)) for t in range(9))]
    np.testing.assert_allclose([float(rate(t)) for t in range(13)], expected, atol=1e-6)
    np.testing.assert_allclose([float(cosine(0.8, 12)(t)) for t in (0, 6, 12)], [0.8, 0.4, 0], atol=1e-6)


def test_no_warm_up_is_an_error():
    with pytest.raises(ValueError, match="at least 1 update"):
        WarmUp(0.1, 0)


def test_growth_lowers_the_noise_as_decay_does():
    decayed, grown = (growth(0.1, 128, (60, 120, 160), 5, largest) for largest in (128, 10_000))
    assert [stage.batch for stage in decayed] == [128] * 4
    assert grown == [Stage(0, 128, 0.1), Stage(60, 640, 0.1), Stage(120, 3200, 0.1), Stage(160, 10_000, 0.0625)]
    for one, other in zip(decayed, grown):
        assert one.eta / one.batch == pytest.approx(other.eta / other.batch)
