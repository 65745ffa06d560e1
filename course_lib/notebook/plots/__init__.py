"""The course's figures: one style, and a module for each subject that is drawn."""

from course_lib.notebook.plots.partitions import partition
from course_lib.notebook.plots.style import (
    CARD,
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    WIDTH,
    Card,
    card,
    colour,
    provenance,
    style,
)
from course_lib.notebook.plots.training_curves import curves

__all__ = [
    "CARD",
    "FAINT",
    "INK",
    "MARKERS",
    "PALETTE",
    "WIDTH",
    "Card",
    "card",
    "colour",
    "curves",
    "partition",
    "provenance",
    "style",
]
