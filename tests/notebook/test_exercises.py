from __future__ import annotations

import pytest

from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.system.errors import CourseError


def doubles(small, sentence):
    def judge(answer):
        if answer(small) != 2 * small:
            raise Wrong(sentence)

    return judge


EXERCISES = Exercises(
    Exercise(
        "double",
        Criterion("small", "Small numbers", 0.25, doubles(2, "2 should become 4: add it to itself.")),
        Criterion("large", "Large numbers", 0.75, doubles(500, "500 should become 1,000.")),
    ),
    Exercise("triple", Criterion("all", "All numbers", 1.0, lambda answer: None)),
)


def named(function, name="double"):
    function.__name__ = name
    return function


@pytest.mark.parametrize(
    ("answer", "points", "said"),
    [
        (lambda x: 2 * x, 4.0, ""),
        (lambda x: x + 2, 1.0, "Large numbers: 500 should become 1,000.\n"),
        (
            lambda x: x / 0 if x < 9 else 1000,
            3.0,
            "Small numbers: `double` raised ZeroDivisionError: division by zero\n",
        ),
        (
            lambda x: None,
            0.0,
            "Small numbers: 2 should become 4: add it to itself.\nLarge numbers: 500 should become 1,000.\n",
        ),
    ],
)
def test_each_criterion_gives_its_share_or_its_reason(answer, points, said, capsys):
    given = EXERCISES.points(named(answer), 4)
    assert given == points
    assert type(given) is float  # nbgrader takes no other
    assert capsys.readouterr().out == said


def test_an_answer_with_other_arguments_gets_nothing(capsys):
    assert EXERCISES.points(named(lambda: 0), 4) == 0.0
    assert "`double` raised TypeError" in capsys.readouterr().out


def test_a_part_of_a_criterion_is_kept(capsys):
    def judge(answer):
        raise Wrong("half of it is missing.", share=0.5)

    exercises = Exercises(Exercise("double", Criterion("all", "All numbers", 1.0, judge)))
    assert exercises.points(named(lambda x: x), 3) == 1.5
    assert capsys.readouterr().out == "All numbers: half of it is missing.\n"


def test_a_stub_gets_nothing_and_one_friendly_line(capsys):
    def double(x):
        raise NotImplementedError

    assert EXERCISES.points(double, 4) == 0.0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("`double` is still a stub.")
    assert str(EXERCISES.check(double)) == f"· Not written yet: {line}"


def test_the_stub_that_is_missing_is_named():
    def half(x):
        raise NotImplementedError

    report = str(EXERCISES.check(named(lambda x: 4 * half(x))))
    assert report.startswith("· Not written yet: `half`, which `double` uses, is still a stub.")


def test_the_check_tells_each_criterion():
    report = str(EXERCISES.check(named(lambda x: x + 2)))
    assert report.splitlines() == ["✓ Small numbers: Right.", "· Large numbers: 500 should become 1,000."]


@pytest.mark.parametrize("answer", [3, named(lambda x: x, "halve")])
def test_what_is_no_exercise_is_an_error_that_names_them(answer):
    with pytest.raises(CourseError, match="one of `double`, `triple`, as it is"):
        EXERCISES.check(answer)


def test_points_are_never_above_the_maximum():
    thirds = [Criterion(str(n), str(n), 1 / 3, lambda answer: None) for n in range(3)]
    assert Exercises(Exercise("double", *thirds)).points(named(lambda x: x), 1) == 1.0


def test_shares_that_are_not_one_together_are_a_mistake_of_the_course():
    with pytest.raises(AssertionError, match="double"):
        Exercise("double", Criterion("all", "All numbers", 0.9, lambda answer: None))
