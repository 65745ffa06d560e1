"""Notebook 1d: which steps stand in a wrong place."""

from __future__ import annotations

from labs.lab1_gradient_descent.lessons import checks_1d


def test_a_step_too_many_is_told_where_it_stands(answer):
    edits = ("[1, 3, 4, 15]", "[1, 3, 4, 13, 15]"), ("list(range(6, 15))", "[*range(6, 13), 14]")
    report = str(checks_1d.check(answer("1d", "place", *edits)))
    assert "The host's steps: These are right, but step 13 does not belong to them" in report


def test_the_steps_that_the_pictures_mark():
    places = {"host": [1, 3, 4, 9, 15], "wire": [2, 5], "device": [5, 6, 7, 8, 10, 11, 12, 13, 14]}
    assert checks_1d.misplaced(places) == {5, 9}
    assert checks_1d.misjudged(range(1, 13), 12) == set()
    assert checks_1d.misjudged([*range(2, 13), 13, 15], 9) == {0, 1, 13}
