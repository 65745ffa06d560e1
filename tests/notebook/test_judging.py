from __future__ import annotations

import json

import pytest

from course_lib.notebook.judging import CheckFailed, Criterion, Wrong, learners_place, report


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


@pytest.mark.parametrize(("share", "left"), [(-1, 0.0), (0.25, 0.25), (7, 1.0)])
def test_the_share_that_is_left_lies_between_nothing_and_all(share, left):
    assert Wrong("no", share).share == left


def test_a_judge_may_have_a_hint_of_its_own():
    def wrong(hint):
        raise Wrong("no", hint=hint)

    criterion = Criterion("one", "One", 1.0, wrong, hint="usual")
    assert [criterion(hint).hint for hint in (None, "another", "")] == ["usual", "another", ""]


def test_what_raises_in_a_learners_code_passes_and_what_raises_in_the_course_is_a_failed_check(of_the_course):
    with pytest.raises(ZeroDivisionError):
        Criterion("one", "One", 1.0, lambda subject: 1 / subject)(0)
    asked = Criterion("one", "One", 1.0, of_the_course("def judge(answer):\n    return answer(3) + 1"))
    with pytest.raises(ZeroDivisionError):
        asked(lambda x: x / 0)
    with pytest.raises(CheckFailed, match=r"One: the check itself failed, .* \(TypeError: can only") as failed:
        asked(lambda x: "odd")
    assert isinstance(failed.value.__cause__, TypeError)


@pytest.mark.parametrize("answer", [lambda: 0, lambda x, y: 0, lambda *, x: 0, type("Empty", (), {})])
def test_an_answer_that_cant_be_called_so_is_no_failed_check(answer, of_the_course):
    asked = Criterion("one", "One", 1.0, of_the_course("def judge(answer):\n    return answer(3)"))
    with pytest.raises(TypeError):
        asked(answer)


def test_a_library_that_raises_within_a_learners_code_is_the_learners():
    def odd(x):
        return json.loads("{")

    with pytest.raises(ValueError) as error:
        odd(1)
    name, line = learners_place(error.value)
    assert (name, line.partition(" of ")[2]) == ("odd", "test_judging.py")


def test_a_judge_may_say_what_its_verdict_rests_on():
    def judge(subject):
        if subject < 0:
            raise Wrong("no", rests_on="script")
        return "yes", "host"

    criterion = Criterion("one", "One", 1.0, judge)
    assert [(criterion(n).reason, criterion(n).rests_on) for n in (1, -1)] == [("yes", "host"), ("no", "script")]
    assert POSITIVE(1).rests_on == POSITIVE(-1).rests_on == ""


def test_a_reason_is_one_line_of_moderate_length():
    criterion = Criterion("one", "One", 1.0, lambda text: (_ for _ in ()).throw(Wrong(text)))
    assert criterion("a\n   b").reason == "a b"
    assert len(criterion("long" * 1000).reason) == 600


def test_a_report_tells_of_a_criterion_that_fails(of_the_course):
    failing = Criterion("one", "One", 1.0, of_the_course("def judge(subject):\n    return subject.missing"))
    failed, passed = report(1, [failing, POSITIVE])
    assert failed.points == 0
    assert "your answer was not judged" in failed.reason and "line 2 of <string>" in failed.reason
    assert passed == POSITIVE(1)
