"""Helpers for judges of exercises: check the type and shape of an answer, and identify the mistake in a wrong one.

Each function raises `Wrong` with a sentence if its check fails. `what` names the checked value in that sentence.
"""

from __future__ import annotations

import contextlib
import itertools
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.notebook.judging import Wrong

TOLERANCE = 1e-6  # relative
MOST_ITEMS = 100_000  # of an iterator that may be endless
# References from before the learner's cells, which may assign to NumPy's names.
_as_array, _all_close, _is_finite, _array_equal = np.asarray, np.allclose, np.isfinite, np.array_equal


def returned(value: Any, what: str = "it") -> Any:
    """Check that the value is not None; return it."""
    if value is None:
        raise Wrong(f"{what} returns nothing: is a `return` missing?")
    return value


def function(owner: Any, name: str) -> Callable[..., Any]:
    """The method of this name of a learner's class, or of an object of the class."""
    attribute = getattr(owner, name, None)
    if not callable(attribute) or isinstance(attribute, type):
        raise Wrong(f"there is no function `{name}`.")
    return attribute


def number(value: Any, what: str = "it", *, finite: bool = True) -> float:
    """Check that the value is one real number; return a float. With finite=False, ±inf and nan are allowed."""
    returned(value, what)
    values = plain(value) if not isinstance(value, bool) else None
    if values is None or values.dtype.kind not in "iuf" or values.ndim:
        raise Wrong(f"{what} returns {short(value)} where one number is expected.")
    if finite and not _is_finite(values):
        raise Wrong(f"{what} returns {values}.")
    return float(values)


def whole(value: Any, what: str = "it") -> int:
    """Check that the value is one whole number, such as 3 or 3.0; return an int."""
    real = number(value, what)
    if real != int(real):
        raise Wrong(f"{what} returns {real:g} where a whole number is expected.")
    return int(real)


def plain(value: Any) -> np.ndarray | None:
    """The value as an array of numbers; None if it can't be converted.

    An array is safe to compare, whereas a learner's class can override NumPy's functions.
    """
    with contextlib.suppress(Exception):  # NumPy, TensorFlow or the value's class may raise anything
        values = _as_array(value)
        if values.dtype.kind == "O" and all(isinstance(one, numbers.Number) for one in values.flat):
            values = values.astype(float)  # fractions, decimals
        if values.dtype.kind in "biufc":
            return values
    return None


def array(value: Any, shape: Sequence[int], what: str = "it") -> np.ndarray:
    """Check that the value has real numbers of this shape; return an array. Booleans become 0 and 1."""
    returned(value, what)
    values = plain(value)
    if values is None or values.dtype.kind == "c":
        raise Wrong(f"{what} returns {short(value)} where numbers of shape {tuple(shape)} are expected.")
    if values.shape != tuple(shape):
        raise Wrong(f"{what} returns shape {values.shape}; it should be {tuple(shape)}.")
    return values.astype(int) if values.dtype.kind == "b" else values


def several(value: Any, *names: str, what: str = "it") -> tuple[Any, ...]:
    """Check that the value is a sequence of one value for each name; return a tuple."""
    expected = f"{len(names)} values are expected: {', '.join(names)}"
    values = items(value, expected, what, len(names))
    if len(values) != len(names):
        raise Wrong(f"{what} returns {short(value)} where {expected}.")
    return tuple(values)


def items(value: Any, expected: str, what: str = "it", most: int = MOST_ITEMS) -> list[Any]:
    """The items of a list or another iterable as a list; at most `most` + 1 items of an endless iterator.

    Args:
        expected: the end of the sentence for other values, such as "a list of batches is expected".
    """
    returned(value, what)
    try:
        iterator = None if isinstance(value, (str, bytes)) else iter(value)
    except TypeError:
        iterator = None
    if iterator is None:
        raise Wrong(f"{what} returns {short(value)} where {expected}.")
    return list(itertools.islice(iterator, most + 1))


@contextlib.contextmanager
def unchanged(*arrays: np.ndarray) -> Iterator[None]:
    """Check that the block does not change these arrays.

    Silences NumPy's warnings, because nbgrader gives no points to a cell that writes to standard error.
    """
    before = [array.copy() for array in arrays]
    with np.errstate(all="ignore"):
        yield
    if not all(_array_equal(now, old, equal_nan=True) for now, old in zip(arrays, before)):
        raise Wrong(
            "an argument is changed in place (for example by `w -= …`, `x.sort()` or through a view): work on a copy."
        )


@contextlib.contextmanager
def case(what: str) -> Iterator[None]:
    """Put the name of the case, such as "2 ranks, 10 numbers", before the sentence of `Wrong` from the block."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{what}: {wrong}", wrong.share, wrong.hint, rests_on=wrong.rests_on) from None


def same(got: Any, expected: Any, rtol: float = TOLERANCE, atol: float = 0.0) -> bool:
    """Whether two numbers, arrays, or lists and tuples of them are equal up to the tolerances."""
    if isinstance(expected, (list, tuple)):
        try:
            return len(got) == len(expected) and all(same(a, b, rtol, atol) for a, b in zip(got, expected))
        except Exception:  # the answer has no length, or a learner's class raises
            return False
    one, other = plain(got), plain(expected)
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool(_all_close(one, other, rtol=rtol, atol=atol))


def compare(
    got: Any,
    expected: Any,
    what: str,
    mistakes: Mapping[str, Any] | None = None,
    *,
    rtol: float = TOLERANCE,
    atol: float = 0.0,
) -> None:
    """Check an answer against the expected one.

    If it differs, raise `Wrong` with the sentence of the first mistake that would give this answer; if there is none,
    with both values.

    Args:
        what: the case in a few words, such as "for w = 2, b = 1 the loss".
        mistakes: sentence → answer with this mistake.
    """
    if same(got, expected, rtol, atol):
        return
    name_mistake(got, expected, mistakes or {}, rtol=rtol, atol=atol)
    raise Wrong(f"{what} should be {shown(expected)}; it is {shown(got)}.")


def compare_with_values(got: Any, expected: Any, what: str, mistakes: Mapping[str, Any], **tolerances: float) -> None:
    """As `compare`, with both values before the sentence of a mistake."""
    values = f"{what} should be {shown(expected)}; it is {shown(got)}."
    compare(got, expected, what, {f"{values} {sentence}": wrong for sentence, wrong in mistakes.items()}, **tolerances)


def name_mistake(
    got: Any, expected: Any, mistakes: Mapping[str, Any], *, rtol: float = TOLERANCE, atol: float = 0.0
) -> None:
    """Raise `Wrong` with the sentence of the first mistake that would give this answer, if there is one."""
    for sentence, wrong in mistakes.items():
        if same(got, wrong, rtol, atol) and not same(wrong, expected, rtol, atol):
            raise Wrong(sentence)


def shown(value: Any, nested: int = 3) -> str:
    """The text of a number, or of some numbers, for a sentence."""
    if isinstance(value, (list, tuple)) and nested:  # a list may contain itself
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ", ".join(shown(one, nested - 1) for one in value) + ends[1]
    values = plain(value)
    if values is None or values.ndim or values.dtype.kind == "c":
        return short(value)
    return f"{float(values):.6g}"


def short(value: Any, most: int = 60) -> str:
    """The value's repr in one line, cut off after `most` characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # raised by a learner's class, or for an integer with thousands of digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[: most - 2] + " …"
