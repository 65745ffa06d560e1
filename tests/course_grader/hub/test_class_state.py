"""The class at a glance: how far each learner is, what is hard and why, what needs the instructor."""

from __future__ import annotations

import os
import re
import shutil
import time

import pytest
from rich.console import Console

from course_grader.classroom.summary import write_tables
from course_grader.display import class_page, similar
from course_grader.hub import class_state, collect, hand_back
from course_lib.notebook import exercises
from course_lib.notebook.judging import Criterion
from course_lib.system.errors import CourseError
from tests.course_grader.classes import LAB, NAME
from tests.course_grader.hub import exchanges
from tests.course_grader.hub.exchanges import TIMESTAMPS, from_now, submit


@pytest.fixture
def exchange(tmp_path):
    return exchanges.make(tmp_path, "anna", "ben", "cleo")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "class"


def slope():
    raise NotImplementedError("yours")


def row(learner, score, exercise="slope", reason="", maximum=4, **changes):
    about = {"learner": learner, "assignment": LAB, "notebook": NAME, "passed": ""}
    return {**about, "exercise": exercise, "score": score, "max_score": maximum, "reason": reason, **changes}


def graded(directory, *rows):
    results = directory.with_name("class-graded")
    write_tables(results, list(rows), [one for one in rows if one["score"] is None])
    for learner in {one["learner"] for one in rows}:
        page = results / "feedback" / learner / LAB / f"{NAME}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("page")


def state_of(directory, exchange, learner="anna"):
    return class_state.read(directory, exchange).standings.get((learner, LAB))


def test_a_submission_on_its_way(exchange, directory):
    assert state_of(directory, exchange) is None
    submit(exchange, "anna", "one", TIMESTAMPS[1])
    assert state_of(directory, exchange).state == "handed in"
    collect.collect(None, directory, exchange)
    assert state_of(directory, exchange).state == "collected"
    graded(directory, row("anna", 3, reason="No."), row("anna", 1, "shout", maximum=1))
    assert (state_of(directory, exchange).state, state_of(directory, exchange).score) == ("graded", "4 of 5")
    hand_back.hand_back(None, directory, exchange)
    assert state_of(directory, exchange).state == "returned"
    submit(exchange, "anna", "two", TIMESTAMPS[2])
    again = state_of(directory, exchange)
    assert (again.state, again.note) == ("returned", "newer handed in")
    collect.collect(None, directory, exchange)
    assert (state_of(directory, exchange).state, state_of(directory, exchange).score) == ("collected", "")


def test_a_page_that_changed_after_it_was_returned_waits_to_be_returned(exchange, directory):
    submit(exchange, "anna")
    collect.collect(None, directory, exchange)
    graded(directory, row("anna", 4))
    hand_back.hand_back(None, directory, exchange)
    page = directory.with_name("class-graded") / "feedback" / "anna" / LAB / f"{NAME}.html"
    os.utime(page, (time.time() + 60, time.time() + 60))
    assert state_of(directory, exchange).state == "graded"


def test_late_and_extended(exchange, directory):
    submit(exchange, "anna")
    submit(exchange, "ben")
    collect.collect(LAB, directory, exchange, from_now(hours=-1), [f"ben={from_now(hours=1)}"])
    assert state_of(directory, exchange).state == "late"
    assert (state_of(directory, exchange, "ben").state, state_of(directory, exchange, "ben").note) == ("collected", "")


def test_a_late_one_after_what_was_collected_and_a_deadline_that_was_set_afterwards(exchange, directory):
    submit(exchange, "anna", "one", TIMESTAMPS[1])
    submit(exchange, "ben", "one", TIMESTAMPS[1])
    collect.collect(LAB, directory, exchange)
    submit(exchange, "anna", "two", TIMESTAMPS[2])
    collect.collect(LAB, directory, exchange, from_now(hours=-1))
    assert state_of(directory, exchange).note == "newer is late"
    assert state_of(directory, exchange, "ben").note == "late"


def test_who_needs_the_instructor(exchange, directory):
    for learner in ("anna", "ben"):
        submit(exchange, learner)
    collect.collect(None, directory, exchange)
    look = row("anna", None, reason="Needs review: line 3.", passed="needs review")
    fault = row("ben", None, "shout", "The test gave no score.", 1)
    graded(directory, look, row("ben", 3), fault)
    state = class_state.read(directory, exchange)
    assert state.standings["anna", LAB].state == "needs review"
    assert (state.standings["ben", LAB].state, state.standings["ben", LAB].score) == ("graded in part", "3 of 5")
    assert state.problems == [("anna", NAME, "Needs review: line 3."), ("ben", NAME, "The test gave no score.")]
    assert state.counts(LAB) == {"needs review": 1, "graded in part": 1, "nothing": 1}


def test_what_was_taken_for_none_of_the_courses_notebooks_is_not_graded(exchange, directory):
    submit(exchange, "anna")
    collect.collect(None, directory, exchange)
    graded(directory, row("anna", None, None, "It seems to be another.", None, assignment=""))
    assert state_of(directory, exchange).state == "not graded"


