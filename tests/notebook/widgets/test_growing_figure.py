from __future__ import annotations

import pytest

from course_lib.notebook import plots
from course_lib.notebook.widgets import growing_figure


class Shown:
    """Takes the place of IPython's display, keeps what was shown."""

    def __init__(self, monkeypatch):
        self.handles = []
        monkeypatch.setattr(growing_figure, "get_ipython", lambda: object())
        monkeypatch.setattr(growing_figure, "display", self)

    def __call__(self, what, display_id):
        assert display_id is True
        self.handles.append([what])
        handle = self.handles[-1]
        return type("Handle", (), {"update": lambda _, new: handle.append(new)})()

    def line(self):
        return self.handles[0][-1].data


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(growing_figure.time, "monotonic", lambda: now[0])
    return now


def test_a_figure_is_shown_once_and_then_updated(monkeypatch):
    shown = Shown(monkeypatch)
    cards = [plots.subplots()[0] for _ in range(3)]
    with growing_figure.Filling("runs") as chart:
        for card in cards:
            chart.show(card)
    assert shown.handles[1] == cards


def test_the_line_says_how_long_it_will_take_and_in_the_end_how_long_it_took(monkeypatch, clock):
    shown = Shown(monkeypatch)
    with growing_figure.Filling("runs") as chart:
        chart.at(0, "B = 8")
        assert "runs: B = 8<" in shown.line()
        clock[0] += 1
        chart.at(0.01, "B = 8, first steps")  # these are slow, and say little about the rest
        assert "first steps<" in shown.line()
        clock[0] += 9
        chart.at(0.25, "B = 16")
        assert "B = 16, about 30 s left" in shown.line()
        clock[0] += 0.1
        chart.at(0.5, "B = 32")
        assert "B = 16" in shown.line()  # twice a second at most
        clock[0] += 2
    assert shown.line() == "<i>runs: 12 s</i>"


def test_where_there_is_no_notebook_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(growing_figure, "get_ipython", lambda: None)
    with growing_figure.Filling("runs") as chart:
        chart.at(0.5)
        chart.show(plots.subplots()[0])
    assert capsys.readouterr() == ("", "")
