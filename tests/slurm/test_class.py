"""Ten learners hand in. The command that grades them on Slurm is killed, and started again; then a node dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas
import pytest

from course_grader.classroom import grading
from tests.course_grader import classes
from tests.course_grader.classes import FIXTURES, RIGHT, SHOUT, SLOPE

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.notebook]

COMMAND = """
import sys
from pathlib import Path
from course_grader.classroom import grading
sys.exit(grading.grade(Path(sys.argv[1]), root=Path(sys.argv[2]), slurm=True).code)
"""
GRADED = {  # learner → what is written for slope and shout, points of the exercises
    **{f"full{number}": (SLOPE, SHOUT, [4, 2, 1]) for number in range(5)},
    **{f"partial{number}": (SLOPE, "def shout(text):\n    return text", [4, 2, 0]) for number in range(3)},
    "ends": ("import os\ndef slope(x, y):\n    os._exit(1)", SHOUT, [0, 2, 1]),
}
NOT_GRADED = {"missing": "script.py was not handed in with the notebook."}


def hand_in(directory):
    for learner, (slope, shout, _) in GRADED.items():
        classes.hand_in(directory, learner, classes.notebook(slope=slope, shout=shout))
    classes.hand_in(directory, "missing", classes.notebook(**RIGHT), script=None)


def start(cluster, directory):
    words = [sys.executable, "-c", COMMAND, str(directory), str(FIXTURES)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": directory.parent}
    return cluster.nodes[0].popen(["sh", "-c", 'echo $$; exec "$@"', "sh", *words], **pipes)


def remembered(results):
    """What is kept of those graded so far: file → when it was written, and what it says."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in results.glob(".results/**/*.json")}


def wait_for(condition, process):
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def ten(cluster, tmp_path_factory):
    """A class graded in two goes, the first killed, the second with one node that dies."""
    directory = tmp_path_factory.mktemp("ten") / "class"
    hand_in(directory)
    results = grading.results_of(directory)
    with start(cluster, directory) as process:
        number = process.stdout.readline().strip()
        wait_for(lambda: len(remembered(results)) >= 2, process)
        cluster.run(["kill", "-KILL", number])
        process.communicate()
    before, left = remembered(results), [job.split() for job in cluster.jobs()]
    tables = (results / "grades.csv").exists()
    with start(cluster, directory) as process:
        wait_for(lambda: len(remembered(results)) > len(before), process)
        cluster_b = ["squeue", "--noheader", "--states=RUNNING", "--nodelist=b", "--format=%i"]
        lost = wait_for(lambda: cluster.run(cluster_b).stdout.split(), process)
        os.kill(cluster.nodes[1].pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=240)
        yield {
            "directory": directory,
            "results": results,
            "before": before,
            "left": left,
            "tables": tables,
            "lost": lost,
            "code": process.returncode,
            "said": output + errors,
        }


def test_jobs_of_a_killed_command_are_cancelled_by_the_next(ten, cluster):
    assert ten["left"] and ten["tables"] is False
    ended = {cluster.told(job)["JobState"] for _, job, _ in ten["left"]}
    assert "CANCELLED" in ended
    assert ended <= {"CANCELLED", "COMPLETED", "FAILED"}  # some may end between the two


def test_the_node_died_with_a_job(ten, cluster):
    assert "NODE_FAIL" in {cluster.told(job)["JobState"] for job in ten["lost"]}
    assert cluster.run(["sinfo", "--noheader", "--nodes=b", "--format=%T"]).stdout.startswith("down")


def test_nobody_is_lost_and_nobody_graded_twice(ten):
    assert ten["code"] == 1, ten["said"]  # one could not be graded
    table = pandas.read_csv(ten["results"] / "grades.csv", keep_default_na=False)
    told = {learner: list(rows.score.astype(float)) for learner, rows in table[table.exercise != ""].groupby("learner")}
    assert told == {learner: points for learner, (_, _, points) in GRADED.items()}
    after = remembered(ten["results"])
    assert len(after) == len(GRADED)
    assert {path: after[path] for path in ten["before"]} == ten["before"]
    pages = {path.parent.parent.name for path in ten["results"].glob("feedback/*/*/*.html")}
    assert pages == set(GRADED)


def test_the_gradebook_says_the_same(ten):
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{ten['results'] / 'gradebook.db'}") as book:
        scores = {one.student.id: one.score for one in book.assignment_submissions("lab0_tiny")}
    assert scores == {learner: sum(points) for learner, (_, _, points) in GRADED.items()}


def test_who_could_not_be_graded_is_told_why(ten):
    table = pandas.read_csv(ten["results"] / "not_graded.csv", keep_default_na=False)
    assert dict(zip(table.learner, table.reason)) == NOT_GRADED


def test_nothing_is_left(ten, cluster):
    assert cluster.jobs() == []
    assert [path.name for path in ten["results"].glob("course-grade-*")] == []


def test_an_interrupt_cancels_all_jobs(ten, cluster, tmp_path):
    for number in range(3):
        classes.hand_in(tmp_path / "class", f"learner{number}", classes.notebook(**RIGHT))
    with start(cluster, tmp_path / "class") as process:
        number = process.stdout.readline().strip()
        wait_for(lambda: [job for job in cluster.jobs() if job.startswith("RUNNING")], process)
        jobs = [job.split()[1] for job in cluster.jobs()]
        cluster.run(["kill", "-INT", number])
        _, errors = process.communicate(timeout=60)
    assert "Stopped; the results so far are kept." in errors
    assert {cluster.told(job)["JobState"] for job in jobs} <= {"CANCELLED", "COMPLETING"}
    assert not Path(tmp_path / "class-graded" / "grades.csv").exists()
