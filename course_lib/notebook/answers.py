"""What judges of exercises say to each other: whether an answer has the right kind, and which mistake a wrong one is.

Each function returns where all is well and raises `Wrong` with a sentence where it is not.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.notebook.judging import Wrong

TOLERANCE = 1e-6  # relative
# As they are now, whatever a learner's cell makes of NumPy's names.
_as_array, _all_close, _is_finite, _array_equal = np.asarray, np.allclose, np.isfinite, np.array_equal


def returned(value: Any, what: str = "it") -> Any:
    """The value, where there is one."""
    if value is None:
        raise Wrong(f"{what} returns nothing: is a `return` missing?")
    return value


def number(value: Any, what: str = "it") -> float:
    """One finite real number."""
    returned(value, what)
    found = plain(value) if not isinstance(value, bool) else None
    if found is None or found.dtype.kind not in "iuf" or found.ndim:
        raise Wrong(f"{what} returns {_short(value)} where one number is expected.")
    if not _is_finite(found):
        raise Wrong(f"{what} returns {found}.")
    return float(found)


def plain(value: Any) -> np.ndarray | None:
    """The value as an array of numbers; None where it is none. A class of the learner's may answer NumPy's functions as
    it likes, an array does not."""
    with contextlib.suppress(ValueError, TypeError):
        found = _as_array(value)
        if found.dtype.kind in "biufc":
            return found
    return None


def array(value: Any, shape: Sequence[int], what: str = "it") -> np.ndarray:
    """Numbers of this shape."""
    returned(value, what)
    found = plain(value)
    if found is None or found.dtype.kind == "c":
        raise Wrong(f"{what} returns {_short(value)} where numbers of shape {tuple(shape)} are expected.")
    if found.shape != tuple(shape):
        raise Wrong(f"{what} returns shape {found.shape}; it should be {tuple(shape)}.")
    return found


def several(value: Any, *names: str, what: str = "it") -> tuple[Any, ...]:
    """As many values as there are names, returned together."""
    returned(value, what)
    try:
        found = tuple(value)
    except TypeError:
        found = ()
    if len(found) != len(names):
        raise Wrong(f"{what} returns {_short(value)} where {len(names)} values are expected: {', '.join(names)}.")
    return found


@contextlib.contextmanager
def unchanged(*arrays: np.ndarray) -> Iterator[None]:
    """What is called in here may not change these arrays. NumPy's warnings are silenced: nbgrader gives no points to a
    cell that writes to standard error."""
    before = [array.copy() for array in arrays]
    with np.errstate(all="ignore"):
        yield
    if not all(_array_equal(now, old, equal_nan=True) for now, old in zip(arrays, before)):
        raise Wrong(
            "an argument is changed in place (as by `w -= …`, by `x.sort()`, or through a view of it): work on a copy."
        )


@contextlib.contextmanager
def case(told: str) -> Iterator[None]:
    """What is found wrong in here is told of this case, as "2 ranks, 10 numbers"."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{told}: {wrong}", wrong.share) from None


def same(got: Any, expected: Any, rtol: float = TOLERANCE, atol: float = 0.0) -> bool:
    """Equal up to rounding: numbers, arrays, or lists and tuples of them, of the same length."""
    if isinstance(expected, (list, tuple)):
        try:
            return len(got) == len(expected) and all(same(a, b, rtol, atol) for a, b in zip(got, expected))
        except TypeError:
            return False
    one, other = plain(got), plain(expected)
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool(_all_close(one, other, rtol=rtol, atol=atol))


def compare(
    got: Any,
    expected: Any,
    told: str,
    mistakes: Mapping[str, Any] | None = None,
    *,
    rtol: float = TOLERANCE,
    atol: float = 0.0,
) -> None:
    """Pass what is expected; else name the first mistake that gives what was got, else say both.

    Args:
        told: the case in a few words, as "for w = 2, b = 1 the loss".
        mistakes: sentence → what an answer with this mistake gives.
    """
    if same(got, expected, rtol, atol):
        return
    name_mistake(got, expected, mistakes or {}, rtol=rtol, atol=atol)
    raise Wrong(f"{told} should be {shown(expected)}; it is {shown(got)}.")


def name_mistake(
    got: Any, expected: Any, mistakes: Mapping[str, Any], *, rtol: float = TOLERANCE, atol: float = 0.0
) -> None:
    """Raise the sentence of the first mistake that gives what was got; pass where none does. See `compare`."""
    for sentence, wrong in mistakes.items():
        if same(got, wrong, rtol, atol) and not same(wrong, expected, rtol, atol):
            raise Wrong(sentence)


def shown(value: Any) -> str:
    """A number, or a few, as a sentence has them."""
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ", ".join(map(shown, value)) + ends[1]
    if isinstance(value, np.ndarray) and value.ndim:
        return _short(value)
    try:
        return f"{float(value):.6g}" if math.isfinite(value) else str(float(value))
    except (TypeError, ValueError):
        return _short(value)


def _short(value: Any, most: int = 60) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 2] + " …"
