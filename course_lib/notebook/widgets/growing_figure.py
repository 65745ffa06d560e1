"""A figure that fills while runs go on."""

from __future__ import annotations

import time

from IPython import get_ipython
from IPython.display import HTML, display

from course_lib.notebook.plots.style import Figure


class Filling:
    """A figure under a line that says how far the runs are and about how many seconds are left.

    Use it as a context: `show` draws the figure anew, `at` moves the line. Where there is no notebook, nothing is
    shown.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._shown = 0.0
        self._line = self._figure = None

    def __enter__(self) -> Filling:
        if get_ipython() is not None:
            self._line = display(HTML(f"<i>⏳ {self._what} …</i>"), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            self._line.update(HTML(f"<i>{self._what}: {time.monotonic() - self._began:.0f} s</i>"))

    def at(self, fraction: float, doing: str = "") -> None:
        """Say that `fraction` of the work, from 0 to 1, is done, and what is being done; twice a second at most."""
        now = time.monotonic()
        if self._line and now - self._shown > 0.5:
            self._shown = now
            # The first steps take longer than the others: TensorFlow makes its graphs.
            left = (now - self._began) * (1 / fraction - 1) if fraction >= 0.04 else None
            about = "" if left is None else f", about {max(1, round(left))} s left"
            self._line.update(HTML(f"<i>⏳ {self._what}: {doing}{about}</i>"))

    def show(self, figure: Figure) -> None:
        """Put this figure in the place of the last one."""
        if self._line is None:
            return
        if self._figure is None:
            self._figure = display(figure, display_id=True)
        else:
            self._figure.update(figure)
