"""What is interactive in the notebooks; behind each widget stands a plain function."""

from course_lib.widgets.assessment import assess
from course_lib.widgets.controls import animation, choice, explore, slider
from course_lib.widgets.live import Record, train

__all__ = ["Record", "animation", "assess", "choice", "explore", "slider", "train"]
