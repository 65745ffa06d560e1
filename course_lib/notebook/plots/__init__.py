"""The course's figures: one style, and a module for each subject that is drawn."""

from course_lib.notebook.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    PAPER,
    WIDTH,
    Figure,
    colour,
    provenance,
    style,
    subplots,
)
from course_lib.notebook.plots.training_curves import curves

__all__ = [
    "FAINT",
    "INK",
    "MARKERS",
    "PALETTE",
    "PAPER",
    "WIDTH",
    "Figure",
    "colour",
    "curves",
    "provenance",
    "style",
    "subplots",
]
