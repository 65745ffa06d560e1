"""Grading a class by a script alone, as the assessment does. The assessment itself is a double here: it takes no time
and says what the script tells it to say."""

from __future__ import annotations

import hashlib
from importlib import metadata

import numpy as np
import pandas
import pytest

from course_grader import notebook_points
from course_grader.classroom import grading, runner, submissions
from course_grader.display import leaderboard
from course_grader.script import contract, grader
from course_grader.script.outcome import CannotGrade, Outcome
from course_lib.authoring import masters
from course_lib.notebook.judging import Verdict
from course_lib.system.errors import CourseError

NAME = "assessment"
CRITERIA = {"serial": 5, "ranks": 10, "time": 10}
DOUBLE = """
import os
from course_grader.script import grader
from course_grader.script.outcome import CannotGrade, Outcome
from course_grader import notebook_points as marks
from course_lib.notebook.judging import Verdict

def assess(script):
    text = script.read_text()
    if text.startswith("fault"):
        raise ZeroDivisionError("by zero")
    with open(os.environ["RUNS"], "a") as runs:
        runs.write(f"{text.strip()} {os.environ.get('COURSE_SLICE')} {sorted(os.listdir())}\\n")
    if text.startswith("die"):
        os._exit(9)
    if text.startswith("cannot") and "HEALED" not in os.environ:
        raise CannotGrade("The data set cifar10 is not here.")
    look = ("line 1 starts a program",) if text.startswith("look") else ()
    share = float(text) if text[0].isdigit() else 1.0
    hint = "" if share == 1 else "See 2b."
    rows = (("serial", 5), ("ranks", 10), ("time", 10))
    verdicts = tuple(Verdict(name, name, most * share, most, f"It is worth {share:g}.", hint) for name, most in rows)
    passed = share == 1 and not look
    about = ("cpu", 2, "cifar10", 1.0, 0.5, 0.5, verdicts, 240, 1.25, "none")
    return Outcome(passed, 25 * share, 25, *about, look=look, needs_a_look=bool(look))

grader.assess = assess
points = marks.points
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course folder with nothing but an assessment in it."""
    root = tmp_path_factory.mktemp("course")
    place = root / "assessment"
    (place / "master").mkdir(parents=True)
    (place / "reference").mkdir()
    text = "# %% [markdown]\n# # The assessment\n#\n# **Time:** an hour\n#\n# **Needs:** lab 2\n\n"
    text += "# %% editable=true\nraise RuntimeError('a run for show, by learners alone')\n\n"
    for name, most in CRITERIA.items():
        double = DOUBLE if name == "serial" else ""
        text += f'# %% hidden="{name}" points={most}\n# About {name}\n### BEGIN HIDDEN TESTS\n'
        text += f'{double}points("{name}")\n### END HIDDEN TESTS\n\n'
    (place / "master" / f"{NAME}.py").write_text(text)
    (place / f"{NAME}.py").write_text("0.0\n")
    (place / "reference" / f"{NAME}.py").write_text("1.0\n")
    masters.build(root=root)
    return root


@pytest.fixture(scope="module")
def master(course):
    return masters.read(course / "assessment" / "master" / f"{NAME}.py")


def hand_in(directory, learner, script=None, name=NAME, folder="assessment", notebook=None):
    place = directory / learner / folder
    place.mkdir(parents=True, exist_ok=True)
    if script is not None:
        (place / f"{name}.py").write_text(f"{script}\n")
    if notebook is not None:
        (place / f"{name}.ipynb").write_text(notebook)
    return place


