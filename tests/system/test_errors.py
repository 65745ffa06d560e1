"""A problem that the user can fix is one sentence, in a notebook too."""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell

from course_lib.system.errors import CourseError


def test_a_notebook_shows_the_sentence_alone(capsys):
    shell = InteractiveShell()
    shell.run_cell("from course_lib.system.errors import CourseError\nraise CourseError('Give -np 1 or more.')")
    shown = capsys.readouterr().out
    assert shown.strip() == "Give -np 1 or more."


def test_the_exit_code_travels_with_it():
    assert CourseError("x").code == 1
    assert CourseError("x", code=2).code == 2
