"""The course's figures: one style, and a module for each subject that is drawn."""

from course_lib.plots.runs import curves
from course_lib.plots.sharing import partition
from course_lib.plots.style import CARD, FAINT, INK, MARKERS, PALETTE, WIDTH, Card, card, colour, provenance, style

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
