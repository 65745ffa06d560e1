"""What a workspace keeps of a learner's progress, and what the welcome page shows of it."""

from __future__ import annotations

import json
import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from course_lib.authoring import released, welcome
from course_lib.notebook import predictions, progress

NOTEBOOK = "lab1_gradient_descent/1a_linear_model.ipynb"


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / ".course").mkdir()
    return tmp_path


@pytest.fixture
def run(workspace, monkeypatch):
    """Runs cells of 1a in a shell that follows them."""
    monkeypatch.setenv(progress.SESSION, str(workspace / NOTEBOOK))
    monkeypatch.setattr(predictions, "off", dict)
    shell = InteractiveShell()
    progress.load_ipython_extension(shell)

    def cells(*sources):
        for source in sources:
            shell.run_cell(source, store_history=True)

    yield cells
    shell.history_manager.end_session()


REPORT = """from course_lib.notebook.judging import Verdict
from course_lib.notebook.report import Report
def check(points, focus=None):
    return Report([Verdict("a", "A", points, 1.0, ""), Verdict("b", "B", 1.0, 1.0, "")], focus)"""


def kept(workspace):
    return welcome.read_progress(workspace).get("1a", welcome.Progress())


def test_a_check_that_passes_is_kept_and_one_that_fails_is_not(workspace, run):
    run(REPORT, "check(0.5)")
    assert not kept(workspace).passed
    run("check(1.0)", 'check(0.5, focus="b")')
    assert kept(workspace).passed == {"check(1.0)", 'check(0.5, focus="b")'}
    run("check(0.5)")
    assert kept(workspace).passed == {"check(1.0)", 'check(0.5, focus="b")'}  # what was solved stays solved


def test_guesses_are_kept_with_how_far_off_they_were(workspace, run, monkeypatch):
    monkeypatch.setattr(predictions, "off", lambda: {"seconds": "3 times too large"})
    run("1 + 1")
    assert kept(workspace).guesses == {"seconds": "3 times too large"}
    assert "seconds: 3 times too large" in (workspace / "Welcome.md").read_text()


@pytest.mark.parametrize("session", ["", "elsewhere/1a_linear_model.ipynb", "script.py"])
def test_nothing_is_kept_outside_of_a_workspace(workspace, monkeypatch, session):
    monkeypatch.setenv(progress.SESSION, session and str(workspace.parent / session))
    shell = InteractiveShell()
    progress.load_ipython_extension(shell)
    for cell in (REPORT, "check(1.0)"):
        shell.run_cell(cell)
    shell.history_manager.end_session()
    assert not (workspace / welcome.PROGRESS).exists()


def test_the_page_says_what_is_solved_where_to_go_on_and_what_was_guessed(workspace):
    files = released.course_files()
    lines = [line for cell in json.loads(files[NOTEBOOK])["cells"] for line in welcome.checks("".join(cell["source"]))]
    assert len(lines) == 5
    assert "Continue here" not in welcome.page(files, {})

    done = {"1a": welcome.Progress(frozenset(lines[:3]), {"steps": "right", "rate": "2 times too large"}, 1.0)}
    page = welcome.page(files, done)
    assert "**Continue here:** [1a Linear model]" in page
    assert "3 of 5 solved, about 20 minutes left" in page
    assert re.search(r"^\| \[1a Linear model\].*▰▰▰▱▱▱\s3\sof\s5 \|$", page, re.MULTILINE)
    assert "| 1 of 2 | rate: 2 times too large |" in page

    done["1a"] = welcome.Progress(frozenset(lines), {}, 1.0)
    assert "**Continue here:** [1b Stochastic gradient descent]" in welcome.page(files, done)


def test_the_page_keeps_the_way_that_was_chosen(workspace, run):
    (workspace / welcome.WAY).write_text("day\n")
    run(REPORT, "check(1.0)")
    assert "## Your way: One day" in (workspace / "Welcome.md").read_text()


@pytest.mark.parametrize("content", ["", "[]", '{"passed": 1}', '{"passed": [], "guesses": 3}'])
def test_a_file_that_is_not_whole_counts_as_none(workspace, content):
    path = workspace / welcome.PROGRESS / "1a.json"
    path.parent.mkdir()
    path.write_text(content)
    assert welcome.read_progress(workspace) == {}