def test_the_hardest_exercise_is_first_with_its_most_frequent_reasons(exchange, directory, capsys):
    criterion = Criterion("right", "Right", 1.0, lambda answer: answer())
    exercises.Exercise("slope", criterion).points(slope, 4.0)
    stub = capsys.readouterr().out.strip()  # as notebooks say it
    error = "TypeError: no (line {} of your cell)."
    graded(
        directory,
        *(row(learner, 1, "shout", maximum=1) for learner in ("anna", "ben", "cleo", "dora")),
        row("anna", 4),
        row("ben", 0, reason=error.format(3)),
        row("cleo", 0, reason=f"Set by hand. {error.format(7)}"),
        row("dora", 2, reason="1 of 2 slopes are right."),
        row("emil", None, reason="The test gave no score."),
        row("fritz", 0, reason=stub),
        row("fritz", 0, "later", stub),
    )
    hardest, easiest, untouched = class_state.read(directory, exchange).exercises
    assert (hardest.name, hardest.counts) == ("slope", ("1 of 4", "1.5 of 4", "1"))
    assert hardest.reasons == [("TypeError: no.", 2), ("1 of 2 slopes are right.", 1)]
    assert (easiest.name, easiest.counts, easiest.reasons) == ("shout", ("4 of 4", "1 of 1", ""), [])
    assert (untouched.name, untouched.counts) == ("later", ("–", "–", "1"))


def test_what_is_missing_is_left_out_with_a_sentence(exchange, directory, tmp_path):
    submit(exchange, "anna")
    collect.collect(None, directory, exchange)
    (sentence,) = class_state.read(directory, exchange).missing
    assert sentence.startswith(f"There is no {tmp_path}/class-graded/grades.csv: ")
    graded(directory, row("anna", 4))
    assert class_state.read(directory, exchange).missing == ["No scripts were compared with each other."]
    (directory.with_name("class-graded") / "similar.csv").write_text(similar.to_csv([]))
    assert class_state.read(directory, exchange).missing == []
    shutil.rmtree(exchange)
    state = class_state.read(directory, exchange)
    assert state.missing == [f"There is no exchange at {exchange}: what has not been collected is not shown."]
    assert (state.learners, state.standings["anna", LAB].state) == (["anna"], "graded")


def test_there_is_nothing_to_show(tmp_path):
    with pytest.raises(CourseError, match=r"There is no class at .*class, and there is no exchange at .*none: "):
        class_state.show(tmp_path / "class", tmp_path / "none")


@pytest.fixture
def full(exchange, directory):
    """A class with something of everything, and names that HTML and rich could take for their own."""
    submit(exchange, "anna")
    submit(exchange, "ben")
    collect.collect(None, directory, exchange)
    rows = [row("anna", 1, reason="\x1b[2J[red]<b> & co."), row("ben", None, None, "<i>[bold]no", None)]
    graded(directory, *rows)
    (directory.with_name("class-graded") / "similar.csv").write_text(
        f"{','.join(similar.COLUMNS)}\nanna,[old]/<u>zoe,0.93,0.93,0.50,40\n"
    )
    return class_state.read(directory, exchange)


def test_the_terminal_shows_it_all(full):
    console = Console(width=200, record=True, highlight=False)
    class_page.show(full, console)
    text = console.export_text()
    assert "\x1b" not in text
    for words in (
        "1 of 4", "graded", "not graded", "[red]<b> & co.", f"ben, {NAME}: <i>[bold]no", "anna and [old]/<u>zoe: 0.93",
        f"{LAB}: 1 not graded, 1 graded, 1 nothing", "0 of 1",
    ):  # fmt: skip
        assert words in text


def test_labs_that_do_not_fit_beside_each_other_are_shown_below(full):
    labs = [f"lab{number}_of_many" for number in range(8)]
    state = class_page.ClassState(["anna"], labs, {("anna", lab): class_page.Standing("handed in") for lab in labs})
    console = Console(width=80, record=True)
    class_page.show(state, console)
    assert console.export_text().count("│ anna") == 3


def test_long_lists_are_cut_in_the_terminal_and_the_rest_is_counted(full, capsys):
    problems = [("anna", f"notebook {number}", "No.") for number in range(class_page.SHOWN + 3)]
    class_page.show(class_page.ClassState(["anna"], [], {}, problems=problems))
    out = capsys.readouterr().out
    assert out.count("anna, notebook") == class_page.SHOWN and "3 more rows: course class --html" in out


def test_the_page_shows_it_all_and_escapes_it(full, exchange, directory, tmp_path, capsys):
    class_state.show(directory, exchange, tmp_path / "pages" / "class.html")
    assert "pages/class.html" in "".join(capsys.readouterr().out.split())
    text = (tmp_path / "pages" / "class.html").read_text()
    for words in (
        "<b>1 of 4</b> graded",
        "[red]&lt;b&gt; &amp; co.",
        "&lt;i&gt;[bold]no",
        "[old]/&lt;u&gt;zoe",
        "0.93",
    ):
        assert words in text
    assert not re.search(r"<(i|u|script|img|link)\b", text)
    assert "http" not in text  # nothing is loaded
    with pytest.raises(CourseError, match=r"cannot be written .*: name another file"):
        class_state.show(directory, exchange, tmp_path)
