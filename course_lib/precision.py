"""Numbers of few bits: any IEEE-like format, scaled losses, shared exponents, gradients shifted to a format's top.

A format has a sign bit, e exponent bits and m mantissa bits: float16 is (5, 10), bfloat16 (8, 7), the two 8-bit formats
are (5, 2) and (4, 3). Everything here is NumPy: it shows what a format holds, not how fast hardware computes with it.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np


def quantise(x: np.ndarray | float, exponent: int, mantissa: int) -> np.ndarray:
    """x rounded to the nearest number of a format, ties to the even mantissa: float32, of x's shape.

    As IEEE 754 has it: the bias is 2^(exponent − 1) − 1, the lowest exponent holds zero and the subnormal numbers, the
    highest one infinity and NaN. What rounds beyond the largest number becomes infinity; NaN stays. x is rounded once:
    numbers in float64 are not made float32 before.

    Raises:
        ValueError: for formats that float32 can't hold: 2 to 8 exponent bits and 0 to 23 mantissa bits are taken.
    """
    _check(exponent, mantissa)
    lowest = 2 - 2 ** (exponent - 1)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = np.asarray(x, np.float64)  # in which all that follows is exact
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
    """The smallest number above 0 of a format, a subnormal one: 2⁻²⁴ for (5, 10)."""
    _check(exponent, mantissa)
    return float(2.0 ** (2 - 2 ** (exponent - 1) - mantissa))


class LossScale:
    """By what the loss is multiplied, so that small gradients don't vanish in float16 (Micikevicius et al. 2018).

    Args:
        scale: the first one, a power of two, so that nothing is rounded by it.
        clean_steps: after so many steps without overflow the scale doubles; None: it stays as it is (static).
    """

    def __init__(self, scale: float = 2.0**15, clean_steps: int | None = 2000) -> None:
        self.scale = float(scale)
        self._clean_steps, self._clean = clean_steps, 0

    def update(self, gradients: list[np.ndarray]) -> bool:
        """Whether a step may be taken with these gradients, of the scaled loss: not if one of them is infinite or NaN.

        Then the step is left out and the scale, unless it is static, is halved.
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
    """The exponent k that a tensor shares, whose largest magnitude is `largest`: its numbers are i·2^k (Flexpoint).

    i is an integer of so many bits, the sign among them, and k the least with which `largest` still fits.

    Raises:
        ValueError: for a `largest` that is no finite number, 0 or above.
    """
    if not (np.isfinite(largest) and largest >= 0):
        raise ValueError(f"The largest magnitude is {largest}; it must be finite and not below 0.")
    if largest == 0:
        return 0
    most = 2 ** (bits - 1) - 1
    k = int(np.frexp(largest / most)[1]) - 1  # 2^k ≤ largest / most
    return k if np.rint(np.ldexp(float(largest), -k)) <= most else k + 1


def with_shared_exponent(x: np.ndarray, k: int, bits: int = 16) -> np.ndarray:
    """x as integers of so many bits times 2^k; what is too large becomes the largest one. float32 in and out."""
    most = 2 ** (bits - 1) - 1
    integers = np.clip(np.rint(np.ldexp(np.asarray(x, np.float64), -k)), -most - 1, most)
    return np.ldexp(integers, k).astype(np.float32)


def auto_scale(largest: float | np.ndarray, ranks: int, exponent: int) -> np.ndarray:
    """The power f: gradients times 2^f lie at the top of a format, and their sum over the ranks still fits (APS).

    Args:
        largest: the largest magnitude in a layer's gradients, over all ranks; an array for several layers.
        ranks: how many are added.
        exponent: the format's exponent bits; its number of mantissa bits doesn't matter.

    Returns:
        Integers of the shape of `largest`; 0 where that is 0.
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
