"""Returning: each notebook of a submission has a page, of that submission, where the learner and nbgrader look."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from course_grader.classroom import grading
from course_grader.classroom.summary import write_tables
from course_grader.hub import class_state, collect, hand_back, receipt
from course_lib.system.errors import CourseError
from tests.course_grader import classes
from tests.course_grader.classes import FIXTURES, LAB, NAME, RIGHT
from tests.course_grader.hub import exchanges
from tests.course_grader.hub.exchanges import TIMESTAMPS, LearnersLab, submit


@pytest.mark.slow
@pytest.mark.notebook
def test_from_submit_to_feedback_with_nbgrader_itself(tmp_path, capsys):
    exchange, directory = exchanges.make(tmp_path, "anna", "ben"), tmp_path / "class"
    anna, ben = (LearnersLab(tmp_path / "labs", exchange, name) for name in ("anna", "ben"))
    handed_in = anna.workspace / LAB / f"{NAME}.ipynb"
    classes.hand_in(anna.workspace.parent, "workspace", classes.notebook(slope=RIGHT["slope"]))
    shutil.copyfile(handed_in, handed_in.with_name("scratch.ipynb"))
    (ben.workspace / LAB / f"{NAME}.ipynb").write_text("{not json")
    anna.submit()
    ben.submit()
    assert not any(one["has_exchange_feedback"] for lab in (anna, ben) for one in lab.submissions())

    def cycle():
        collect.collect(None, directory, exchange)
        grading.grade(directory, root=FIXTURES)
        return hand_back.hand_back(None, directory, exchange)

    assert cycle() == 0
    (first,) = anna.submissions()
    assert first["has_exchange_feedback"] and len(first["notebooks"]) == 2
    pages = anna.fetch_feedback()
    assert set(pages) == {f"{first['timestamp']}/{name}.html" for name in (NAME, "scratch")}
    assert "Score: 6.0 / 7.0" in pages[f"{first['timestamp']}/{NAME}.html"]
    assert hand_back.NOT_GRADED in pages[f"{first['timestamp']}/scratch.html"]
    assert anna.submissions()[0]["local_feedback_path"]
    own = exchange / "feedback" / "anna" / LAB
    assert {path.stem: path.read_text() for path in own.iterdir()} == {
        path.rpartition("/")[2][: -len(".html")]: page for path, page in pages.items()
    }
    (page,) = ben.fetch_feedback().values()
    assert "could not be graded, which is no mark" in page and "is not a valid notebook" in page
    standings = class_state.read(directory, exchange).standings
    assert standings["anna", LAB].state == "returned" and standings["anna", LAB].score == "6 of 7"
    assert standings["ben", LAB].state == "not graded"

    # She hands in again: what was collected, and not graded yet, never gets the page of what was before.
    handed_in.with_name("scratch.ipynb").unlink()
    classes.hand_in(anna.workspace.parent, "workspace", classes.notebook(**RIGHT))
    anna.submit()
    assert collect.collect(None, directory, exchange) == 0
    assert hand_back.hand_back(None, directory, exchange) == 1
    assert "anna, lab0_tiny: not graded since it was collected or changed" in capsys.readouterr().out
    assert [one["has_exchange_feedback"] for one in anna.submissions()] == [True, False]
    assert cycle() == 0
    assert [one["has_exchange_feedback"] for one in anna.submissions()] == [True, True]
    second = anna.submissions()[1]
    pages = anna.fetch_feedback()
    assert "Score: 7.0 / 7.0" in pages[f"{second['timestamp']}/{NAME}.html"]
    assert "Score: 6.0 / 7.0" in pages[f"{first['timestamp']}/{NAME}.html"]
    assert [path.stem for path in own.iterdir()] == [NAME]


@pytest.fixture
def exchange(tmp_path):
    made = exchanges.make(tmp_path, "anna")
    submit(made, "anna")
    collect.collect(None, tmp_path / "class", made)
    return made


def graded(directory, *rows, **pages):
    """Results as `course grade` writes them, with these rows for the tiny lab's notebook, and these pages."""
    results = directory.with_name(f"{directory.name}-graded")
    about = {"learner": "anna", "assignment": LAB, "notebook": NAME, "exercise": "slope", "score": 1, "max_score": 4}
    write_tables(results, [{**about, "reason": "", "passed": "", **row} for row in rows], [])
    for name, page in pages.items():
        path = results / "feedback" / "anna" / LAB / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)


