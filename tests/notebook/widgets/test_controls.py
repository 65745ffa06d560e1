from __future__ import annotations

import base64

import ipywidgets
import nbformat
import pytest
from nbclient import NotebookClient

from course_lib.notebook import plots
from course_lib.notebook.widgets import controls


@pytest.fixture
def page(monkeypatch):
    """What is displayed, in order."""
    shown = []
    monkeypatch.setattr(controls, "display", lambda bundle, metadata, raw: shown.append(bundle))
    return shown


def sketch(calls):
    def draw(**values):
        calls.append(values)
        figure, _ = plots.subplots(height=120)
        return figure

    return draw


def test_draws_once_at_the_start_and_again_when_a_control_is_moved(page):
    calls = []
    rate = controls.slider("η", -3, 0, 0.1, log=True)
    controls.explore(sketch(calls), rate=rate, ranks=controls.slider("N", 1, 8, 2))
    assert calls == [{"rate": 0.1, "ranks": 2}]
    rate.value.value = 0.5
    assert calls[1:] == [{"rate": 0.5, "ranks": 2}]
    assert page[0]["image/png"].startswith(b"\x89PNG")


def test_a_fault_while_drawing_is_told_on_the_page_and_goes_away(page, monkeypatch):
    boxes = []
    original = ipywidgets.VBox
    monkeypatch.setattr(ipywidgets, "VBox", lambda children: boxes.append(children) or original(children))

    def draw(rate):
        if rate > 1:
            raise ValueError("too <fast>")
        return sketch([])()

    rate = controls.slider("η", 0.0, 2.0, 0.5)
    controls.explore(draw, rate=rate)
    trouble = next(child for child in boxes[0] if isinstance(child, ipywidgets.HTML))
    rate.value.value = 1.5
    assert "too &lt;fast&gt;" in trouble.value
    rate.value.value = 0.1
    assert trouble.value == ""


def test_a_fault_at_the_start_is_the_cells_own(page):
    with pytest.raises(NotImplementedError):
        controls.explore(lambda rate: (_ for _ in ()).throw(NotImplementedError()), rate=controls.slider("η", 0, 2, 1))
    assert page == []


def test_controls_start_where_they_are_told():
    assert isinstance(controls.slider("N", 1, 8, 2).value, ipywidgets.IntSlider)
    assert controls.slider("η", 0.0, 1.0, 0.25).value.value == 0.25
    assert controls.choice("mode", ["data", "model"]).value.value == "data"
    assert controls.choice("mode", {"Data": 1, "Model": 2}).value.value == 1
    assert controls.animation("step", 30).value.value == 29
    play, place = controls.animation("step", 30, start=0).shown.children
    assert (play.value, place.value, place.max) == (0, 0, 29)


@pytest.mark.slow
@pytest.mark.notebook
def test_without_a_front_end_the_notebook_keeps_the_first_picture():
    source = "\n".join(
        [
            "from course_lib.notebook import plots, widgets",
            "widgets.explore(lambda n: plots.subplots(120)[0], n=widgets.slider('n', 1, 3, 2))",
        ]
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=60).execute()
    (output,) = notebook.cells[0].outputs
    assert base64.b64decode(output.data["image/png"]).startswith(b"\x89PNG")
    assert "application/vnd.jupyter.widget-view+json" in output.data
