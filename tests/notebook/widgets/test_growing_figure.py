from __future__ import annotations

import pytest

from course_lib.notebook import plots, report
from course_lib.notebook.report import Ticker
from course_lib.notebook.widgets import growing_figure
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks.launch import Event


@pytest.fixture
def shown(monkeypatch):
    """For each thing on the page all that has stood in its place."""
    shown = []

    def display(what, display_id, raw=False):
        assert display_id is True
        shown.append([what["text/html"] if raw else what])
        place = shown[-1]
        update = lambda _, new, raw=False: place.append(new["text/html"] if raw else new)  # noqa: E731
        return type("Handle", (), {"update": update})()

    monkeypatch.setattr("IPython.get_ipython", object)
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(growing_figure, "display", display)
    return shown


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(report.time, "monotonic", lambda: now[0])
    return now


def test_a_figure_is_shown_once_and_then_updated(shown):
    figures = [plots.subplots()[0] for _ in range(3)]
    with Filling("runs") as chart:
        for figure in figures:
            chart.show(figure)
    assert shown[1] == figures


def test_the_line_says_how_long_it_will_take_and_in_the_end_how_long_it_took(shown, clock):
    with Filling("runs < 9") as chart:
        (line,) = shown
        chart.at(0, "B = 8")
        assert line[-1] == "<i>⏳ runs &lt; 9: B = 8</i>"
        clock[0] += 1
        chart.at(0.01, "B = 8, first steps")  # these are slow, and say little about the rest
        assert "first steps<" in line[-1]
        clock[0] += 9
        chart.at(0.25, "B = 16")
        assert "B = 16, about 30 s left" in line[-1]
        clock[0] += 0.1
        chart.at(0.5, "B = 32")
        assert "B = 16" in line[-1]  # twice a second at most
        clock[0] += 2
    assert line[-1] == "<i>runs &lt; 9: 12 s</i>"


def test_a_ticker_follows_the_events_of_a_run_and_goes_away(shown, clock):
    with Ticker("two ranks") as ticker:
        for event in (
            Event("fit", 0, 2.0, {}), Event("epoch", 0, 4.0, {"epoch": 0}), Event("output", 1, 7.0, {}),
            Event("step", 0, 9.0, {"step": 3}),
        ):  # fmt: skip
            clock[0] += 1
            ticker.follow(event)
    assert shown == [
        ["<i>⏳ two ranks …</i>", *(f"<i>⏳ two ranks: {stage} s …</i>" for stage in
         ("training, 2", "epoch 1 done, 4", "epoch 1 done, 7", "step 3, 9")), ""]
    ]  # fmt: skip


def test_where_there_is_no_notebook_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    with Filling("runs") as chart:
        chart.at(0.5)
        chart.show(plots.subplots()[0])
    assert capsys.readouterr() == ("", "")
