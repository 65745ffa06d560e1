"""Thirty learners hand in the assessment. The command that grades them is killed half-way and resumed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas
import psutil
import pytest

from benchmarks.copies import renamed
from course_grader.classroom import grading, runner
from course_grader.display import leaderboard
from course_grader.sandbox import bubblewrap
from course_grader.script import contract, criteria
from course_lib.authoring import masters
from course_lib.system.paths import ROOT
from tests.grader.conftest import complete

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [
    *(pytest.mark.alone, pytest.mark.slow, pytest.mark.long, pytest.mark.ranks, pytest.mark.notebook),
    pytest.mark.skipif(bool(bubblewrap.available()), reason="hostile notebooks need bubblewrap"),
]

MASTER = masters.read(ROOT / "assessment" / "master" / "assessment.py")
NOTEBOOK = (ROOT / "assessment" / "assessment.ipynb").read_text()
CHANGED = NOTEBOOK.replace("# In time: 10 points", "10.0")
LINEAR = masters.read(next(ROOT.glob("labs/lab1*/1a_*.py")))
CORPUS = tomllib.loads(Path(__file__).with_name("marks.toml").read_text())
NOTHING, EVERYTHING = [0] * len(criteria.IDS), list(contract.read().points.values())
NO_MARK = [None] * len(criteria.IDS)  # before a person has read the script


def converted(without=""):
    return complete(f"reference without {without}" if without else "reference")


STARTER = complete("starter")
COPIED = {name: complete(f"conversion/{name}") for name in ("tape_loop", "trainer_class")}

NO_SCRIPT = "assessment.py was not handed in with the notebook."
NAME = "It seems to be assessment.py: rename it to that."
PASSED = "Passed: 100 of 100"
BROKEN = CORPUS["broken"]


def both(script, notebook=NOTEBOOK):
    """A script and the notebook, where the course has put them."""
    return {"assessment/assessment.py": script, "assessment/assessment.ipynb": notebook}


# learner → files, points in the contract's order of the criteria, words of the feedback page
GRADED = {
    "reference": (both(converted()), EVERYTHING, PASSED),
    "script_alone": (
        *({"assessment.py": converted("broadcast")}, BROKEN["without_broadcast"]["points"], "Nothing was broadcast"),
    ),
    "damaged_notebook": (
        {"assessment.py": converted("data"), "assessment.ipynb": "{"},
        *(BROKEN["without_data"]["points"], "the work is not divided"),
    ),
    "cheat": (
        {
            **both(STARTER, CHANGED),
            "assessment/json.py": "raise SystemExit\n",
            "assessment/contract.toml": "pass_points = 0\n",
            "assessment/reference/assessment.py": converted(),
            "assessment/assessment/course_grader/notebook_points.py": "def points(name): return 100.0\n",
        },
        *(BROKEN["serial"]["points"], "No process called hvd.init()"),
    ),
    "broken0": (both("print("), NOTHING, "SyntaxError"),
    "broken1": (both("import tensorflou"), NOTHING, "tensorflou"),
    "broken2": (both("raise SystemExit(3)"), NOTHING, "exit code 3"),
    "too_large0": ({"assessment.py": converted() + "#" * 2**16 + "0"}, NOTHING, "nothing was run"),
    "beside_the_starter": ({"assessment.py": converted(), "assessment/assessment.py": STARTER}, EVERYTHING, PASSED),
    "daemon": ({"assessment.py": complete("dishonest/leaves_a_daemon")}, NO_MARK, ""),
    **{
        f"{name}_{who}": ({"assessment.py": script}, EVERYTHING, PASSED)
        for name, text in COPIED.items()
        for who, script in (("author", text), ("copyist", renamed(text)))
    },
}


def linear(line):
    """1a's notebook with nothing solved, and `line` above each exercise."""
    made = masters.learner(LINEAR)
    exercises = {cell.id for cell in LINEAR.cells if cell.kind == "exercise"}
    for cell in made.cells:
        cell.source = f"{line}\n{cell.source}" if cell.id in exercises else cell.source
    return {f"{LINEAR.assignment}/{LINEAR.notebook.name}": nbformat.writes(made)}


