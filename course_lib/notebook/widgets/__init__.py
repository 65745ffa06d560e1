"""Interactive parts of the notebooks. Each widget calls a plain function."""

from course_lib.notebook.widgets.controls import animation, choice, explore, slider
from course_lib.notebook.widgets.live import Record, train

__all__ = ["Record", "animation", "choice", "explore", "slider", "train"]
