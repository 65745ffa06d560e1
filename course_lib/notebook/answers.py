"""What judges of exercises say to each other: whether an answer has the right kind, and which mistake a wrong one is.

Each function returns where all is well and raises `Wrong` with a sentence where it is not.
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
MOST_ITEMS = 100_000  # that are taken of what may have no end
# As they are now, whatever a learner's cell makes of NumPy's names.
_as_array, _all_close, _is_finite, _array_equal = np.asarray, np.allclose, np.isfinite, np.array_equal


def returned(value: Any, what: str = "it") -> Any:
    """The value, where there is one."""
    if value is None:
        raise Wrong(f"{what} returns nothing: is a `return` missing?")
    return value


def function(owner: Any, name: str) -> Callable[..., Any]:
    """The function of this name that a learner's class, or an object of it, has."""
    attribute = getattr(owner, name, None)
    if not callable(attribute) or isinstance(attribute, type):
        raise Wrong(f"there is no function `{name}`.")
    return attribute


def number(value: Any, what: str = "it", *, finite: bool = True) -> float:
    """One real number; with finite=False also ±inf and nan."""
    returned(value, what)
    values = plain(value) if not isinstance(value, bool) else None
    if values is None or values.dtype.kind not in "iuf" or values.ndim:
        raise Wrong(f"{what} returns {short(value)} where one number is expected.")
    if finite and not _is_finite(values):
        raise Wrong(f"{what} returns {values}.")
    return float(values)


def whole(value: Any, what: str = "it") -> int:
    """One whole number, also as 3.0."""
    real = number(value, what)
    if real != int(real):
        raise Wrong(f"{what} returns {real:g} where a whole number is expected.")
    return int(real)


def plain(value: Any) -> np.ndarray | None:
    """The value as an array of numbers; None where it is none. A class of the learner's may answer NumPy's functions as
    it likes, an array does not."""
    with contextlib.suppress(Exception):  # whatever NumPy, TensorFlow or the value's own class says
        values = _as_array(value)
        if values.dtype.kind == "O" and all(isinstance(one, numbers.Number) for one in values.flat):
            values = values.astype(float)  # fractions, decimals
        if values.dtype.kind in "biufc":
            return values
    return None


def array(value: Any, shape: Sequence[int], what: str = "it") -> np.ndarray:
    """Numbers of this shape, no truth values among them: those count as 0 and 1."""
    returned(value, what)
    values = plain(value)
    if values is None or values.dtype.kind == "c":
        raise Wrong(f"{what} returns {short(value)} where numbers of shape {tuple(shape)} are expected.")
    if values.shape != tuple(shape):
        raise Wrong(f"{what} returns shape {values.shape}; it should be {tuple(shape)}.")
    return values.astype(int) if values.dtype.kind == "b" else values


def several(value: Any, *names: str, what: str = "it") -> tuple[Any, ...]:
    """As many values as there are names, returned together."""
    expected = f"{len(names)} values are expected: {', '.join(names)}"
    values = items(value, expected, what, len(names))
    if len(values) != len(names):
        raise Wrong(f"{what} returns {short(value)} where {expected}.")
    return tuple(values)


def items(value: Any, expected: str, what: str = "it", most: int = MOST_ITEMS) -> list[Any]:
    """What a list holds, or anything else that can be gone through; of what has no end one more than `most`.

    `expected` says what that should be, as "a list of batches is expected".
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
def case(what: str) -> Iterator[None]:
    """What is wrong in here is said of this case, as "2 ranks, 10 numbers"."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{what}: {wrong}", wrong.share, wrong.hint, rests_on=wrong.rests_on) from None


def same(got: Any, expected: Any, rtol: float = TOLERANCE, atol: float = 0.0) -> bool:
    """Equal up to rounding: numbers, arrays, or lists and tuples of them, of the same length."""
    if isinstance(expected, (list, tuple)):
        try:
            return len(got) == len(expected) and all(same(a, b, rtol, atol) for a, b in zip(got, expected))
        except Exception:  # it has no length, or a class of the learner's answers otherwise
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
    """Pass what is expected; else name the first mistake that gives what was got, else say both.

    Args:
        what: the case in a few words, as "for w = 2, b = 1 the loss".
        mistakes: sentence → what an answer with this mistake gives.
    """
    if same(got, expected, rtol, atol):
        return
    name_mistake(got, expected, mistakes or {}, rtol=rtol, atol=atol)
    raise Wrong(f"{what} should be {shown(expected)}; it is {shown(got)}.")


def name_mistake(
    got: Any, expected: Any, mistakes: Mapping[str, Any], *, rtol: float = TOLERANCE, atol: float = 0.0
) -> None:
    """Raise the sentence of the first mistake that gives what was got; pass where none does. See `compare`."""
    for sentence, wrong in mistakes.items():
        if same(got, wrong, rtol, atol) and not same(wrong, expected, rtol, atol):
            raise Wrong(sentence)


def shown(value: Any, nested: int = 3) -> str:
    """A number, or a few, as a sentence has them."""
    if isinstance(value, (list, tuple)) and nested:  # a list may hold itself
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ", ".join(shown(one, nested - 1) for one in value) + ends[1]
    values = plain(value)
    if values is None or values.ndim or values.dtype.kind == "c":
        return short(value)
    return f"{float(values):.6g}"


def short(value: Any, most: int = 60) -> str:
    """A value as Python shows it, in one line, cut where it is long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a class of the learner's, or of a number of thousands of digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[: most - 2] + " …"