# learner → files of a lab that want marks for nothing, or what is not theirs; words of the feedback page
HOSTILE = {
    "sets_marks": (linear("points = check = lambda *_: 11.0"), "is not written yet"),
    "reads": (
        {
            name: re.sub(r"raise NotImplementedError\([^)]*\)", f"open({str(LINEAR.path)!r}).read()", text)
            for name, text in linear("").items()
        },
        "FileNotFoundError",
    ),
    "forks": (linear("import os\nwhile True:\n    os.fork()"), ""),
}

# learner → files, words of the sentence in not_graded.csv
NOT_GRADED = {
    "nothing": ({}, "No notebook was handed in."),
    "scriptless0": ({"assessment.ipynb": NOTEBOOK}, NO_SCRIPT),
    "scriptless1": ({"assessment/assessment.ipynb": NOTEBOOK}, NO_SCRIPT),
    "scriptless2": ({"assessment.ipynb": NOTEBOOK, "other.py": converted()}, NO_SCRIPT),
    "folder": ({"assessment.ipynb": NOTEBOOK, "assessment.py/x": ""}, NO_SCRIPT),
    "renamed0": ({"assessment (1).py": converted()}, NAME),
    "renamed1": ({"my_assessment.py": converted()}, NAME),
    "renamed2": ({"assesment.py": converted()}, NAME),
    "notebook_renamed": ({"assessment_old.ipynb": NOTEBOOK}, NAME.replace(".py", ".ipynb")),
    "other0": ({"Untitled.ipynb": "{}"}, "No notebook of this course, only Untitled.ipynb was handed in."),
    "other1": ({"Untitled1.ipynb": "{}"}, "No notebook of this course, only Untitled1.ipynb was handed in."),
    "other2": ({"notes.ipynb": "{}"}, "No notebook of this course, only notes.ipynb was handed in."),
    "link": ({"assessment.py": Path("/etc/hostname")}, "assessment.py is a link or larger than 50 MB."),
}


def hand_in(directory):
    for learner, (files, *_) in {**GRADED, **HOSTILE, **NOT_GRADED}.items():
        (directory / learner).mkdir(parents=True)
        for name, content in files.items():
            path = directory / learner / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                path.symlink_to(content)
            else:
                path.write_text(content)


