"""A figure that is updated during a series of runs."""

from __future__ import annotations

import time

from IPython.display import DisplayHandle, display

from course_lib.notebook.plots.style import Figure
from course_lib.notebook.report import Ticker


class Filling(Ticker):
    """A figure under a line with the progress of the runs and an estimate of the remaining seconds.

    Use it as a context manager: `show` replaces the figure, `at` updates the line. Outside a notebook it shows nothing.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._began = time.monotonic()
        self._figure: DisplayHandle | None = None

    def __exit__(self, *_: object) -> None:
        self.write(f"<i>{self._what}: {time.monotonic() - self._began:.0f} s</i>", at_once=True)

    def at(self, fraction: float, doing: str = "") -> None:
        """Show that a fraction of the work, 0 to 1, is done, and what is being done; at most twice per second."""
        # No estimate at first: the first steps take longer, because TensorFlow traces its graphs.
        left = (time.monotonic() - self._began) * (1 / fraction - 1) if fraction >= 0.04 else None
        about = "" if left is None else f", about {max(1, round(left))} s left"
        self.write(f"<i>⏳ {self._what}: {doing}{about}</i>")

    def show(self, figure: Figure) -> None:
        """Show this figure in place of the previous one."""
        if self._figure:
            self._figure.update(figure)
        elif self._handle:
            self._figure = display(figure, display_id=True)
