"""A wrong diagnosis costs its share, and is answered with what speaks against it."""

from __future__ import annotations

import pytest

from labs.lab5_precision_and_memory.lessons import diagnosis_5b, diagnosis_5d
from labs.lab6_beyond_synchronous.lessons import diagnosis_6b, diagnosis_6c

LESSONS = {"5b": diagnosis_5b, "5d": diagnosis_5d, "6b": diagnosis_6b, "6c": diagnosis_6c}


@pytest.mark.parametrize(("notebook", "name"), [(key, name) for key, one in LESSONS.items() for name in one._PATIENTS])
def test_a_wrong_diagnosis_is_answered_with_what_speaks_against_it(notebook, name, capsys):
    lesson = LESSONS[notebook]
    for mistake in set(lesson.MISTAKES) - {lesson._PATIENTS[name]}:
        answer = {**lesson._PATIENTS, name: mistake}
        assert lesson.diagnosis_points(lambda answer=answer: answer, 4) == 3.0
        assert lesson._AGAINST[name].get(mistake, lesson._FOR[name]) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "word"),
    [(None, "returns nothing"), ([1, 2], "as in"), ({"A": 2}, "has no diagnosis"), ({"A": "2"}, "write a number")],
)
def test_what_is_no_diagnosis_is_said(answer, word, capsys):
    assert diagnosis_5d.diagnosis_points(lambda: answer, 4) < 4
    assert word in capsys.readouterr().out