class TestPoints:
    @pytest.fixture
    def script(self, tmp_path, monkeypatch):
        monkeypatch.setattr(notebook_points, "_outcomes", {})
        path = tmp_path / "assessment.py"
        path.write_text("print(1)\n")
        return path

    @pytest.fixture
    def assess(self, monkeypatch):
        """Let the grader answer with these points for `serial`, or raise this; a list of its runs."""

        def assess(answer):
            runs = []

            def double(script):
                runs.append(script)
                if isinstance(answer, BaseException):
                    raise answer
                verdicts = (
                    Verdict("serial", "Runs", answer, 5, "It ran.", "See 2b."),
                    Verdict("ranks", "Joins", 10, 10, "It joined.", "See 2a."),
                )
                return Outcome(False, 15, 25, "cpu", 2, "shapes", 1, 0, 0, verdicts, 240, 1, "none")

            monkeypatch.setattr(grader, "assess", double)
            return runs

        return assess

    @pytest.mark.parametrize("given, score", [(5, 5.0), (2.5, 2.5), (np.float64(3), 3.0), (7, 5.0), (-1, 0.0)])
    def test_are_a_built_in_float_within_the_bounds(self, script, assess, given, score):
        assess(given)
        result = notebook_points.points("serial", script)
        assert result == score
        assert type(result) is float

    def test_come_with_a_reason_and_where_some_are_lost_with_a_hint(self, script, assess, capsys):
        assess(2)
        notebook_points.points("serial", script)
        assert capsys.readouterr() == ("It ran.\nSee 2b.\n", "")
        notebook_points.points("ranks", script)
        assert capsys.readouterr() == ("It joined.\n", "")

    def test_of_all_criteria_come_from_one_run(self, script, assess):
        runs = assess(5)
        for name in ("serial", "ranks", "serial"):
            notebook_points.points(name, script)
        assert runs == [script]
        script.write_text("print(2)\n")
        notebook_points.points("serial", script)
        assert runs == [script, script]

    @pytest.mark.parametrize(
        "error, sentence",
        [
            (CannotGrade("No disk."), "No disk."),
            (CourseError("No Horovod."), "No Horovod."),
            (KeyboardInterrupt(), "did not end in time"),
        ],
    )
    def test_are_never_lost_to_a_fault_of_the_grader(self, script, assess, error, sentence):
        runs = assess(error)
        for _ in range(2):
            with pytest.raises(CannotGrade, match=sentence):
                notebook_points.points("serial", script)
        assert len(runs) == 1

    def test_need_a_script(self, tmp_path):
        with pytest.raises(CannotGrade, match=r"assessment\.py cannot be read"):
            notebook_points.points("serial", tmp_path / "assessment.py")

    def test_the_limit_leaves_room_for_the_time_limit_on_a_slow_host(self, monkeypatch):
        for name, profile in contract.read().profiles.items():
            monkeypatch.setenv("COURSE_PROFILE", name)
            assert notebook_points.longest() > 4 * profile.seconds


def runs(folder):
    log = folder / "runs"
    return log.read_text().splitlines() if log.exists() else []


