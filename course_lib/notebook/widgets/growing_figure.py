"""A figure that fills while runs go on."""

from __future__ import annotations

import time

from IPython.display import DisplayHandle, display

from course_lib.notebook.plots.style import Figure
from course_lib.notebook.report import Ticker


class Filling(Ticker):
    """A figure under a line that says how far the runs are and about how many seconds are left.

    Use it as a context: `show` draws the figure anew, `at` moves the line. Where there is no notebook, nothing is
    shown.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._began = time.monotonic()
        self._figure: DisplayHandle | None = None

    def __exit__(self, *_: object) -> None:
        self.write(f"<i>{self._what}: {time.monotonic() - self._began:.0f} s</i>", at_once=True)

    def at(self, fraction: float, doing: str = "") -> None:
        """Say that `fraction` of the work, from 0 to 1, is done, and what is being done; twice a second at most."""
        # The first steps take longer than the others: TensorFlow makes its graphs.
        left = (time.monotonic() - self._began) * (1 / fraction - 1) if fraction >= 0.04 else None
        about = "" if left is None else f", about {max(1, round(left))} s left"
        self.write(f"<i>⏳ {self._what}: {doing}{about}</i>")

    def show(self, figure: Figure) -> None:
        """Put this figure in the place of the last one."""
        if self._figure:
            self._figure.update(figure)
        elif self._handle:
            self._figure = display(figure, display_id=True)
