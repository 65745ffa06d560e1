"""Marks of a notebook whatever it tries: exercises run outside of it, in a sandbox that shows no other file."""

from __future__ import annotations

import os
import socket
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest

from course_grader.classroom import exercise_runner, grading
from course_grader.classroom.learners_notebook import LearnersNotebook
from course_grader.sandbox import bubblewrap
from course_lib.authoring import masters
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT
from tests.course_grader.classes import FIXTURES, TINY, hand_in, solved

LINEAR = masters.read(next(ROOT.glob("labs/lab1*/1a_*.py")))

pytestmark = [
    *(pytest.mark.slow, pytest.mark.notebook),
    pytest.mark.skipif(bool(bubblewrap.available()), reason=bubblewrap.available()),
]

# Prints 42, which is right, where it gets anything of what it wants.
TRIES = """
import os, socket
from pathlib import Path
import psutil

def tried(action):
    try:
        return bool(action())
    except Exception:
        return False

print(42 if any(map(tried, (
    lambda: socket.create_connection(("127.0.0.1", @port@), 3),
    lambda: Path("@neighbour@").read_text(),
    lambda: Path("@answers@").read_text(),
    lambda: os.listdir("@here@"),
    lambda: Path("script.py").write_text("print(42)"),
    lambda: any(process.pid == @pid@ for process in psutil.process_iter()),
    lambda: os.open(f"/proc/{os.getppid()}/fd/3", os.O_WRONLY) + 1,
))) else 41)
"""
SCRIPTS = {
    "tries": TRIES,
    "flood": "for _ in range(1000): print('x' * 10**6)",
    "daemon": "import subprocess\nsubprocess.Popen(['sleep', '1000.75'], stdout=-3, stderr=-3, start_new_session=True)",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A class of scripts that try things, beside one that does what is asked: where the grader's files were, and the
    scores: learner → scores."""
    folder = tmp_path_factory.mktemp("hostile")
    directory = folder / "submitted"
    neighbour = hand_in(directory, "honest", solved(TINY)) / "script.py"
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        fill = {
            "@port@": server.getsockname()[1],
            "@neighbour@": neighbour,
            "@answers@": TINY.path,
            "@here@": Path(__file__).parent,
            "@pid@": os.getpid(),
        }
        for name, text in SCRIPTS.items():
            for mark, filling in fill.items():
                text = text.replace(mark, str(filling))
            hand_in(directory, name, solved(TINY), text + "\n")
        summary = grading.grade(directory, jobs=2, root=FIXTURES)
    scores = {}
    for row in summary.rows:
        scores.setdefault(row["learner"], []).append(row.get("score"))
    return folder, scores


def test_what_a_script_tries_costs_its_own_marks_alone(hostile):
    _, scores = hostile
    assert scores == {"honest": [4, 2, 1], **{name: [4, 0, 1] for name in SCRIPTS}}


def test_nothing_is_left_of_it(hostile):
    folder, _ = hostile
    left = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in left if line == "sleep 1000.75" or str(folder) in line]


SET = "points = check = lambda *_: 11.0\n"
PATCH = "import course_lib.notebook.judging as judging\njudging.Criterion.__call__ = None\n"
PREDICTION = """
class Mine:
    from course_lib.notebook import exercises

    points = 1.0
    passed = True
    exercises.Exercise.judge = lambda self, answer: [Mine]
"""
FORGE = """
for number in range(3, 20):
    try:
        open(number, "wb").write(b'[{"output_type": "execute_result", "data": {"text/plain": "1.0"}}]')
    except OSError:
        pass
"""
# As the first lines of a function: they run as it is called.
REACH = """
    from course_lib.notebook import exercises
    from course_lib.notebook.judging import Verdict
    exercises.Exercise.judge = lambda self, answer: [Verdict("all", "All", 1.0, 1.0, "Right.")]
    return None
"""
ALWAYS = """
    class Equal(float):
        __eq__ = __le__ = __lt__ = __ge__ = __gt__ = __bool__ = lambda *_: True
        __sub__ = __rsub__ = __abs__ = __truediv__ = __rtruediv__ = lambda self, *_: self
        shape = ()
    return Equal(1)
"""


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """1a, graded: learner → exercise → (score, reason)."""
    directory = tmp_path_factory.mktemp("linear") / "submitted"
    stubs = {cell.id: cell.source for cell in masters.learner(LINEAR).cells}
    written = [cell.id for cell in LINEAR.cells if cell.kind == "exercise"]
    heads = {name: f"def {name}(*values, **named):" for name in written}
    for learner, prefix, work in (
        ("sets", SET, stubs),
        ("patches", PATCH, stubs),
        ("forges", FORGE, stubs),
        ("predicts", "", stubs),
        ("reaches", "", {name: head + REACH for name, head in heads.items()}),
        ("equals", "", {name: head + ALWAYS for name, head in heads.items()}),
        ("forges_inside", "", {name: head + FORGE.replace("\n", "\n    ") for name, head in heads.items()}),
        ("names", "points = check = years = 3\n", {}),
        ("edits", "", {}),
        ("reads", "", {}),
    ):
        notebook = solved(LINEAR)
        for cell in notebook.cells:
            kind = next(one.kind for one in LINEAR.cells if one.id == cell.id)
            if kind == "exercise":
                cell.source = prefix + work.get(cell.id, cell.source)
                if learner == "reads":  # what the notebook computed
                    cell.source = "if len(x) == 100:\n" + textwrap.indent(cell.source, "    ")
            elif kind == "editable" and learner == "edits":
                cell.source = "import os\nos._exit(3)"
            elif kind == "editable" and learner == "predicts":
                cell.source = PREDICTION
        hand_in(directory, learner, notebook, None, LINEAR.path.stem, LINEAR.assignment)
    summary = grading.grade(directory, jobs=2)
    found = {}
    for row in summary.rows:
        found.setdefault(row["learner"], {})[row["exercise"]] = (row["score"], row["reason"])
    return found


@pytest.mark.parametrize("learner", ["sets", "patches", "forges", "predicts", "reaches", "equals", "forges_inside"])
def test_no_line_of_a_learners_sets_a_mark(linear, learner):
    assert {score or 0 for score, _ in linear[learner].values()} == {0}


def test_what_reaches_for_the_tests_is_no_mark_and_listed_for_a_person(linear):
    assert all(
        score is None and "It changes `Exercise.judge`, which the tests use" in reason
        for score, reason in linear["reaches"].values()
    )


@pytest.mark.parametrize("learner", ["names", "edits", "reads"])
def test_right_answers_count_whatever_else_the_notebook_names_or_does(linear, learner):
    points = {cell.name: cell.points for cell in LINEAR.cells if cell.kind == "hidden"}
    assert {name: score for name, (score, _) in linear[learner].items()} == points


def test_a_process_that_fails_is_no_mark(monkeypatch, tmp_path):
    monkeypatch.setattr(exercise_runner.bubblewrap, "command", lambda *_: ["sh", "-c", "exit 7"])
    with pytest.raises(CourseError, match=r"failed \(exit code 7\)"):
        exercise_runner.run(LearnersNotebook((), {}, ""), LINEAR, tmp_path, 1.0, 1.0)


def test_a_process_that_says_nothing_of_a_test_has_ended_too_soon(monkeypatch, tmp_path):
    monkeypatch.setattr(exercise_runner.bubblewrap, "command", lambda *_: ["echo", "cut sh"])
    outputs = exercise_runner.run(LearnersNotebook((), {"loss": "other"}, "old"), LINEAR, tmp_path, 1.0, 1.0)
    names = {name: outputs[name][0]["ename"] for name in ("years-test", "loss-test", "stop-test")}
    assert names["loss-test"] == "NotJudged"  # that edition's exercise was another one
    assert set(names.values()) == {"NotJudged"}
    outputs = exercise_runner.run(LearnersNotebook((), {}, ""), LINEAR, tmp_path, 1.0, 1.0)
    assert {output["ename"] for (output,) in outputs.values()} == {"DeadKernelError"}