@pytest.fixture(scope="module")
def graded(course, tmp_path_factory):
    """A class, graded once: (folder, summary)."""
    folder = tmp_path_factory.mktemp("class")
    directory = folder / "submitted"
    given = (course / "assessment" / f"{NAME}.ipynb").read_text()
    hand_in(directory, "full", "1.0", notebook=given)
    hand_in(directory, "half", "0.5", notebook="{not json", folder="")
    altered = hand_in(directory, "altered", "0.0", notebook=given.replace("# About ", "25.0 #"))
    (altered / "json.py").write_text("raise SystemExit\n")
    (altered / "contract.toml").write_text("pass_points = 0\n")
    (altered / "reference").mkdir()
    (altered / "reference" / f"{NAME}.py").write_text("1.0\n")
    hand_in(directory, "dataless", "cannot", notebook=given)
    hand_in(directory, "dead", "die", notebook=given)
    hand_in(directory, "fault", "fault", notebook=given)
    hand_in(directory, "scriptless", notebook=given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNS", str(folder / "runs"))
        patch.setenv("COURSE_SLICE", "1279")
        return folder, grading.grade(directory, jobs=2, root=course)


@pytest.mark.slow
@pytest.mark.notebook
class TestClass:
    def scores(self, graded, learner):
        return [row.get("score") for row in graded[1].rows if row["learner"] == learner]

    @pytest.mark.parametrize(
        "learner, scores",
        [("full", [5, 10, 10]), ("half", [2.5, 5, 5]), ("altered", [0, 0, 0])],
    )
    def test_the_script_gets_its_points_whatever_the_notebook_is(self, graded, learner, scores):
        assert self.scores(graded, learner) == scores

    @pytest.mark.parametrize(
        "learner, sentence",
        [
            ("dataless", "The data set cifar10 is not here."),
            ("dead", "The process died while a cell ran: it ran out of memory, or the cell ended it."),
            ("fault", "The grader failed (ZeroDivisionError: by zero)."),
            ("scriptless", "assessment.py was not handed in with the notebook."),
        ],
    )
    def test_a_fault_that_is_not_the_scripts_is_no_zero(self, graded, learner, sentence):
        assert self.scores(graded, learner) == [None]
        table = pandas.read_csv(graded[1].results / "not_graded.csv")
        assert list(table[table.learner == learner].reason) == [sentence]
        assert not list(graded[1].results.glob(f"*/{learner}"))

    def test_the_traceback_of_a_fault_of_ours_is_kept(self, graded):
        log = (graded[1].results / "faults.log").read_text()
        assert "fault, assessment: The grader failed" in log and "in assess" in log and "\x1b" not in log

    def test_each_script_ran_once_on_all_data_with_no_other_file_of_the_learner(self, graded):
        ran = {line.split()[0]: line for line in runs(graded[0])}
        assert len(ran) == len(runs(graded[0])) == 5
        for line in ran.values():
            assert line.split(maxsplit=1)[1] == f"None ['{NAME}.ipynb', '{NAME}.py']"

    def test_the_gradebook_holds_the_points(self, graded):
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{graded[1].results / 'gradebook.db'}") as book:
            assert book.find_assignment(NAME).max_score == 25
            assert {one.student.id: one.score for one in book.assignment_submissions(NAME)} == {
                "full": 25,
                "half": 12.5,
                "altered": 0,
            }

    def test_who_passed_stands_on_the_leaderboard_or_beside_it_with_the_rule(self, graded):
        (row,) = leaderboard.read(graded[1].results / "leaderboard.csv")
        assert (row.learner, row.place, row.attempts, row.seconds) == ("full", None, 1, 0.8)
        assert row.rule == "It ran without a sandbox."
        assert row.rule in (graded[1].results / "leaderboard.html").read_text()

    def test_the_feedback_says_why_and_shows_no_test(self, graded, master):
        for learner, reason in (("full", "It is worth 1."), ("half", "It is worth 0.5.")):
            page = (graded[1].results / "feedback" / learner / "assessment" / f"{NAME}.html").read_text()
            assert masters.leaks(master, [page], kinds=["hidden"]) == []
            assert reason in page and "About serial" in page
            assert ("See 2b." in page) == (learner == "half")
            assert ("Not passed" in page) == (learner == "half")
            assert "a run for show" not in page

    def test_each_mark_says_what_gave_it(self, graded):
        digest = hashlib.sha256(contract.CONTRACT.read_bytes()).hexdigest()[:8]
        table = pandas.read_csv(graded[1].results / "grades.csv")
        marked = table[table.learner.isin(["full", "half", "altered"])]
        assert set(zip(marked.course_version, marked.contract, marked.host_factor)) == {
            (f"{metadata.version('one-model-many-gpus')}+{runner._code()[:8]}", digest, 1.25)
        }
        assert table[table.learner == "dead"].host_factor.isna().all()

    def test_what_somebody_has_to_look_at_first_counts_when_it_is_accepted_and_until_it_changes(
        self, graded, course, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
        scores, passed, pages = [], [], []
        for script, accept in (("look", []), ("look", ["anna"]), ("look", []), ("look again", [])):
            hand_in(tmp_path / "submitted", "anna", script)
            summary = grading.grade(tmp_path / "submitted", root=course, accept=accept)
            scores.append([row["score"] for row in summary.rows])
            passed.append({row["passed"] for row in summary.rows})
            pages.append(list((summary.results / "feedback").rglob("*.html")))
            assert not (summary.results / "faults.log").exists()
        assert scores == [[None] * 3, [5, 10, 10], [5, 10, 10], [None] * 3]
        assert passed == [{"needs review"}, {"yes"}, {"yes"}, {"needs review"}]
        assert [len(of_anna) for of_anna in pages] == [0, 1, 1, 0]  # nothing that counts yet, no page
        assert len(summary.problems) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert "anna: Needs review: line 1 starts a program. To accept it" in said
        assert "Could not be graded" not in said and "25 of 25, passed" in said
        # Who is accepted is not run again: what was looked at is what counts.
        assert [line.split(" None")[0] for line in runs(tmp_path)] == ["look", "look again"]

    def test_a_score_set_by_hand_stands_on_the_learners_page(self, course, tmp_path, monkeypatch):
        from nbgrader.api import Gradebook

        monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
        hand_in(tmp_path / "submitted", "anna", "0.5")
        results = grading.grade(tmp_path / "submitted", root=course).results
        (page,) = (results / "feedback").rglob("*.html")
        for score, total in ((5, "15 of 25"), (4, "14 of 25")):
            with Gradebook(f"sqlite:///{results / 'gradebook.db'}") as book:
                book.find_grade("serial-test", NAME, "assessment", "anna").manual_score = score
                book.db.commit()
            (row, *_) = grading.grade(tmp_path / "submitted", root=course).rows
            assert (row["score"], row["reason"]) == (score, "Set by hand. It is worth 0.5. See 2b.")
            assert page.read_text().count("Your instructor set these scores by hand") == 1
            assert f"serial {score} of 5. Your total is {total} points." in page.read_text()

    def test_only_what_could_not_be_graded_is_run_again(self, graded, course, monkeypatch):
        folder, before = graded
        monkeypatch.setenv("RUNS", str(folder / "again"))
        monkeypatch.setenv("HEALED", "1")  # now the data are there
        summary = grading.grade(folder / "submitted", jobs=2, root=course)
        again = sorted(line.split()[0] for line in (folder / "again").read_text().splitlines())
        assert again == ["cannot", "die"]
        assert [row["score"] for row in summary.rows if row["learner"] == "dataless"] == [5, 10, 10]
        kept = ("full", "half", "altered")
        assert [row for row in summary.rows if row["learner"] in kept] == [
            row for row in before.rows if row["learner"] in kept
        ]
        assert [problem["learner"] for problem in summary.problems] == ["dead", "fault", "scriptless"]


def test_another_profile_is_another_grade(course, master, tmp_path, monkeypatch):
    hand_in(tmp_path, "learner01", "1.0")
    (one,) = submissions.find(tmp_path, {NAME: master}, {})
    digests = set()
    for profile in ("cpu", "short"):
        monkeypatch.setenv("COURSE_PROFILE", profile)
        digests.add(grading._prepared(one, {f"assessment/{NAME}.py": b""}).digest)
    assert len(digests) == 2
