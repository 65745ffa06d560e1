"""The leaderboard: rules, places, ties, further runs, the table and where a learner's own attempt would stand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from course_grader.display import leaderboard
from course_grader.display.leaderboard import Entry
from course_grader.script import contract
from course_grader.script.grader import Outcome
from course_lib.notebook.judging import Verdict
from course_lib.system.errors import CourseError

CONTRACT = contract.read()
FULL = tuple(
    Verdict(name, name.capitalize(), points, points, "All is right.") for name, points in CONTRACT.points.items()
)


def outcome(seconds=60.0, accuracy=0.72, **changes):
    made = Outcome(True, 100, 100, "cpu", 2, "cifar10", seconds, 0.8, accuracy, FULL, 240, 1.0, "bubblewrap")
    return replace(made, **changes)


def lost(name, reason):
    return tuple(replace(one, points=0.0, reason=reason) if one.id == name else one for one in FULL)


def places(*entries):
    return [(row.place, row.learner) for row in leaderboard.ranked(entries, CONTRACT)]


def test_places_go_by_time_and_equal_times_by_accuracy():
    entries = [Entry("a", outcome(61.04)), Entry("b", outcome(60.96, 0.75)), Entry("c", outcome(59.0, 0.70))]
    assert places(*entries) == [(1, "c"), (2, "b"), (3, "a")]


def test_equal_runs_share_a_place():
    entries = [Entry("a", outcome(61)), Entry("b", outcome(60)), Entry("c", outcome(60)), Entry("d", outcome(62))]
    assert places(*entries) == [(1, "b"), (1, "c"), (3, "a"), (4, "d")]


def test_a_slow_host_does_not_cost_a_place():
    slow, fast = outcome(100.0, factor=2.0), outcome(55.0)
    rows = leaderboard.ranked([Entry("fast", fast), Entry("slow", slow)], CONTRACT)
    assert [(row.learner, row.seconds, row.measured, row.factor) for row in rows] == [
        ("slow", 50.0, 100.0, 2.0),
        ("fast", 55.0, 55.0, 1.0),
    ]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"data": "shapes"}, "trained on shapes, not on cifar10"),
        ({"ranks": 4}, "on 4 ranks, not on 2"),
        ({"sandbox": "none"}, "without a sandbox"),
        ({"verdicts": lost("data", "Each rank reads everything.")}, "Data: Each rank reads everything."),
    ],
)
def test_who_breaks_a_rule_is_listed_with_it_and_has_no_place(changes, words):
    rows = leaderboard.ranked([Entry("a", outcome(10.0, **changes)), Entry("b", outcome(60.0))], CONTRACT)
    assert [(row.place, row.learner) for row in rows] == [(1, "b"), (None, "a")]
    assert words in rows[1].rule
    page = leaderboard.page(rows, "profile cpu")
    assert page.index(words) > page.index("Passed, but broke a rule")


def test_a_number_of_ranks_that_the_profile_leaves_open_breaks_no_rule():
    assert leaderboard.broken(outcome(profile="gpu", ranks=8), CONTRACT) == ""


def test_a_lucky_run_does_not_win():
    lucky = Entry("lucky", outcome(40.0), again=tuple(outcome(s) for s in (70, 71, 72, 73, 74, 75)))
    steady = Entry("steady", outcome(62.0), again=tuple(outcome(s) for s in (60, 61, 61, 62, 62, 63)))
    rows = leaderboard.ranked([lucky, steady, Entry("once", outcome(50.0))], CONTRACT)
    assert [(row.learner, row.seconds, row.low, row.high, row.runs) for row in rows] == [
        ("steady", 61.5, 60.0, 63.0, 6),
        ("lucky", 72.5, 70.0, 75.0, 6),
        ("once", 50.0, 50.0, 50.0, 1),
    ]
    assert "61.5 s (60.0 to 63.0; 6 runs)" in leaderboard.page(rows, "")


def test_runs_that_did_not_pass_have_no_time():
    failed = outcome(30.0, passed=False)
    often = Entry("often", outcome(40.0), again=(*[outcome(50.0)] * 2, *[failed] * 4))
    seldom = Entry("seldom", outcome(41.0), again=(*[outcome(50.0)] * 5, failed))
    rows = leaderboard.ranked([often, seldom], CONTRACT)
    assert [(row.place, row.learner) for row in rows] == [(1, "seldom"), (None, "often")]
    assert rows[0].high == math.inf and "to not reached" in leaderboard.page(rows, "")
    assert rows[1].rule == "Only 2 of 6 further runs passed by the rules: most must."


def test_the_table_comes_back_as_it_was(tmp_path):
    failed = outcome(passed=False)
    entries = [
        Entry("a, b", outcome(60.0), attempts=3),
        Entry("c", outcome(61.0), again=(*[outcome(50.0)] * 5, failed)),
        Entry("d", outcome(data="shapes")),
    ]
    rows = leaderboard.ranked(entries, CONTRACT)
    path = tmp_path / "leaderboard.csv"
    path.write_text(leaderboard.to_csv(rows))
    assert leaderboard.read(path) == rows


@pytest.mark.parametrize("text", ["learner\nanna\n", "<html>", "place,learner\n1,b\n"])
def test_another_file_is_said_to_be_none(tmp_path, text):
    path = tmp_path / "leaderboard.csv"
    path.write_text(text + "x\n")
    with pytest.raises(CourseError, match="is not a leaderboard"):
        leaderboard.read(path)


def test_where_an_attempt_would_stand():
    rows = leaderboard.ranked([Entry("a", outcome(60.0)), Entry("b", outcome(70.0))], CONTRACT)

    def told(one):
        return leaderboard.standing(one, rows, CONTRACT)

    assert told(outcome(65.0)) == "It would have place 2 of 3 on the class's leaderboard (65.0 s)."
    assert "place 1 of 3" in told(outcome(60.0, 0.9)) and "place 2 of 3" in told(outcome(60.0, 0.1))
    assert "did not pass" in told(outcome(passed=False))
    assert told(outcome(data="shapes")).endswith("leaderboard. It trained on shapes, not on cifar10.")
    assert told(outcome(profile="short")).endswith("for the profile cpu, but this run used short.")


def test_a_leaderboard_beside_the_script_may_be_missing_or_damaged(tmp_path):
    script = tmp_path / "assessment.py"
    assert leaderboard.standing_beside(script, outcome(), CONTRACT) == ""
    script.with_name(leaderboard.FILE).write_text(leaderboard.to_csv([]))
    assert "place 1 of 1" in leaderboard.standing_beside(script, outcome(), CONTRACT)
    script.with_name(leaderboard.FILE).write_bytes(b"\xff\xfe")
    assert "is not a leaderboard" in leaderboard.standing_beside(script, outcome(), CONTRACT)


def test_names_are_text_on_the_page():
    page = leaderboard.page(leaderboard.ranked([Entry("<b>", outcome())], CONTRACT), "<i>")
    assert "&lt;b&gt;" in page and "&lt;i&gt;" in page
    assert "<b>" not in page and "<i>" not in page
