"""Grading a class: each learner gets what they earned, and nobody's submission touches another's."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import nbformat
import pandas
import psutil
import pytest
from rich.progress import Progress

from course_grader import notebook_points
from course_grader.classroom import (
    gradebook,
    grading,
    learners_notebook,
    one_submission,
    preprocessors,
    runner,
    slurm_jobs,
    submissions,
)
from course_grader.classroom.summary import COLUMNS, Summary, write_tables
from course_grader.hub import receipt
from course_grader.sandbox import bubblewrap
from course_grader.script import leases
from course_lib.authoring import masters
from course_lib.system.errors import CourseError
from tests.course_grader import classes
from tests.course_grader.classes import FIXTURES, NAME, RIGHT, SCRIPT, SHOUT, SLOPE, hand_in
from tests.course_grader.classes import TINY as MASTER

EXERCISES = ("slope", "script", "shout")


def notebook(**written):
    """The learner's notebook, right but for these exercises."""
    return classes.notebook(**{**RIGHT, **written})


def code(source):
    return nbformat.v4.new_code_cell(source)


class TestJudge:
    """What nbgrader takes for a score (FACTS: it fails open) and what we do."""

    def judge(self, *outputs, points=4.0):
        return preprocessors.judge([nbformat.from_dict(output) for output in outputs], points)

    @pytest.mark.parametrize(
        "text, score",
        [("3.0", 3.0), ("0.0", 0.0), ("4.0", 4.0), ("4", 4.0), ("1e-05", 1e-05), ("5.0", 4.0), ("-1.0", 0.0)],
    )
    def test_a_number_counts_within_its_bounds(self, text, score):
        assert self.judge(result(text))[0] == score

    @pytest.mark.parametrize(
        "text",
        ["np.float64(3.0)", "None", "True", "nan", "inf", "", "[4.0]", "'4.0'", "Output()", "4.0 points"],
    )
    def test_anything_else_is_no_score(self, text):
        assert self.judge(result(text)) == (None, "The test gave no score.")

    def test_no_result_and_two_results_are_no_score(self):
        assert self.judge()[0] is None
        assert self.judge(stream("fine"))[0] is None
        assert self.judge(result("4.0"), result("4.0"))[0] is None

    def test_standard_error_costs_nothing(self):
        assert self.judge(stream("W0000 framework", "stderr"), result("4.0")) == (4.0, "")

    def test_an_error_is_zero_and_named(self):
        failed = {"output_type": "error", "ename": "ValueError", "evalue": "", "traceback": []}
        said = "1 of 2 is right. The test ended in ValueError."
        assert self.judge(stream("1 of 2 is right.\n"), failed) == (0.0, said)
        failed["evalue"] = "ValueError: no (line 3 of your cell)"
        assert self.judge(failed) == (0.0, "ValueError: no (line 3 of your cell).")
        slow = {"output_type": "error", "ename": "CellTimeoutError", "evalue": "", "traceback": []}
        assert self.judge(slow) == (0.0, "The test took too long.")

    def test_what_the_test_said_is_the_reason_for_lost_points(self):
        assert self.judge(stream("1 of 2\n is right."), result("2.0")) == (2.0, "1 of 2 is right.")
        assert self.judge(stream("all right"), result("4.0")) == (4.0, "")


def result(text):
    return {
        "output_type": "execute_result",
        "data": {"text/plain": text},
        "metadata": {},
        "execution_count": 1,
    }


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


EVIL = """
class Evil(float):
    def __add__(self, other): return self
    def __radd__(self, other): return self
    def __rmul__(self, other): return self
    def __truediv__(self, other): return self
    def __lt__(self, other): return self
    def __abs__(self): return self
    def __rsub__(self, other): return self
    def __repr__(self): return "full marks, please"


def slope(x, y):
    return Evil(1)
"""
PEEK = """
def shout(text):
    raise ValueError(text.upper())
"""


