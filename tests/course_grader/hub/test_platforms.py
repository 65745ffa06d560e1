"""Points as Canvas and Moodle import them."""

from __future__ import annotations

import csv

import pytest

from course_grader.classroom import summary
from course_grader.hub import platforms
from course_lib.system.errors import CourseError


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "class"


def grade(directory, *rows):
    columns = ("learner", "assignment", "exercise", "score", "max_score")
    results = directory.parent / "class-graded"
    results.mkdir()
    summary.write_tables(results, [dict(zip(columns, row)) for row in rows], [])


def written(directory, platform):
    path = directory.parent / "points.csv"
    platforms.write_points(directory, platform, path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


ROWS = [
    ("ben", "lab1", "a", 2.5, 4.0),
    ("ben", "lab1", "b", 1.0, 2.0),
    ("ben", "lab2", "c", 3.0, 3.0),
    ("ada", "lab1", "a", 4.0, 4.0),
    ("ada", "lab1", "b", 2.0, 2.0),
]


def test_canvas_finds_learners_by_their_login(directory):
    grade(directory, *ROWS)
    assert written(directory, "canvas") == [
        ["Student", "ID", "SIS Login ID", "Section", "lab1", "lab2"],
        ["    Points Possible", "", "", "", "6", "3"],
        ["ada", "", "ada", "", "6", ""],
        ["ben", "", "ben", "", "3.5", "3"],
    ]


def test_moodle_gets_a_column_for_each_lab(directory):
    grade(directory, *ROWS)
    assert written(directory, "moodle") == [["Username", "lab1", "lab2"], ["ada", "6", ""], ["ben", "3.5", "3"]]


def test_moodle_finds_learners_by_address_where_the_names_are_addresses(directory):
    grade(directory, ("ada@example.org", "lab1", "a", 1.0, 2.0))
    assert written(directory, "moodle")[0][0] == "Email address"


def test_what_was_graded_in_part_stays_empty_and_is_named(directory, capsys):
    grade(directory, *ROWS, ("ada", "lab2", "c", None, 3.0), ("carl", "lab2", "", None, None))
    assert written(directory, "moodle")[1:] == [["ada", "6", ""], ["ben", "3.5", "3"], ["carl", "", ""]]
    assert "graded in part: ada (lab2), carl (lab2)." in capsys.readouterr().out


def test_nothing_graded_is_a_sentence(directory):
    with pytest.raises(CourseError, match=r"give `course grade .*class` first"):
        platforms.write_points(directory, "canvas", directory.parent / "points.csv")
