from __future__ import annotations

import pandas as pd

from course_lib.notebook.widgets.survey import STATEMENTS, Survey


def test_the_button_writes_what_the_sliders_say_over_what_was_there(tmp_path):
    path = tmp_path / "survey.csv"
    *rows, button, message = Survey(path).children
    sliders = [row.children[1] for row in rows]
    assert not path.exists()
    for answers in ([3, 3, 3, 3, 3], [1, 2, 3, 4, 5]):  # the first are those in the middle, where all stand
        button.click()
        assert pd.read_csv(path).to_dict("list") == {"statement": list(STATEMENTS), "answer": answers}
        assert "survey.csv" in message.value
        for slider, answer in zip(sliders, [1, 2, 3, 4, 5]):
            slider.value = answer


def test_a_table_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "survey.csv").mkdir()
    *_, button, message = Survey(tmp_path / "survey.csv").children
    button.click()
    assert message.value == "Not saved: survey.csv can't be written (Is a directory)."
    assert [path.name for path in tmp_path.iterdir()] == ["survey.csv"]


def test_without_a_front_end_the_statements_are_text():
    bundle = Survey()._repr_mimebundle_()
    assert bundle["text/plain"].startswith("1. I can do")
    assert "application/vnd.jupyter.widget-view+json" in bundle
