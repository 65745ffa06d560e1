"""What the tests of lab 4's figures share."""

from __future__ import annotations

import pytest

from course_lib.notebook.plots.canvas import Canvas, Panel


@pytest.fixture
def canvas_words(monkeypatch):
    """canvas_words(draw): all words that `draw()` puts on a canvas, where they are outlines and no longer texts."""

    def words(draw):
        said, put = [], Canvas.text

        def text(canvas, x, y, what, **look):
            said.append(what)
            put(canvas, x, y, what, **look)

        with monkeypatch.context() as patch:
            patch.setattr(Canvas, "text", text)
            draw().png()
        return said

    return words


@pytest.fixture
def panel_lines(monkeypatch):
    """panel_lines(draw): the (xs, ys) of all lines that `draw()` draws in a canvas's panels."""

    def lines(draw):
        drawn, put = [], Panel.line

        def line(panel, xs, ys, style="-", **look):
            drawn.append((list(xs), list(ys)))
            put(panel, xs, ys, style, **look)

        with monkeypatch.context() as patch:
            patch.setattr(Panel, "line", line)
            draw().png()
        return drawn

    return lines
