"""The course's figures: the style, and one module for each kind of figure."""

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