def remembered(results):
    """What is kept of those graded so far: file → when it was written, and what it says."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in results.glob(".results/**/*.json")}


@pytest.fixture(scope="module")
def thirty(tmp_path_factory):
    """A class graded in two goes: {directory, before, ran, summary}."""
    folder = tmp_path_factory.mktemp("thirty")
    directory, temporary = folder / "class", folder / "tmp"
    temporary.mkdir()
    hand_in(directory)
    results = grading.results_of(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_PROFILE", "short")
        patch.setenv("COURSE_SLICE", "64")  # for the labs' notebooks, not for the assessment
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(grading.tempfile, "tempdir", str(temporary))
        command = [sys.executable, "-m", "course_lib.command.cli", "grade", str(directory), "--jobs", "2"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder) as process:
            while len(remembered(results)) < len(GRADED) // 2:
                assert process.poll() is None
                time.sleep(0.1)
            tree = psutil.Process(process.pid).children(recursive=True)
            process.kill()
        _, alive = psutil.wait_procs(tree, timeout=30)
        before = remembered(results)
        tables = (results / "grades.csv").exists()
        ran = []
        run = runner._run
        patch.setattr(runner, "_run", lambda *args: ran.append(1) or run(*args))
        summary = grading.grade(directory, jobs=2)
        yield {
            "directory": directory,
            "results": results,
            "alive": alive,
            "tables": tables,
            "before": before,
            "ran": len(ran),
            "summary": summary,
            "temporary": list(temporary.iterdir()),
        }


def test_there_are_thirty():
    assert len(GRADED) + len(HOSTILE) + len(NOT_GRADED) == 30


def test_a_killed_command_leaves_nothing_running_and_nothing_half_done(thirty):
    assert thirty["alive"] == []
    assert thirty["tables"] is False
    assert 0 < len(thirty["before"]) < len(GRADED) + len(HOSTILE)


def test_nobody_is_graded_twice(thirty):
    everybody = len(GRADED) + len(HOSTILE)
    assert thirty["ran"] == everybody - len(thirty["before"])
    after = remembered(thirty["results"])
    assert len(after) == everybody
    assert {path: after[path] for path in thirty["before"]} == thirty["before"]


def test_nothing_is_left_afterwards(thirty):
    assert thirty["temporary"] == []
    here = str(thirty["directory"].parent)
    left = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process.pid != os.getpid()]
    assert not [words for words in left if words and here in " ".join(words)]


def test_each_criterion_has_its_points(thirty):
    table = pandas.read_csv(thirty["results"] / "grades.csv", keep_default_na=False)
    told = {
        learner: dict(zip(rows.exercise, (float(score) if score else None for score in rows.score)))
        for learner, rows in table[table.exercise != ""].groupby("learner")
    }
    for learner in HOSTILE:
        assert set(told.pop(learner).values()) == {0.0}
    assert told == {learner: dict(zip(criteria.IDS, points)) for learner, (_, points, _) in GRADED.items()}
    lost = table[(table.exercise != "") & (table.score.astype(str) != table.max_score.astype(str))]
    assert (lost.reason != "").all()


def test_the_gradebook_says_the_same(thirty):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{thirty['results'] / 'gradebook.db'}") as book:
        scores = {one.student.id: one.score for one in book.assignment_submissions("assessment")}
        assert book.find_assignment("assessment").max_score == 100
    assert scores == {learner: sum(score or 0 for score in points) for learner, (_, points, _) in GRADED.items()}


def test_who_could_not_be_graded_is_listed_with_a_sentence(thirty):
    table = pandas.read_csv(thirty["results"] / "not_graded.csv", keep_default_na=False)
    reasons = dict(zip(table.learner, table.reason))
    assert set(reasons) == {*NOT_GRADED, "daemon"}
    assert "starts a program" in reasons.pop("daemon")
    assert {who for who, reason in reasons.items() if NOT_GRADED[who][1] not in reason} == set()
    assert thirty["summary"].code == 1


def test_both_pairs_of_copies_are_listed_and_no_other(thirty):
    table = pandas.read_csv(thirty["results"] / "similar.csv")
    pairs = {frozenset(pair) for pair in zip(table["first"], table["second"])}
    copied = {frozenset((f"{name}_author", f"{name}_copyist")) for name in COPIED}
    assert {pair for pair in pairs if pair & set().union(*copied)} == copied


def test_feedback_says_why_and_shows_no_test(thirty):
    pages = {path.parent.parent.name: path.read_text() for path in thirty["results"].glob("feedback/*/*/*.html")}
    said = {learner: (MASTER, words) for learner, (_, points, words) in GRADED.items() if points != NO_MARK}
    said |= {learner: (LINEAR, words) for learner, (_, words) in HOSTILE.items()}
    assert set(pages) == set(said)
    for learner, (master, words) in said.items():
        assert words in pages[learner]
        assert masters.leaks(master, [pages[learner]], kinds=["hidden"]) == []


def test_the_leaderboard_has_who_passed_and_the_rule_that_others_break(thirty):
    """Points are exact, times are not: how many stand on it, and why those without a place have none."""
    rows = {row.learner: row for row in leaderboard.read(thirty["results"] / leaderboard.FILE)}
    full = {learner for learner, (_, points, _) in GRADED.items() if points == EVERYTHING}
    assert {learner for learner, row in rows.items() if row.place} == full
    assert "reference" in full and "daemon" not in rows
    for learner, row in rows.items():
        assert bool(row.rule) == (learner not in full)
