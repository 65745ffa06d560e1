from __future__ import annotations

import ipywidgets
import pandas as pd

from course_lib.notebook.widgets import survey


def test_save_writes_what_the_sliders_say_over_what_was_there(tmp_path):
    path = tmp_path / "survey.csv"
    *rows, button, said = survey.Survey(path)._box().children
    for number, row in enumerate(rows, 1):
        row.children[1].value = number
    button.click()
    table = pd.read_csv(path)
    assert table["statement"].tolist() == list(survey.STATEMENTS)
    assert table["answer"].tolist() == [1, 2, 3, 4, 5]
    assert "survey.csv" in said.value
    rows[0].children[1].value = 5
    button.click()
    assert pd.read_csv(path)["answer"].tolist() == [5, 2, 3, 4, 5]


def test_a_table_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "survey.csv").mkdir()
    *_, button, said = survey.Survey(tmp_path / "survey.csv")._box().children
    button.click()
    assert said.value == "Not saved: survey.csv can't be written (Is a directory)."
    assert [path.name for path in tmp_path.iterdir()] == ["survey.csv"]


def test_sliders_begin_in_the_middle_and_nothing_is_written_before_the_button(tmp_path):
    box = survey.Survey(tmp_path / "survey.csv")._box()
    sliders = [row.children[1] for row in box.children if isinstance(row, ipywidgets.HBox)]
    assert [slider.value for slider in sliders] == [3] * 5
    assert not list(tmp_path.iterdir())


def test_without_a_front_end_the_statements_are_text(monkeypatch):
    shown = []
    monkeypatch.setattr(survey, "display", lambda bundle, raw: shown.append(bundle))
    survey.Survey()._ipython_display_()
    assert shown[0]["text/plain"].startswith("1. I can do")
