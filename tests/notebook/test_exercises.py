from __future__ import annotations

import functools

import pytest

from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import CheckFailed, Criterion, Wrong


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
            "Small numbers: `double` raised ZeroDivisionError: division by zero (line 40 of test_exercises.py)\n",
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
    assert line.startswith("`double` is not written yet.")
    assert str(EXERCISES.check(double)) == f"· Not written yet: {line}"


def test_the_stub_that_is_missing_is_named():
    def half(x):
        raise NotImplementedError

    report = str(EXERCISES.check(named(lambda x: 4 * half(x))))
    assert report.startswith("· Not written yet: `half`, which `double` uses, is not written yet.")


def test_the_check_tells_each_criterion():
    report = str(EXERCISES.check(named(lambda x: x + 2)))
    assert report.splitlines() == ["✓ Small numbers: Right.", "· Large numbers: 500 should become 1,000."]


@pytest.mark.parametrize("answer", [3, None, "double", pytest, named(lambda x: x, "halve")])
def test_what_is_no_exercise_is_said_in_one_sentence_that_names_them(answer, capsys):
    sentence = "This is not an exercise of this notebook: pass one of `double`, `triple` itself, without calling it."
    assert str(EXERCISES.check(answer)) == f"· No exercise: {sentence}"
    assert EXERCISES.points(answer, 4) == 0.0
    assert capsys.readouterr().out == f"{sentence}\n"


def test_an_answer_without_a_name_of_its_own_goes_by_that_in_the_notebook():
    names = {"points": EXERCISES.points, "check": EXERCISES.check, "partial": functools.partial}
    exec("double = lambda x: x + x\ntriple = partial(pow, 3)\nother = lambda x: x", names)
    assert eval("points(double, 4)", names) == eval("points(triple, 4)", names) == 4.0
    assert "not an exercise of this notebook" in str(eval("check(other)", names))


def test_what_raises_in_a_cell_is_told_with_its_line_and_an_exit_too():
    names = {}
    exec(compile("import sys\n\ndef double(x):\n    sys.exit('enough')", "/tmp/ipykernel_1/2.py", "exec"), names)
    report = EXERCISES.check(names["double"])
    assert report.verdicts[0].reason == "`double` raised SystemExit: enough (line 4 of your cell)"


def test_a_message_that_cant_be_made_or_has_many_lines_is_one_line():
    class Odd(Exception):
        def __str__(self):
            raise ValueError

    def double(x):
        raise Odd if x == 2 else KeyError("a\nb")

    reasons = [verdict.reason for verdict in EXERCISES.check(double).verdicts]
    assert reasons[0].startswith("`double` raised Odd (line")
    assert reasons[1].startswith("`double` raised KeyError: 'a\\nb' (line")
    assert not any("\n" in reason for reason in reasons)


def test_a_check_that_fails_blames_no_answer(of_the_course):
    exercises = Exercises(
        Exercise(
            "double",
            Criterion("failing", "Fails", 0.5, of_the_course("def judge(answer):\n    return {}[answer(3)]")),
            Criterion("well", "Works", 0.5, lambda answer: None),
        )
    )
    with pytest.raises(CheckFailed, match="Fails: the check itself failed") as failed:
        exercises.points(named(lambda x: 2 * x), 4)
    assert isinstance(failed.value.__cause__, KeyError)
    assert str(exercises.check(named(lambda x: 2 * x))).splitlines() == [
        "· Fails: The check itself failed, so your answer was not judged. Please report it (KeyError: 6, "
        "line 2 of <string>).",
        "✓ Works: Right.",
    ]
    with pytest.raises(CheckFailed):
        exercises.points(named(lambda x: NotImplemented), 4)


def test_a_check_that_raises_not_implemented_does_not_call_the_answer_a_stub(of_the_course):
    judge = of_the_course("def judge(answer):\n    raise NotImplementedError")
    exercises = Exercises(Exercise("double", Criterion("all", "All", 1.0, judge)))
    assert "The check itself failed" in str(exercises.check(named(lambda x: x)))


def test_points_are_never_above_the_maximum():
    thirds = [Criterion(str(n), str(n), 1 / 3, lambda answer: None) for n in range(3)]
    assert Exercises(Exercise("double", *thirds)).points(named(lambda x: x), 1) == 1.0


def test_shares_that_are_not_one_together_are_a_mistake_of_the_course():
    with pytest.raises(AssertionError, match="double"):
        Exercise("double", Criterion("all", "All numbers", 0.9, lambda answer: None))