def returned(exchange):
    """The pages that anna can read, by notebook."""
    return {path.stem: path.read_text() for path in (exchange / "feedback" / "anna" / LAB).iterdir()}


REFUSED = {"exercise": None, "score": None, "max_score": None}


@pytest.mark.parametrize(
    "row, sentence",
    [
        ({"reason": "Needs review: line 3.", "score": None, "passed": "needs review"}, hand_back.READ_FIRST),
        ({**REFUSED, "reason": "It seems to be <b>."}, "It seems to be &lt;b&gt;."),
        ({**REFUSED, "reason": "It was handed in more than once.", "assignment": ""}, "handed in more than once"),
    ],
)
def test_a_notebook_without_a_grade_is_told_why_and_gets_no_page_of_an_earlier_submission(
    tmp_path, exchange, row, sentence
):
    graded(tmp_path / "class", row, **{NAME: "Score of an earlier submission"})
    assert hand_back.hand_back(None, tmp_path / "class", exchange) == 0
    assert list(returned(exchange)) == [NAME]
    assert sentence in returned(exchange)[NAME] and "earlier" not in returned(exchange)[NAME]


def test_pages_of_what_is_no_longer_handed_in_are_not_returned(tmp_path, exchange):
    graded(tmp_path / "class", {}, **{NAME: "now", "0b_gone": "before"})
    hand_back.hand_back("lab0", tmp_path / "class", exchange)
    assert returned(exchange) == {NAME: "now"}


def test_a_notebook_that_was_graded_in_a_zip_archive_has_a_readable_page(tmp_path, exchange):
    graded(tmp_path / "class", {}, {"notebook": "0b_zipped"}, **{NAME: "one", "0b_zipped": "two"})
    hand_back.hand_back(None, tmp_path / "class", exchange)
    assert returned(exchange) == {NAME: "one", "0b_zipped": "two"}
    digests = [path for path in (exchange / "feedback" / "anna").iterdir() if path.is_file()]
    assert [path.read_text() for path in digests] == ["one"]


def test_a_page_that_has_changed_is_returned_again(tmp_path, exchange):
    graded(tmp_path / "class", {}, **{NAME: "one"})
    hand_back.hand_back(None, tmp_path / "class", exchange)
    before = receipt.read(tmp_path / "class").entry("anna", LAB).returned
    graded(tmp_path / "class", {}, **{NAME: "set by hand"})
    hand_back.hand_back(None, tmp_path / "class", exchange)
    assert returned(exchange) == {NAME: "set by hand"}
    assert receipt.read(tmp_path / "class").entry("anna", LAB).returned > before


def test_a_folder_that_was_changed_after_grading_waits_for_it(tmp_path, exchange, capsys):
    graded(tmp_path / "class", {}, **{NAME: "one"})
    folder = tmp_path / "class" / "anna" / LAB
    later = (tmp_path / "class-graded" / "grades.csv").stat().st_mtime_ns + 1
    os.utime(folder, ns=(later, later))
    assert hand_back.hand_back(None, tmp_path / "class", exchange) == 1
    assert "not graded since it was collected or changed" in capsys.readouterr().out
    assert not (exchange / "feedback" / "anna" / LAB).exists()


def test_nothing_to_return_and_nowhere_to_return_it_to(tmp_path, exchange, capsys):
    with pytest.raises(CourseError, match=r"Nothing has been collected into .*: give `course collect` first"):
        hand_back.hand_back(None, tmp_path / "other", exchange)
    graded(tmp_path / "class", {}, **{NAME: "one"})
    shutil.rmtree(exchange / "feedback" / "anna")
    (exchange / "feedback" / "anna").write_text("no folder")
    assert hand_back.hand_back(None, tmp_path / "class", exchange) == 1
    assert (
        "anna, lab0_tiny: not returned. The learner's folder of feedback cannot be written" in capsys.readouterr().out
    )
    assert json.loads((tmp_path / "class" / receipt.FILE).read_text())["collected"]["anna"][LAB]["returned"] is None


