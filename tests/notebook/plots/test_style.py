"""The course's style of figures."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from course_lib.notebook import plots


@pytest.mark.parametrize("words", [5, 24, 40])
def test_a_caption_ends_within_its_figure(words):
    figure, _ = plots.subplots(caption="recorded, " * words)
    (caption,) = figure.texts
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert caption.get_window_extent(renderer).x1 < figure.bbox.x1
    assert (caption.get_fontsize() == 8.5) == (words < 15)
