"""The course's solutions are shown after full marks, and not before."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from course_lib.authoring import solutions, welcome
from course_lib.command.classroom import workspace
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

PATH = "lab3_large_batch/3d_layer_wise_rates.ipynb"
EXERCISES = ["local_rate", "lars", "larc", "lamb", "novograd", "invariances"]


@pytest.fixture
def place(tmp_path):
    workspace.fill(tmp_path)
    return tmp_path


def solve(place, but=()):
    """Note all checks of 3d as passed, `but` these; let the learner have written something of their own."""
    notebook = json.loads((place / PATH).read_text())
    lines = {line for cell in notebook["cells"] for line in welcome.checks("".join(cell["source"]))}
    path = place / welcome.PROGRESS / "3d.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"passed": sorted(lines - {*but}), "guesses": {}}))
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "lars":
            cell["source"] = "def lars(w):\n    for _ in range(3):\n        w = halved(w)\n    return w"
    (place / PATH).write_text(json.dumps(notebook))


def test_both_solutions_of_each_exercise(place):
    solve(place)
    pairs = {pair.exercise: pair for pair in solutions.pairs("3d", place)}
    assert list(pairs) == EXERCISES
    assert "halved(w)" in pairs["lars"].learners
    assert "np.linalg.norm" in pairs["local_rate"].courses
    assert "SOLUTION" not in "".join(pair.courses for pair in pairs.values())
    assert "yours calls `range`, `halved`" in pairs["lars"].difference


def test_they_are_refused_before_full_marks_and_where_there_are_none(place, tmp_path_factory):
    with pytest.raises(CourseError, match=r"^Pass all 6 checks of 3d before.* Not passed yet: check\(invariances\)"):
        solutions.pairs("3d", place)
    solve(place, but=["check(lars)"])
    with pytest.raises(CourseError, match=r"Not passed yet: check\(lars\)\.$"):
        solutions.pairs("3d", place)
    with pytest.raises(CourseError, match="There is no notebook 9z; there are assessment, 1a"):
        solutions.pairs("9z", place)
    with pytest.raises(CourseError, match="Notebook assessment has no exercises"):
        solutions.pairs("assessment", place)
    with pytest.raises(CourseError, match="give the workspace with --dir"):
        solutions.pairs("3d", tmp_path_factory.mktemp("elsewhere"))
    learners = tmp_path_factory.mktemp("learners")
    shutil.copytree(ROOT / "labs" / "lab3_large_batch" / "lessons", learners / "labs" / "lab3_large_batch" / "lessons")
    with pytest.raises(CourseError, match="This installation is for learners"):
        solutions.pairs("3d", place, learners)


@pytest.mark.parametrize(
    ("learners", "courses", "sentence"),
    [
        (
            "def f(x):\n    return g(x)",
            "def f(x):\n    return g(x)",
            "Both have the same number of lines and loops, and call the same functions.",
        ),
        (
            "def f(x):\n    s = 0\n    for y in x:\n        s += y\n    return s",
            "def f(x):\n    return np.sum(x)",
            "The course's solution has 2 lines of code, yours 5; it has 0 loops, yours 1; it calls `np.sum`.",
        ),
        ("def f(x:", "def f(x):\n    return 1", "Your code is not valid Python."),
    ],
)
def test_the_difference_is_one_sentence(learners, courses, sentence):
    assert solutions.difference(learners, courses) == sentence


def test_the_command(place):
    command = [sys.executable, "-m", "course_lib.command.cli", "solution", "3d", "--dir", str(place)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, "Not passed yet" in refused.stderr) == (1, True)
    solve(place)
    shown = subprocess.run(command, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert all(word in shown.stdout for word in (*EXERCISES, "yours", "the course's", "halved"))
