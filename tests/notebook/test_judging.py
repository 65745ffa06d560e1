from __future__ import annotations

import pytest

from course_lib.notebook.judging import Criterion, Wrong, judge


def positive(number):
    if number < 0:
        raise Wrong(f"{number} is below 0.")
    if number == 0:
        raise Wrong("0 is half of a positive number.", share=0.5)
    return f"{number} is above 0." if number > 9 else None


POSITIVE = Criterion("positive", "A positive number", 4.0, positive, hint="Take 1.")


@pytest.mark.parametrize(
    ("number", "points", "reason", "hint"),
    [
        (1, 4.0, "Right.", ""),
        (10, 4.0, "10 is above 0.", ""),
        (0, 2.0, "0 is half of a positive number.", "Take 1."),
        (-3, 0.0, "-3 is below 0.", "Take 1."),
    ],
)
def test_a_criterion_gives_points_a_reason_and_where_some_are_lost_a_hint(number, points, reason, hint):
    verdict = POSITIVE(number)
    assert (verdict.id, verdict.title, verdict.max_points) == ("positive", "A positive number", 4.0)
    assert (verdict.points, verdict.reason, verdict.hint) == (points, reason, hint)
    assert verdict.passed is (points == 4)


@pytest.mark.parametrize(("share", "kept"), [(-1, 0.0), (0.25, 0.25), (7, 1.0)])
def test_the_share_that_is_left_lies_between_nothing_and_all(share, kept):
    assert Wrong("no", share).share == kept


def test_a_judge_may_have_a_hint_of_its_own():
    def wrong(hint):
        raise Wrong("no", hint=hint)

    criterion = Criterion("one", "One", 1.0, wrong, hint="usual")
    assert [criterion(hint).hint for hint in (None, "another", "")] == ["usual", "another", ""]


def test_other_errors_are_no_verdicts():
    with pytest.raises(ZeroDivisionError):
        Criterion("one", "One", 1.0, lambda subject: 1 / subject)(0)


def test_every_criterion_is_asked_in_order():
    even = Criterion("even", "An even number", 1.0, lambda number: f"{number} is even.")
    assert [verdict.reason for verdict in judge(-2, [POSITIVE, even])] == ["-2 is below 0.", "-2 is even."]
