"""Learners' guesses before a measurement: stored, shown beside the measurement, and as a table at the end.

The learner's cell (`# %% editable=true`) has the questions, each with a place for the guess:

    predict("steps with the best η, x standardised", None)  # a number

The cell with the measurement has the answer, and a sentence that explains it:

    measured("steps with the best η, x standardised", 4, "The number of steps follows κ of the standardised x.")

The notebook's last cell is `predictions.table()`. A guess is a number, a word, or a list of words; "b, A" is the list
["a", "b"], True is "yes". The measurement and its sentence are shown whether the guess is right, wrong or missing.
Guesses can't be changed after the measurement.
"""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.notebook.answers import short

if TYPE_CHECKING:
    import pandas as pd

CLOSE = 0.1  # a guess with a smaller relative error counts as right


@dataclass
class _Prediction:
    guess: Any = None
    measurement: Any = None
    exponent: bool = False

    @property
    def guessed(self) -> bool:
        return self.guess is not None and self.guess is not ... and _shown(self.guess) != ""

    @property
    def off_by(self) -> str:
        """See the function `off_by`; "" if the guess or the measurement is missing."""
        if not self.guessed or self.measurement is None:
            return ""
        return off_by(self.guess, self.measurement, self.exponent)


class Predictions:
    """The guesses of one notebook, by question."""

    def __init__(self) -> None:
        self._by_question: dict[str, _Prediction] = {}

    def predict(self, question: str, guess: Any = None) -> None:
        """Store the guess for `question`, and print it."""
        prediction = self._by_question.setdefault(question, _Prediction())
        if prediction.measurement is not None and _shown(guess) != _shown(prediction.guess):
            stays = f"your guess stays {_shown(prediction.guess)}"
            reason = stays if prediction.guessed else "a guess made now does not count"
            print(f"{question}: already measured; {reason}.")
            return
        prediction.guess = guess
        missing = "no guess yet. Write one and run the cell again."
        guessed = f"your guess is {_shown(guess)}." if prediction.guessed else missing
        print(f"{question}: {guessed}")

    def measured(
        self, question: str, value: Any, reason: str = "", *, too_large: str = "", too_small: str = "",
        exponent: bool = False,
    ) -> None:  # fmt: skip
        """Print the guess for `question`, the measured value, and its reason.

        Args:
            reason: a sentence that explains the measurement.
            too_large, too_small: a sentence for a guess that is too large or too small, printed before `reason`.
            exponent: the number is the exponent of a power of ten: only the exact one is right, and the error is a
                difference.
        """
        prediction = self._by_question.setdefault(question, _Prediction())
        prediction.measurement, prediction.exponent = value, exponent
        guess = f"guessed {_shown(prediction.guess)}, " if prediction.guessed else ""
        off = prediction.off_by
        print(f"{question}: {guess}measured {_shown(value)}{off and f': {off}'}.")
        side = ""
        if off and not off.startswith("right") and _is_number(prediction.guess) and _is_number(value):
            side = too_large if float(prediction.guess) > float(value) else too_small
        if sentences := " ".join(filter(None, [side, reason])):
            print(textwrap.indent(textwrap.fill(sentences, 100), "    "))

    def off(self) -> dict[str, str]:
        """Question → how far off the guess is, for all measured guesses."""
        return {question: one.off_by for question, one in self._by_question.items() if one.off_by}

    def table(self) -> pd.DataFrame:
        """All guesses by question, with the columns guessed, measured, off by."""
        import pandas as pd

        rows = {
            question: {
                "guessed": _shown(prediction.guess) if prediction.guessed else "–",
                "measured": "not yet" if prediction.measurement is None else _shown(prediction.measurement),
                "off by": prediction.off_by,
            }
            for question, prediction in self._by_question.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index", columns=["guessed", "measured", "off by"])


_notebook = Predictions()  # a process runs one notebook
predict, measured, table, off = _notebook.predict, _notebook.measured, _notebook.table, _notebook.off


def off_by(guess: Any, value: Any, exponent: bool = False) -> str:
    """A few words on how far a guess is from the measured value; `exponent`: see `measured`."""
    if not (_is_number(guess) and _is_number(value)):
        return "right" if _plain(guess) == _plain(value) else "a different answer"
    guess, value = float(guess), float(value)
    if guess == value:
        return "right"
    if exponent:
        powers = "1 power" if abs(guess - value) == 1 else f"{abs(guess - value):.3g} powers"
        return f"{powers} of ten too {'large' if guess > value else 'small'}"
    if math.isclose(guess, value, rel_tol=CLOSE):
        return f"right, within {CLOSE:.0%}"
    if guess * value <= 0:
        return f"{guess - value:+.3g}"
    factor = max(guess / value, value / guess)
    side = "large" if abs(guess) > abs(value) else "small"
    return f"{factor:.3g} times too {side}" if factor >= 2 else f"{abs(guess / value - 1):.0%} too {side}"


def _is_number(value: Any) -> bool:
    """Whether the value is a finite number of Python or NumPy, but not a boolean."""
    try:
        return not isinstance(value, (bool, np.bool_, str)) and math.isfinite(float(value))
    except Exception:  # a learner's value may raise anything
        return False


def _plain(value: Any) -> list[str]:
    """The sorted words of a list, or of a string with commas, in lower case; "all-gather" becomes "allgather"."""
    items = [re.sub(r"(?<=[^\W\d_])[-_\s]+(?=[^\W\d_])", "", item) for item in _shown(value).casefold().split(",")]
    return sorted(item.strip(" \t\n.'\"") for item in items)


def _shown(value: Any, nested: int = 3) -> str:
    if isinstance(value, (list, tuple, set)) and nested:  # a list may contain itself
        return ", ".join(_shown(one, nested - 1) for one in value)
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if _is_number(value):
        value = float(value)
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return value if isinstance(value, str) else short(value)
