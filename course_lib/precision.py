"""Low precision: any IEEE-like format, loss scaling, shared exponents (Flexpoint), automatic precision scaling (APS).

A format has a sign bit, e exponent bits and m mantissa bits: float16 is (5, 10), bfloat16 (8, 7), the two 8-bit formats
are (5, 2) and (4, 3). All functions use NumPy: they emulate the values of a format, not the speed of hardware.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np


def quantise(x: np.ndarray | float, exponent: int, mantissa: int) -> np.ndarray:
    """Round x to the nearest number of a format, ties to the even mantissa.

    As in IEEE 754, the bias is 2^(exponent − 1) − 1, the lowest exponent is for zero and the subnormal numbers, the
    highest one for infinity and NaN. Numbers that round beyond the largest number become infinity; NaN stays NaN. x is
    rounded once: float64 is not converted to float32 first.

    Args:
        x: a number or an array.
        exponent: exponent bits, 2 to 8.
        mantissa: mantissa bits, 0 to 23.

    Returns:
        float32, of x's shape.

    Raises:
        ValueError: for other numbers of bits, whose formats float32 can't represent.
    """
    _check(exponent, mantissa)
    lowest = 2 - 2 ** (exponent - 1)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.asarray(x, np.float64)  # every operation below is exact in float64
        _, powers = np.frexp(wide)
        spacing = np.ldexp(1.0, np.maximum(powers - 1, lowest) - mantissa)
        rounded = np.rint(wide / spacing) * spacing
        rounded = np.where(np.abs(rounded) > largest(exponent, mantissa), np.copysign(np.inf, wide), rounded)
        return np.where(np.isfinite(wide), rounded, wide).astype(np.float32)


def largest(exponent: int, mantissa: int) -> float:
    """The largest finite number of a format: 65,504 for (5, 10)."""
    _check(exponent, mantissa)
    return float((2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1))


def smallest(exponent: int, mantissa: int) -> float:
    """The smallest positive number of a format, a subnormal number: 2⁻²⁴ for (5, 10)."""
    _check(exponent, mantissa)
    return float(2.0 ** (2 - 2 ** (exponent - 1) - mantissa))


class LossScale:
    """The factor of the loss that keeps small gradients from vanishing in float16 (Micikevicius et al. 2018).

    Args:
        scale: the first factor, a power of two, so that the multiplication is exact.
        clean_steps: the scale doubles after so many steps without overflow; None: the scale is static.
    """

    def __init__(self, scale: float = 2.0**15, clean_steps: int | None = 2000) -> None:
        self.scale = float(scale)
        self._clean_steps, self._clean = clean_steps, 0

    def update(self, gradients: list[np.ndarray]) -> bool:
        """Update the scale; return whether to apply these gradients of the scaled loss.

        False if a gradient is infinite or NaN: skip the step. A dynamic scale is then halved.
        """
        finite = all(np.isfinite(gradient).all() for gradient in gradients)
        if self._clean_steps is None:
            return finite
        self._clean = self._clean + 1 if finite else 0
        if not finite:
            self.scale /= 2
        elif self._clean == self._clean_steps:
            self.scale, self._clean = 2 * self.scale, 0
        return finite


def shared_exponent(largest: float, bits: int = 16) -> int:
    """The shared exponent k of a tensor whose numbers are stored as i·2^k (Flexpoint, Köster et al. 2017).

    i is an integer of `bits` bits, including the sign; k is the smallest exponent with which `largest` fits.

    Args:
        largest: largest magnitude in the tensor.
        bits: bits of i.

    Raises:
        ValueError: if `largest` is negative or not finite.
    """
    if not (np.isfinite(largest) and largest >= 0):
        raise ValueError(f"The largest magnitude is {largest}; it must be finite and not below 0.")
    if largest == 0:
        return 0
    most = 2 ** (bits - 1) - 1
    k = int(np.frexp(largest / most)[1]) - 1  # 2^k ≤ largest / most
    return k if np.rint(np.ldexp(float(largest), -k)) <= most else k + 1


def with_shared_exponent(x: np.ndarray, k: int, bits: int = 16) -> np.ndarray:
    """Round x to integers of `bits` bits times 2^k, and clip numbers that overflow; float32 of x's shape."""
    most = 2 ** (bits - 1) - 1
    integers = np.clip(np.rint(np.ldexp(np.asarray(x, np.float64), -k)), -most - 1, most)
    return np.ldexp(integers, k).astype(np.float32)


def auto_scale(largest: float | np.ndarray, ranks: int, exponent: int) -> np.ndarray:
    """The power f for automatic precision scaling (APS): the sum over the ranks of gradients times 2^f just fits.

    Args:
        largest: the largest magnitude in a layer's gradients, over all ranks; an array for several layers.
        ranks: number of ranks in the sum.
        exponent: the format's exponent bits; f does not depend on the mantissa bits.

    Returns:
        Integers of the shape of `largest`; 0 for layers where `largest` is 0.
    """
    _check(exponent, 0)
    total = np.asarray(largest, np.float64) * ranks
    mantissas, powers = np.frexp(total)  # total = mantissa · 2^power, mantissa from 1/2 to 1
    rounded_up = powers - (mantissas == 0.5)  # ceil(log2(total))
    return np.where(total > 0, 2 ** (exponent - 1) - 1 - rounded_up, 0).astype(int)


def _check(exponent: int, mantissa: int) -> None:
    whole = isinstance(exponent, Integral) and isinstance(mantissa, Integral)
    if not (whole and 2 <= exponent <= 8 and 0 <= mantissa <= 23):
        raise ValueError(
            f"A format with {exponent!r} exponent bits and {mantissa!r} mantissa bits: whole numbers "
            "from 2 to 8 and from 0 to 23 are taken."
        )
