"""The output of a check: `Report` shows the verdicts, `Ticker` shows the progress of a run in one line."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from course_lib.notebook.judging import Verdict

if TYPE_CHECKING:
    from course_lib.ranks.launch import Event

INTERVAL_S = 0.5  # between two updates of a line
Self = TypeVar("Self", bound="Ticker")

_STYLE = "border:1px solid var(--jp-border-color2,#ccc);border-radius:6px;padding:.6em 1em;max-width:52em"


@dataclass(frozen=True)
class Report:
    """Verdicts on one subject, shown in a notebook.

    Attributes:
        focus: id of the criterion that the learner is working on; None: all.
        error: last lines of a failed script.
    """

    verdicts: Sequence[Verdict]
    focus: str | None = None
    error: str = ""

    @property
    def score(self) -> float:
        """Sum of the points of all criteria."""
        return sum(verdict.points for verdict in self.verdicts)

    @property
    def passed(self) -> bool:
        """Whether the criterion in focus has passed; without a focus, whether all have."""
        return bool(self.verdicts) and all(verdict.passed for verdict, asked in self._order() if asked)

    def _order(self) -> list[tuple[Verdict, bool]]:
        """Each verdict, and whether to show its reason: that of the focus, or all without a focus."""
        return [(verdict, self.focus in (None, verdict.id)) for verdict in self.verdicts]

    def __str__(self) -> str:
        lines = []
        for verdict, detailed in self._order():
            reason = f": {verdict.reason}" if detailed else ""
            lines.append(f"{'✓' if verdict.passed else '·'} {verdict.title}{reason}")
            if detailed and verdict.hint and verdict.id == self.focus:
                lines.append(f"  Hint: {verdict.hint}")
        return "\n".join([*lines, *([self.error] if self.error else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for verdict, detailed in self._order():
            mark = "✅" if verdict.passed else "❌" if detailed else "▫️"
            text = f"<b>{as_html(verdict.title)}</b>"
            if detailed:
                text += f"<br>{as_html(verdict.reason)}"
                if verdict.hint and verdict.id == self.focus:
                    text += f"<br><i>{as_html(verdict.hint)}</i>"
            rows.append(f"<div style='margin:.25em 0;opacity:{1 if detailed else 0.75}'>{mark} {text}</div>")
        if self.error:
            rows.append(
                "<div style='margin-top:.5em'>The script failed; its last lines:</div>"
                f"<pre style='white-space:pre-wrap;font-size:85%'>{html.escape(self.error)}</pre>"
            )
        return f"<div style='{_STYLE}'>{''.join(rows)}</div>"


def as_html(sentence: str) -> str:
    """A sentence as HTML, with `…` as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(sentence))


class Ticker:
    """A line in a notebook that shows the progress of a run; outside a notebook it shows nothing."""

    def __init__(self, what: str) -> None:
        self._what = html.escape(what)
        self._handle = None
        self._shown = 0.0
        self._stage = "starting"

    def __enter__(self: Self) -> Self:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is not None:
            self._handle = display({"text/html": f"<i>⏳ {self._what} …</i>"}, raw=True, display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.write("", at_once=True)

    def write(self, line: str, at_once: bool = False) -> None:
        """Replace the line by this HTML, at most every INTERVAL_S unless `at_once`."""
        if self._handle and (at_once or time.monotonic() - self._shown > INTERVAL_S):
            self._shown = time.monotonic()
            self._handle.update({"text/html": line}, raw=True)

    def follow(self, event: Event) -> None:
        """Update the line for an event of the run."""
        if event.kind in ("fit", "batch"):
            self._stage = "training"
        elif event.kind == "step":
            self._stage = f"step {event.data['step']}"
        elif event.kind == "epoch":
            self._stage = f"epoch {event.data['epoch'] + 1} done"
        self.write(f"<i>⏳ {self._what}: {self._stage}, {event.time:.0f} s …</i>")
