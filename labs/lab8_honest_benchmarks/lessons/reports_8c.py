"""Six evaluations on four ranks: what each rank counted, what was reported, and at most one mistake between the two."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pandas as pd

RECORDED = Path(__file__).parent.parent / "recorded" / "evaluation.csv"
MISTAKES = {
    "none": "nothing is wrong",
    "mean of means": "each rank's accuracy counts alike, however many images it judged",
    "filling": "the images that fill up a batch are judged like the others",
    "divisor": "they are not among the right ones, but among those that are divided by",
    "one rank": "a single rank's accuracy",
    "same share": "two ranks judged the same share, and nobody judged another",
}


@dataclass(frozen=True)
class Report:
    """What was reported in %, what the ranks had counted, the mistake, and the accuracy in %.

    `accuracy` is None where the table doesn't tell it.
    """

    reported: float
    table: pd.DataFrame
    mistake: str = field(repr=False)  # a learner may print a report
    accuracy: float | None = field(repr=False)
    letter: str = ""

    def _repr_html_(self) -> str:
        return f"<p><b>{self.letter}. {self.reported:.1f} % right</b></p>{self.table._repr_html_()}"


@lru_cache
def measured() -> pd.DataFrame:
    """By rank: images of its share, how many of them it got right, images that filled its batches, right ones of them.

    Recorded by `course reproduce evaluation`.
    """
    rows = pd.read_csv(RECORDED, comment="#")
    names = {"filled": "filled up with", "filled_right": "right of these"}
    columns = ["rank", "images", "right", "filled", "filled_right"]
    return rows[columns].astype(int).rename(columns=names).set_index("rank")


def ways(table: pd.DataFrame) -> dict[str, float]:
    """What each mistake but the last makes of the numbers, in %; "none": the accuracy of all images."""
    images, right, filled, more = (table[name] for name in table)
    return {
        "none": 100 * right.sum() / images.sum(),
        "mean of means": 100 * (right / images).mean(),
        "filling": 100 * (right + more).sum() / (images + filled).sum(),
        "divisor": 100 * right.sum() / (images + filled).sum(),
        "one rank": 100 * right[0] / images[0],
    }


def reports() -> dict[str, Report]:
    """The reports by their letters, with tables of their own: a learner may add columns to one."""
    table = measured()
    accuracy, order = ways(table), ("mean of means", "none", "divisor", "same share", "filling", "one rank")
    found: dict[str, Report] = {}
    for letter, mistake in zip("ABCDEF", order):
        if mistake == "same share":
            counted = table.iloc[[0, 1, 0, 1]].set_axis(table.index)
            found[letter] = Report(ways(counted)["none"], counted, mistake, None, letter)
        else:
            found[letter] = Report(accuracy[mistake], table.copy(), mistake, accuracy["none"], letter)
    return found
