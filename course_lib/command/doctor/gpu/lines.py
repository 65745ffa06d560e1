"""One line of the examination: what was looked at, how it came out, what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

PASSED, FAILED, UNTESTED = "passed", "failed", "not tested"
STATES = (PASSED, FAILED, UNTESTED)
RESULT = "result "  # before what rank 0 of a step's run prints as JSON

Value = Union[float, int, str, None]


@dataclass(frozen=True)
class Line:
    """What became of one thing that was to be tested.

    Attributes:
        title: what was tested, in a few words.
        state: one of STATES.
        text: what was seen; of a failure the reason and what to do; of what was not tested, why.
        values: what was measured, by name and with its unit in the name: {"images/s": 21300.0}.
    """

    title: str
    state: str
    text: str
    values: Mapping[str, Value] = field(default_factory=dict)


def passed(title: str, text: str, **values: Value) -> Line:
    """It works; `values` as in `Line`."""
    return Line(title, PASSED, text, values)


def failed(title: str, text: str, **values: Value) -> Line:
    """It does not work: one sentence with the reason and the remedy."""
    return Line(title, FAILED, text, values)


def untested(title: str, text: str, **values: Value) -> Line:
    """It could not be tested here, or not where it matters: one sentence says why."""
    return Line(title, UNTESTED, text, values)


def judged(title: str, good: bool, right: str, wrong: str, **values: Value) -> Line:
    """Passed with the sentence `right`, or failed with the sentence `wrong`."""
    return Line(title, PASSED if good else FAILED, right if good else wrong, values)
