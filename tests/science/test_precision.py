"""Formats of few bits against NumPy's and ml_dtypes's, scales and shared exponents against what they promise."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import precision
from course_lib.precision import LossScale, auto_scale, quantise, shared_exponent, with_shared_exponent

RANDOM = np.random.default_rng(0)
ANY = RANDOM.integers(0, 2**32, 10**6, dtype=np.uint32).view(np.float32)  # all kinds of float32, NaN among them
USUAL = (RANDOM.normal(size=10**6) * np.exp2(RANDOM.uniform(-30, 20, 10**6))).astype(np.float32)


def as_type(x, dtype):
    with np.errstate(all="ignore"):
        return x.astype(dtype).astype(np.float32)


EVERY = np.arange(2**16, dtype=np.uint16).view(np.float16)
FORMS = [((5, 10), np.float16), ((8, 7), ml_dtypes.bfloat16), ((5, 2), ml_dtypes.float8_e5m2)]


@pytest.mark.parametrize("form, dtype", FORMS)
def test_every_float16_as_other_libraries_round_it(form, dtype):
    """Among them all that float16 holds: it stays as it is."""
    expected = as_type(EVERY.astype(np.float32), dtype)
    found = quantise(EVERY, *form)
    assert np.array_equal(found, expected, equal_nan=True)
    numbers = ~np.isnan(found)
    assert np.array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("form, dtype", FORMS)
@pytest.mark.parametrize("numbers", [ANY, USUAL], ids=["any", "usual"])
def test_a_million_numbers_as_other_libraries_round_them(numbers, form, dtype):
    found = quantise(numbers, *form)
    assert found.dtype == np.float32
    expected = as_type(numbers, dtype)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(expected) | (np.isnan(found) & np.signbit(found)))


def test_eight_bits_with_four_for_the_exponent_where_both_are_finite():
    """ml_dtypes's e4m3fn has no infinity and goes on to 448; an IEEE-like format ends at 240."""
    for numbers in (USUAL, EVERY.astype(np.float32)):
        found = quantise(numbers, 4, 3)
        finite = np.isfinite(found)
        assert np.array_equal(found[finite], as_type(numbers, ml_dtypes.float8_e4m3fn)[finite])
    assert precision.largest(4, 3) == 240 and quantise(248, 4, 3) == np.inf and quantise(247.9, 4, 3) == 240


def test_ties_subnormals_and_ends():
    assert list(quantise([2049, 2051, 65519, 65520, -65520], 5, 10)) == [2048, 2052, 65504, np.inf, -np.inf]
    least = precision.smallest(5, 10)
    assert least == 2.0**-24
    assert list(quantise([least / 2, least * 0.51, -least / 4], 5, 10)) == [0, least, -0.0]
    assert np.isnan(quantise(np.nan, 4, 3)) and quantise(-np.inf, 4, 3) == -np.inf
    assert np.array_equal(quantise(ANY, 8, 23), ANY, equal_nan=True)


@pytest.mark.parametrize("scale", [1.0, 2.0**-130], ids=["normal", "subnormal in float32"])
@pytest.mark.parametrize("form, dtype", [((8, 23), np.float32), ((5, 10), np.float16)])
def test_float64_is_rounded_once(form, dtype, scale):
    """1 + 2⁻¹¹ + 2⁻⁴⁰ is a tie of float16 only for those who make it float32 before."""
    wide = RANDOM.normal(size=10**5) * np.exp2(RANDOM.uniform(-40, 20, 10**5)) * scale
    assert np.array_equal(quantise(wide, *form), as_type(wide, dtype))
    assert quantise(1 + 2.0**-11 + 2.0**-40, 5, 10) == 1 + 2.0**-10
    assert list(quantise([1e308, -1e308, 5e-324], 8, 23)) == [np.inf, -np.inf, 0]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_the_shape_stays_and_so_does_the_input(shape):
    x = np.full(shape, 1.3)
    found = quantise(x, 5, 2)
    assert found.shape == shape and found.dtype == np.float32 and np.all(found == 1.25) and np.all(x == 1.3)
    assert np.array_equal(quantise(np.asfortranarray(x)[..., ::-1] if shape else 1.3, 5, 2), found)


@pytest.mark.parametrize("form", [(1, 3), (9, 3), (5, 24), (5, -1), (4.5, 3), ("5", 10), (5, None)])
def test_formats_that_float32_does_not_hold(form):
    with pytest.raises(ValueError, match="from 2 to 8 and from 0 to 23"):
        quantise(1.0, *form)


def test_a_dynamic_scale_halves_at_once_and_doubles_after_clean_steps():
    scale, clean, bad = LossScale(1024, clean_steps=3), [np.ones(2)], [np.ones(2), np.array([1.0, np.inf])]
    assert scale.update(clean) and scale.update(clean) and scale.scale == 1024
    assert not scale.update(bad) and scale.scale == 512
    assert [scale.update(clean) for _ in range(3)] == [True] * 3 and scale.scale == 1024
    assert not scale.update([np.array([np.nan])]) and scale.scale == 512


def test_a_static_scale_only_leaves_steps_out():
    scale = LossScale(1024, clean_steps=None)
    assert not scale.update([np.array([np.inf])]) and scale.scale == 1024
    assert all(scale.update([np.ones(1)]) for _ in range(5000)) and scale.scale == 1024


FORMATS = st.tuples(st.integers(2, 8), st.integers(0, 23))


@given(form=FORMATS, x=st.floats(allow_nan=False, width=32), y=st.floats(allow_nan=False, width=32))
def test_rounding_is_to_the_nearest_keeps_the_order_and_is_done_once(form, x, y):
    rounded, other = quantise([x, y], *form)
    assert np.array_equal(quantise(rounded, *form), rounded)  # a number of the format stays
    assert np.signbit(rounded) == np.signbit(x) and quantise(-x, *form) == -rounded
    assert rounded <= other or x > y
    if np.isfinite(rounded):
        spacing = max(abs(float(rounded)) * 2.0 ** -form[1], precision.smallest(*form))
        assert abs(float(rounded) - x) <= spacing / 2 and abs(rounded) <= precision.largest(*form)
    else:
        assert abs(x) > precision.largest(*form)


@given(largest=st.floats(1e-30, 1e30), bits=st.sampled_from([8, 16]))
def test_the_shared_exponent_is_the_least_with_which_the_largest_fits(largest, bits):
    most, k = 2 ** (bits - 1) - 1, shared_exponent(largest, bits)
    assert np.rint(largest / 2.0**k) <= most < np.rint(largest / 2.0 ** (k - 1))
    assert with_shared_exponent(largest, k, bits) == pytest.approx(largest, rel=0.5 / (most // 2))


def test_shared_exponents_at_their_ends():
    assert shared_exponent(0.0) == 0
    assert with_shared_exponent(10.0, 0, 4) == 7  # what is too large becomes the largest
    with pytest.raises(ValueError, match="must be finite"):
        shared_exponent(np.inf)


@given(form=st.sampled_from([(5, 2), (4, 3), (3, 0)]), ranks=st.integers(1, 64), largest=st.floats(1e-20, 1e20))
def test_scaled_gradients_fill_the_format_and_their_sum_fits(form, ranks, largest):
    total = ranks * largest * 2.0 ** int(auto_scale(largest, ranks, form[0]))
    assert total <= precision.largest(*form) and 2 * total > 2.0 ** (2 ** (form[0] - 1) - 1)
    assert list(auto_scale(np.array([0.0, 1.0]), 2, 5)) == [0, 14]
