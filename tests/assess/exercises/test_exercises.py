from __future__ import annotations

import numpy as np
import pytest

from course_lib.assess.exercises import Exercise, Exercises, Part, one_number

HALVES = Exercises(
    Exercise(
        "double",
        (
            Part(
                "Small numbers", 0.25, lambda answer: "" if answer(2) == 4 else "2 should become 4: add it to itself."
            ),
            Part("Large numbers", 0.75, lambda answer: "" if answer(500) == 1000 else "500 should become 1,000."),
        ),
    )
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
        (lambda: 0, 0.0, None),
    ],
)
def test_each_part_gives_its_share_or_its_reason(answer, points, said, capsys):
    assert HALVES.points(named(answer), 4) == points
    assert type(HALVES.points(named(answer), 4)) is float
    if said is not None:
        assert capsys.readouterr().out == 2 * said


def test_a_stub_gets_nothing_and_its_error_reaches_the_check(capsys):
    def double(x):
        raise NotImplementedError

    assert HALVES.points(double, 4) == 0.0
    assert "not written yet" in capsys.readouterr().out
    with pytest.raises(NotImplementedError):
        HALVES.check(double)


def test_the_check_tells_each_part():
    report = str(HALVES.check(named(lambda x: x + 2)))
    assert report.splitlines() == ["✓ Small numbers: Right.", "· Large numbers: 500 should become 1,000."]


def test_points_are_never_above_the_maximum():
    thirds = Exercises(Exercise("double", tuple(Part(str(n), 1 / 3, lambda answer: "") for n in range(3))))
    assert thirds.points(named(lambda x: x), 1) == 1.0


@pytest.mark.parametrize("value", [1, 2.5, np.float32(3), np.array(4), np.int64(5)])
def test_a_number_is_a_number(value):
    assert one_number(value) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "None"), ([1.0], "one number"), (np.ones(1), "one number"), ("2", "one number"), (True, "one number"),
        (1j, "one number"), (float("nan"), "nan"), (np.inf, "inf"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_said(value, said):
    assert said in one_number(value)