def test_a_name_that_is_too_long_for_a_page_keeps_nobody_from_theirs(tmp_path):
    exchange, directory = exchanges.make(tmp_path, "anna", "ben"), tmp_path / "class"
    (submit(exchange, "anna") / f"{'é' * 124}.ipynb").write_text("{}")
    submit(exchange, "ben")
    collect.collect(None, directory, exchange)
    graded(directory, {}, {"learner": "ben"}, **{NAME: "one"})
    hand_back.hand_back(None, directory, exchange)
    assert returned(exchange) == {NAME: "one"}
    assert [path.stem for path in (exchange / "feedback" / "ben" / LAB).iterdir()] == [NAME]


def of_two(tmp_path):
    """An exchange and a class of anna and ben, whose notebooks were graded."""
    exchange, directory = exchanges.make(tmp_path, "anna", "ben"), tmp_path / "class"
    for learner in ("anna", "ben"):
        submit(exchange, learner)
    collect.collect(None, directory, exchange)
    graded(directory, {}, {"learner": "ben"}, **{NAME: "one"})
    return exchange, directory


def pages_of_ben(exchange):
    return [path.stem for path in (exchange / "feedback" / "ben" / LAB).iterdir()]


def test_a_receipt_without_a_secret_keeps_nobody_from_their_pages(tmp_path, capsys):
    exchange, directory = of_two(tmp_path)
    stored = json.loads((directory / receipt.FILE).read_text())
    stored["collected"]["anna"][LAB]["secret"] = ""
    (directory / receipt.FILE).write_text(json.dumps(stored))
    assert hand_back.hand_back(None, directory, exchange) == 1
    assert f"anna, {LAB}: not returned. Its submission_secret.txt was empty: " in capsys.readouterr().out
    assert pages_of_ben(exchange) == [NAME]


@pytest.mark.parametrize("place", ["anna", f"anna/{LAB}"])
def test_a_link_in_the_place_of_a_folder_leads_nowhere(tmp_path, capsys, place):
    exchange, directory = of_two(tmp_path)
    others = tmp_path / "others"
    others.mkdir()
    (others / "own.html").write_text("of somebody else")
    link = exchange / "feedback" / place
    if link.exists():
        link.rmdir()
    link.symlink_to(others)
    assert hand_back.hand_back(None, directory, exchange) == 1
    assert {path.name: path.read_text() for path in others.iterdir()} == {"own.html": "of somebody else"}
    assert "it must be a folder, and no link" in capsys.readouterr().out
    assert pages_of_ben(exchange) == [NAME]


def test_a_link_in_the_place_of_a_page_is_replaced(tmp_path, exchange):
    graded(tmp_path / "class", {}, **{NAME: "one"})
    (tmp_path / "elsewhere.html").write_text("of somebody else")
    (exchange / "feedback" / "anna" / LAB).mkdir()
    (exchange / "feedback" / "anna" / LAB / f"{NAME}.html").symlink_to(tmp_path / "elsewhere.html")
    assert hand_back.hand_back(None, tmp_path / "class", exchange) == 0
    assert (tmp_path / "elsewhere.html").read_text() == "of somebody else" and returned(exchange) == {NAME: "one"}


def test_a_newer_submission_has_not_been_returned(tmp_path, exchange):
    graded(tmp_path / "class", {}, **{NAME: "one"})
    hand_back.hand_back(None, tmp_path / "class", exchange)
    submit(exchange, "anna", timestamp=TIMESTAMPS[1], secret="0f" * 64)
    collect.collect(None, tmp_path / "class", exchange)
    assert receipt.read(tmp_path / "class").entry("anna", LAB).returned is None