def tidy():
    """A right notebook of somebody with habits: see test_habits.py for many more."""
    made = notebook(
        slope=f"%%time\nimport math\n\n{SLOPE}\n\nassert slope(few, few) == 1\nprint(slope(few, few))", shout=""
    )
    place = next(number for number, cell in enumerate(made.cells) if cell.id == "shout")
    first, second = (nbformat.from_dict({**made.cells[place], "source": text}) for text in SHOUT.split("\n"))
    second.source = second.source.replace("!!!", "").replace('""', "loud()")
    made.cells[place : place + 1] = [code("few = [1, 2"), first, second]
    return nbformat.from_dict(
        {**made, "cells": [*made.cells, code("def loud():\n    return 3 * '!'"), code("few = [1.0]")]}
    )


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class, graded once: (folder of submissions, summary)."""
    directory = tmp_path_factory.mktemp("class") / "submitted"
    hand_in(directory, "full", notebook())
    hand_in(directory, "tidy", tidy())
    partial = notebook(slope="def slope(x, y):\n    return 3.0")
    shadow = hand_in(directory, "partial", partial, "import json\nprint(json.loads('41'))\n", folder="")
    (shadow / "json.py").write_text("def loads(text): return 42\n")
    (shadow / "sitecustomize.py").write_text("print(42)\n")
    # Cells, code and points of their own, where only the exercises count: and those are not done.
    cheat = masters.learner(MASTER)
    for cell in cheat.cells:
        if cell.id.endswith("-test"):
            cell.source = "400.0"
            cell.metadata.nbgrader["points"] = 400.0
    cheat.cells.insert(0, code("import builtins; builtins.slope = builtins.shout = None"))
    cheat.cells.append(code("run_script = lambda: '42'"))
    hand_in(directory, "cheat", cheat, script="print(41)\n")
    hand_in(directory, "evil", notebook(slope=EVIL, shout=PEEK))
    dead = {"slope": "def slope(x, y):\n    return bytearray(2**40)", "shout": "def shout(text:\n    return 1"}
    hand_in(directory, "dead", notebook(**dead))
    hand_in(directory, "patch", notebook(slope=f"import sys\n{SLOPE}\nsys.modules.clear()"))
    hand_in(directory, "none", notebook(slope="def slope(x, y):\n    pass"))
    own = hand_in(
        directory, "module", notebook(slope="from loud import slope"), "import json\nprint(json.loads('42'))\n"
    )
    (own / "loud.py").write_text(f"import statistics\n{SLOPE}\n")
    (own / "statistics.py").write_text("raise SystemExit\n")
    (own / "json.py").write_text("def loads(text): return 43\n")
    older = notebook()
    next(cell for cell in older.cells if cell.id == "shout").metadata.course["exercise"] = "0123abcd"
    older.metadata.course["edition"] = "9876fedc"
    hand_in(directory, "older", older)
    place = hand_in(directory, "zipped", notebook())
    shutil.make_archive(str(directory / "zipped" / "homework"), "zip", directory / "zipped", place.name)
    shutil.rmtree(place)
    hand_in(directory, "copied", notebook())
    hand_in(directory, "copied", partial, name=f"{NAME}-Copy1")
    hand_in(directory, "broken", "{not json")
    hand_in(directory, "scriptless", notebook(), script=None)
    hand_in(directory, "renamed", notebook(), name=f"{NAME} (1)")
    return directory, grading.grade(directory, jobs=2, root=FIXTURES)


@pytest.mark.slow
@pytest.mark.notebook
class TestClass:
    def scores(self, graded, learner):
        rows = [row for row in graded[1].rows if row["learner"] == learner]
        assert [row["exercise"] for row in rows] == list(EXERCISES)
        return [row["score"] for row in rows]

    def reasons(self, graded, learner):
        return [row["reason"] for row in graded[1].rows if row["learner"] == learner]

    def page(self, graded, learner):
        return (graded[1].results / "feedback" / learner / "lab0_tiny" / f"{NAME}.html").read_text()

    @pytest.mark.parametrize("learner", ["full", "tidy", "module", "patch", "zipped", "copied"])
    def test_full_marks_whatever_habits_somebody_has_and_though_a_framework_warned(self, graded, learner):
        assert self.scores(graded, learner) == [4, 2, 1]
        assert self.reasons(graded, learner) == ["", "", ""]

    def test_partial_marks_with_the_reason(self, graded):
        assert self.scores(graded, "partial") == [2, 0, 1]
        assert self.reasons(graded, "partial")[0] == "1 of 2 slopes are right."

    def test_added_and_changed_cells_change_nothing(self, graded):
        assert self.scores(graded, "cheat") == [0, 0, 0]
        assert [row["max_score"] for row in graded[1].rows if row["learner"] == "cheat"] == [4, 2, 1]

    def test_a_test_without_a_score_is_no_mark_and_is_listed(self, graded):
        assert self.scores(graded, "evil") == [None, 2, 0]  # a number that says of itself what it likes is none
        problems = [p["reason"] for p in graded[1].problems if p["learner"] == "evil"]
        assert problems == ["Exercise slope: The test gave no score."]

    def test_a_fault_of_a_test_is_no_mark_and_its_traceback_is_kept(self, graded):
        assert self.scores(graded, "none") == [None, 2, 1]
        (problem,) = [p["reason"] for p in graded[1].problems if p["learner"] == "none"]
        assert problem.startswith("Exercise slope: The test itself failed, not the answer (TypeError: ")
        log = (graded[1].results / "faults.log").read_text()
        assert problem in log and 'File "<test>", line 4' in log

    def test_an_exercise_of_an_older_edition_could_not_be_graded_and_the_others_are(self, graded):
        assert self.scores(graded, "older") == [4, 2, None]
        (problem,) = [p["reason"] for p in graded[1].problems if p["learner"] == "older"]
        assert problem.startswith("Exercise shout: the edition of the notebook is 9876fedc")

    def test_a_copy_beside_what_was_graded_is_listed(self, graded):
        (problem,) = [p["reason"] for p in graded[1].problems if p["learner"] == "copied"]
        names = [f"lab0_tiny/{NAME}{end}.ipynb" for end in ("", "-Copy1")]
        assert problem == f"{names[0]} was graded; other work is in {names[1]}: keep only one of them."

    def test_a_cell_that_breaks_costs_its_own_points_alone_and_is_told_its_line(self, graded):
        assert self.scores(graded, "dead") == [0, 2, 0]
        slope, script, shout = self.reasons(graded, "dead")
        assert slope == "MemoryError (line 2 of your cell)." and script == ""
        assert re.fullmatch(r"SyntaxError: .+ \(line 1 of your cell\)\.", shout)

    @pytest.mark.parametrize(
        "learner, sentence",
        [
            ("broken", "is not a valid notebook"),
            ("scriptless", "script.py was not handed in with the notebook."),
            ("renamed", f"It seems to be {NAME}.ipynb: rename it to that."),
        ],
    )
    def test_who_cannot_be_graded_is_listed_with_a_sentence_and_no_score(self, graded, learner, sentence):
        (row,) = [row for row in graded[1].rows if row["learner"] == learner]
        assert sentence in row["reason"] and "score" not in row
        assert [p["reason"] for p in graded[1].problems if p["learner"] == learner] == [row["reason"]]
        assert not (graded[1].results / "feedback" / learner).exists()

    def test_exit_code_tells_that_something_could_not_be_graded(self, graded):
        assert graded[1].code == 1
        assert Summary(Path(), [], []).code == 0

    def test_tables_say_the_same(self, graded):
        table = pandas.read_csv(graded[1].results / "grades.csv", keep_default_na=False)
        assert list(table.columns) == COLUMNS
        assert len(table) == len(graded[1].rows)
        assert list(table[table.learner == "partial"].score.astype(float)) == [2, 0, 1]
        missing = pandas.read_csv(graded[1].results / "not_graded.csv")
        others = {"broken", "scriptless", "renamed"}
        assert set(missing.learner) == {"evil", "none", "older", "copied", *others}
        marked = table[~table.learner.isin(others)]
        assert set(marked.course_version) == {
            f"{metadata.version('one-model-many-gpus')}+{runner._code()[:8]}"
        } and set(marked.contract) == {""}

    def test_gradebook_holds_the_grades(self, graded):
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{graded[1].results / 'gradebook.db'}") as book:
            assert book.find_submission("lab0_tiny", "partial").score == 3
            assert book.find_assignment("lab0_tiny").max_score == 7
            assert book.find_submission_notebook(NAME, "lab0_tiny", "cheat").score == 0

    def test_feedback_shows_the_result_and_no_test(self, graded):
        for learner in ("full", "partial", "cheat", "evil"):
            page = self.page(graded, learner)
            assert masters.leaks(MASTER, [page], kinds=["hidden"]) == []
            assert "QUIET, PLEASE" not in page
        assert "1 of 2 slopes are right." in self.page(graded, "partial")
        assert "Score: 3.0 / 7.0" in self.page(graded, "partial")
        assert "The test ended in NotImplementedError (line 4 of your cell)." in self.page(graded, "cheat")
        assert "The test ended in ValueError (line 3 of your cell)." in self.page(graded, "evil")
        assert "Could not be graded, so there is no mark: the edition of the notebook is" in self.page(graded, "older")

    def test_submissions_stay_as_they_were(self, graded):
        left = {path.name for path in (graded[0] / "partial").iterdir()}
        assert left == {f"{NAME}.ipynb", "script.py", "json.py", "sitecustomize.py"}


@pytest.mark.slow
@pytest.mark.notebook
class TestAgain:
    """A second run takes what is there; a grade set by hand stands."""

    @pytest.fixture
    def again(self, graded, tmp_path, monkeypatch):
        """The graded class, copied; running anything is counted."""
        for folder in (graded[0], graded[1].results):
            shutil.copytree(folder, tmp_path / folder.name)
        runs = []

        def run(folder, master, stopping, extra, accepted):
            runs.append(next(folder.glob("submitted/*/*/*.ipynb")).read_text())
            raise learners_notebook.Unusable("It was run.")

        monkeypatch.setattr(runner, "_run", run)
        return tmp_path / graded[0].name, runs

    def test_what_did_not_change_is_not_run(self, graded, again):
        directory, runs = again
        summary = grading.grade(directory, root=FIXTURES)
        assert runs == []
        assert summary.rows == graded[1].rows

    def test_what_failed_or_changed_is_run(self, again):
        from nbgrader.api import Gradebook

        directory, runs = again
        (directory / "full" / "lab0_tiny" / "script.py").write_text("print(43)\n")
        hand_in(directory, "broken", notebook())
        summary = grading.grade(directory, root=FIXTURES)
        assert len(runs) == 2  # full and broken
        assert [row["reason"] for row in summary.rows if row["learner"] == "full"] == ["It was run."]
        assert not (summary.results / "feedback" / "full" / "lab0_tiny" / f"{NAME}.html").exists()
        with Gradebook(f"sqlite:///{summary.results / 'gradebook.db'}") as book:
            assert book.find_submission("lab0_tiny", "full").score == 0  # no longer what was handed in before
            assert book.find_submission("lab0_tiny", "partial").score == 3

    def test_a_score_set_by_hand_stands(self, again):
        from nbgrader.api import Gradebook

        directory, _ = again
        with Gradebook(f"sqlite:///{directory}-graded/gradebook.db") as book:
            book.find_grade("slope-test", NAME, "lab0_tiny", "partial").manual_score = 3.5
            book.db.commit()
        summary = grading.grade(directory, root=FIXTURES)
        assert [row["score"] for row in summary.rows if row["learner"] == "partial"] == [3.5, 0, 1]

    def test_grades_of_an_older_version_are_not_mixed_with_new_ones(self, again, tmp_path):
        directory, _ = again
        course = tmp_path / "course"
        shutil.copytree(FIXTURES, course)
        path = course / "labs" / "lab0_tiny" / f"{NAME}.py"
        path.write_text(path.read_text().replace('"shout"', '"cry"'))
        masters.build(root=course)
        before = (directory.with_name("submitted-graded") / "gradebook.db").read_bytes()
        with pytest.raises(CourseError, match=r"older notebooks: move .* away and grade again"):
            grading.grade(directory, root=course)
        assert (directory.with_name("submitted-graded") / "gradebook.db").read_bytes() == before

    def test_a_damaged_gradebook(self, again):
        directory, _ = again
        directory.with_name("submitted-graded").joinpath("gradebook.db").write_bytes(b"no database" * 100)
        with pytest.raises(CourseError, match=r"gradebook\.db is damaged"):
            grading.grade(directory, root=FIXTURES)

    def test_two_at_a_time_are_kept_apart(self, again):
        directory, _ = again
        with grading._locked(directory.with_name("submitted-graded")):  # noqa: SIM117
            with pytest.raises(CourseError, match="Another `course grade` is writing to"):
                grading.grade(directory, root=FIXTURES)


# The script of the learner is run, whatever it does; the exercise never ends.
HANG = "def slope(*values):\n    while True:\n        pass\n"
SLEEPER = """
import signal, subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000.25"], start_new_session=True, env={}, stdout=-3, stderr=-3)
print(42)
"""


def sleepers():
    return [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000.25"]]


@pytest.mark.slow
@pytest.mark.notebook
class TestSecondTry:
    """What nbgrader failed in, and the submission is not to blame for."""

    LOG = "RuntimeError: Kernel died\nnbgrader.converters.base.NbGraderException: Please see the the above traceback\n"

    @pytest.mark.parametrize("failures, problems", [(1, []), (2, ["nbgrader failed: RuntimeError: Kernel died"])])
    def test_a_kernel_that_does_not_start_gets_one(self, tmp_path, monkeypatch, failures, problems):
        real, folders = runner._run, []

        def run(folder, *arguments):
            folders.append(folder)
            if len(folders) <= failures:
                raise runner._why(1, self.LOG, 60)
            return real(folder, *arguments)

        monkeypatch.setattr(runner, "_run", run)
        hand_in(tmp_path / "class", "anna", notebook())
        summary = grading.grade(tmp_path / "class", root=FIXTURES)
        assert [problem["reason"] for problem in summary.problems] == problems
        assert len(set(folders)) == 2


@pytest.mark.slow
@pytest.mark.notebook
class TestEndings:
    @pytest.fixture
    def directory(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(tmp_path))  # what SIGKILL leaves behind goes with the test
        hand_in(tmp_path / "submitted", "endless", notebook(shout=HANG.replace("slope", "shout")), script=SLEEPER)
        return tmp_path / "submitted"

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_an_interrupted_run_leaves_nothing_running_and_no_halves(self, directory, tmp_path, number):
        code = (
            "from pathlib import Path; from course_grader.classroom import grading;"
            f"grading.grade(Path({str(directory)!r}), root=Path({str(FIXTURES)!r}))"
        )
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, cwd=tmp_path)
        try:
            while not sleepers():
                assert process.poll() is None
                time.sleep(0.1)
            tree = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(number)
            assert process.wait() != 0
        finally:
            process.kill()
        _, alive = psutil.wait_procs(tree, timeout=30)
        assert not alive and not sleepers()
        results = directory.with_name("submitted-graded")
        assert not (results / "grades.csv").exists() and not (results / ".results").exists()
        assert bool(list(tmp_path.glob("course-grade-*"))) == (number == signal.SIGKILL)
        hand_in(tmp_path / "submitted", "endless", "{not json")
        grading.grade(directory, root=FIXTURES)  # clears away what a killed run has left
        assert not list(tmp_path.glob("course-grade-*"))

    def test_what_never_ends_is_ended_and_listed(self, directory, monkeypatch):
        monkeypatch.setattr(runner, "TIME_LIMIT_S", 30)
        summary = grading.grade(directory, root=FIXTURES)
        assert [problem["reason"] for problem in summary.problems] == [
            "It ran for more than 0 minutes and could not be interrupted."
        ]
        assert not sleepers()

    @pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's
    def test_a_cell_that_takes_too_long_costs_only_its_own_points(self, tmp_path, monkeypatch):
        monkeypatch.setattr(one_submission, "CELL_TIME_LIMIT_S", 3)
        gradebook.enter([MASTER], tmp_path / "blank.db")
        slow = learners_notebook.read(nbformat.writes(notebook(slope=HANG)).encode(), NAME)
        one = submissions.Submission("anna", tmp_path / f"{NAME}.ipynb", MASTER)
        work = runner.Work(one, slow, {"script.py": SCRIPT.encode()})
        runner.prepare(tmp_path / "course", work, tmp_path / "blank.db")
        exercises = one_submission.grade(tmp_path / "course", MASTER)["exercises"]
        assert {name: told["score"] for name, told in exercises.items()} == {
            "slope-test": 0,
            "script-test": 2,
            "shout-test": 1,
        }
        assert exercises["slope-test"]["reason"] == "The test took too long."


def test_the_time_left_is_told_from_those_who_are_done():
    now = [0.0]
    progress = Progress(get_time=lambda: now[0])
    progress.add_task("Grading", total=4, seconds=0.0)
    (task,) = progress.tasks

    def left():
        return grading._TimeLeft().render(task).plain

    assert left() == ""
    now[0] = 100.0
    progress.update(task.id, advance=1, seconds=task.elapsed)
    assert left() == "about 5 min left"
    now[0] = 340.0
    assert left() == "about 60 s left"
    now[0] = 500.0  # the second one takes longer
    assert left() == "about 0 s left"
    progress.update(task.id, advance=3, seconds=task.elapsed)
    assert left() == ""


def test_without_a_sandbox_no_lab_of_a_hub_runs_learners_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bubblewrap, "available", lambda: "bwrap is not installed.")
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    grading._performing(tmp_path / "book", tmp_path, 0, slurm=False)
    assert "runs without a sandbox here: bwrap is not installed." in capsys.readouterr().err
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "of-the-instructor")
    with pytest.raises(CourseError, match=r"\(bwrap is not installed\): grade what was collected on another machine"):
        grading._performing(tmp_path / "book", tmp_path, 0, slurm=False)
    answer = slurm_jobs.perform(None, tmp_path / "book", 0.0, "short")
    assert answer.graded is None and answer.problem.startswith("Without a sandbox")


def test_the_time_limit_leaves_time_for_the_hubs_queue(tmp_path, monkeypatch):
    monkeypatch.setattr(bubblewrap, "available", lambda: "")

    def extra(wait):
        return grading._performing(tmp_path / "book", tmp_path, wait, slurm=False).enter_result.keywords["extra"]

    monkeypatch.delenv("COURSE_SLOTS", raising=False)
    longest = extra(1)
    assert longest == notebook_points.longest() and extra(2) == 2 * longest
    monkeypatch.setenv("COURSE_SLOTS", "http://course-hub:8002")
    assert extra(2) == 2 * (longest + grading.MAX_AHEAD * leases.LEASE_S) and extra(0) == 0


def test_reasons_are_no_formulas_in_a_spreadsheet_and_are_read_as_they_were(tmp_path):
    reasons = ["=HYPERLINK(1)", "+1+1", "-1", "-A1", "@A1", "'=A1", "No."]
    rows = [{"learner": "-anna", "score": -1.5, "reason": reason} for reason in reasons]
    write_tables(tmp_path, rows, [{"learner": "@ben", "reason": "=1"}])
    table = pandas.read_csv(tmp_path / "grades.csv")
    assert list(table["reason"]) == ["'=HYPERLINK(1)", "'+1+1", "-1", "'-A1", "'@A1", "'=A1", "No."]
    assert set(table["score"]) == {-1.5} and set(table["learner"]) == {"'-anna"}
    assert [row["reason"] for row in receipt.table(tmp_path / "grades.csv")] == [*reasons[:5], "=A1", "No."]
    assert receipt.table(tmp_path / "not_graded.csv")[0]["learner"] == "@ben"


@pytest.mark.parametrize("jobs", [0, -1])
def test_no_jobs_at_all(tmp_path, jobs):
    with pytest.raises(CourseError, match="--jobs must be 1 or more"):
        grading.grade(tmp_path, jobs, root=FIXTURES)


def test_only_somebody_who_handed_in_can_be_accepted(tmp_path):
    hand_in(tmp_path / "submitted", "anna", notebook())
    with pytest.raises(CourseError, match="'nobody' handed in nothing") as caught:
        grading.grade(tmp_path / "submitted", root=FIXTURES, accept=["nobody"])
    assert caught.value.code == 2


def test_results_that_cannot_be_written(tmp_path):
    hand_in(tmp_path / "submitted", "learner01", notebook())
    (tmp_path / "submitted-graded").write_text("in the way")
    with pytest.raises(CourseError, match=re.escape("submitted-graded cannot be written")):
        grading.grade(tmp_path / "submitted", root=FIXTURES)
