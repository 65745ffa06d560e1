"""What learners guess before they measure: kept, echoed beside the measurement, and shown as a table at the end.

In the learner's cell (`# %% editable=true`) stand the questions, each with its slot:

    predict("steps with the best η, x standardised", None)  # a number

where the notebook measures it, the answer, and what a wrong guess reveals:

    measured("steps with the best η, x standardised", 4, "Far more? Then κ is still thought of as that of x.")

and in the notebook's last cell `predictions.table()`. A guess is a number, a word, or a list of words. A slot left at
None is no mistake; the measurement and its sentence are shown all the same. A guess counts as it stood when the
measurement came: guesses that are changed afterwards are not taken.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

CLOSE = 0.1  # relative; a number that is as near counts as right


@dataclass
class _Prediction:
    guess: Any = None
    measurement: Any = None

    @property
    def guessed(self) -> bool:
        return self.guess is not None and self.guess is not ... and self.guess != "" and self.guess != []


_predictions: dict[str, _Prediction] = {}


def predict(question: str, guess: Any = None) -> None:
    """Keep the guess for `question`; say so in a line."""
    kept = _predictions.setdefault(question, _Prediction())
    if kept.guessed and kept.measurement is not None and guess != kept.guess:
        print(f"{question}: measured already; your guess stays {_shown(kept.guess)}.")
        return
    kept.guess = guess
    print(
        f"{question}: " + (f"your guess is {_shown(guess)}." if kept.guessed else "no guess yet. Write one, run again.")
    )


def measured(question: str, value: Any, reveals: str = "") -> None:
    """Show the guess for `question` beside what was measured, and what a wrong guess reveals (in one sentence)."""
    kept = _predictions.setdefault(question, _Prediction())
    kept.measurement = value
    guess = f"guessed {_shown(kept.guess)}, " if kept.guessed else ""
    off = f": {off_by(kept.guess, value)}" if kept.guessed else ""
    print(f"{question}: {guess}measured {_shown(value)}{off}.")
    if reveals and not off.startswith(": right"):
        print(textwrap.indent(textwrap.fill(reveals, 100), "    "))


def table() -> pd.DataFrame:
    """All guesses of this notebook: guessed, measured, off by."""
    import pandas as pd

    rows = {
        question: {
            "guessed": _shown(kept.guess) if kept.guessed else "–",
            "measured": "not yet" if kept.measurement is None else _shown(kept.measurement),
            "off by": off_by(kept.guess, kept.measurement) if kept.guessed and kept.measurement is not None else "",
        }
        for question, kept in _predictions.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["guessed", "measured", "off by"])


def off_by(guess: Any, value: Any) -> str:
    """How far a guess is from what was measured, in a few words."""
    if not (_is_number(guess) and _is_number(value)):
        return "right" if _plain(guess) == _plain(value) else "another answer"
    guess, value = float(guess), float(value)
    if guess == value:
        return "right"
    if math.isclose(guess, value, rel_tol=CLOSE):
        return f"right, within {CLOSE:.0%}"
    if guess * value <= 0:
        return f"{guess - value:+.3g}"
    factor = max(guess / value, value / guess)
    side = "large" if abs(guess) > abs(value) else "small"
    return f"{factor:.3g} times too {side}" if factor >= 2 else f"{abs(guess / value - 1):.0%} too {side}"


def _is_number(value: Any) -> bool:
    """Also NumPy's; no truth value."""
    try:
        return not isinstance(value, (bool, str)) and math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _plain(value: Any) -> Any:
    """Words without their capitals and the order in which they stand in a list."""
    if isinstance(value, (list, tuple, set)):
        return sorted(str(_plain(one)) for one in value)
    return value.strip().casefold() if isinstance(value, str) else value


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple, set)):
        return ", ".join(map(_shown, value))
    if _is_number(value):
        value = float(value)
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return str(value)
