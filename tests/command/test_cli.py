"""The command's surface: its names are a contract, its help is quick, its errors are sentences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from course_grader.display import leaderboard, report
from course_grader.script import grader
from course_lib.authoring import masters
from course_lib.command import cli
from course_lib.command.doctor import diagnosis

COURSE = [sys.executable, "-m", "course_lib.command.cli"]


def course(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([*COURSE, *arguments], capture_output=True, text=True)


COMMANDS = {
    "setup",
    "lab",
    "test",
    "doctor",
    "data",
    "run",
    "assess",
    "build",
    "plan",
    "solution",
    "grade",
    "reproduce",
    "collect",
    "return",
    "class",
}


def test_help_names_every_command():
    done = course("--help")
    assert done.returncode == 0
    assert set(typer.main.get_command(cli.app).commands) == COMMANDS
    assert set(re.findall(r"^\W*([a-z]+) ", done.stdout, re.MULTILINE)) >= COMMANDS


@pytest.mark.parametrize(("passed", "look", "code"), [(True, False, 0), (False, False, 1), (False, True, 3)])
def test_the_exit_code_of_an_assessment(monkeypatch, passed, look, code):
    outcome = SimpleNamespace(passed=passed, needs_a_look=look)
    monkeypatch.setattr(grader, "assess", lambda script, **options: outcome)
    monkeypatch.setattr(report, "show", lambda outcome: None)
    monkeypatch.setattr(leaderboard, "standing_beside", lambda *_: "")
    assert CliRunner().invoke(cli.app, ["assess", "x.py"]).exit_code == code


@pytest.mark.parametrize(("problems", "code"), [([], 0), (["There is no Horovod."], 1)])
def test_the_exit_code_of_the_doctor(monkeypatch, problems, code):
    monkeypatch.setattr(diagnosis, "diagnose", lambda: {"problems": problems})
    done = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (code, {"problems": problems})


@pytest.mark.parametrize(
    ("stale", "words", "code"), [([], ["--check"], 0), (["a.ipynb"], ["--check"], 1), (["b"], [], 0)]
)
def test_the_exit_code_of_a_build(monkeypatch, stale, words, code):
    monkeypatch.setattr(masters, "build", lambda check: stale)
    done = CliRunner().invoke(cli.app, ["build", *words])
    assert done.exit_code == code
    lines = [f"{'stale' if words else 'wrote'} {path}" for path in stale]
    assert done.stdout.splitlines() == (lines or ["All notebooks are up to date."])


def test_a_place_that_takes_no_outcome_is_refused_before_the_assessment(tmp_path):
    done = course("assess", "assessment.py", "--json", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"course: {tmp_path} can't be written (Is a directory): name another file."]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "modules",
    [
        "course_lib.command.cli",
        "course_lib.ranks.launch, course_lib.data, course_lib.command.doctor.health",
        "course_lib.cost.allreduce, course_lib.cost.memory, course_lib.cost.roofline",
        "course_lib.notebook.plots, course_lib.notebook.widgets",
        "course_lib.authoring.masters, course_lib.command.classroom.workspace",
        "course_grader.classroom.grading",
        "labs.lab2_horovod.lessons.checks_2b, course_lib.ranks.run_record",
    ],
)
def test_tensorflow_is_imported_only_by_what_trains(modules):
    code = f"import sys, {modules}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_help_imports_no_heavy_library():
    code = (
        "import sys; sys.argv = ['course', '--help']\n"
        "from course_lib.command import cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print({'pandas', 'matplotlib', 'nbformat', 'IPython', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


def test_a_lab_on_an_unknown_way_is_refused(tmp_path):
    done = course("lab", "--way", "night", "--dir", str(tmp_path / "workspace"))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "course: Name a way through the course: afternoon, day, two-days, term, systems, methods."
    ]
    assert not list(tmp_path.iterdir())


def test_list_of_experiments_and_an_unknown_one():
    listed = course("reproduce", "--list").stdout
    assert "omissions" in listed and re.search(r"^ +recorded 20\d\d-\d\d-\d\d on .+; seeds .+$", listed, re.MULTILINE)
    done = course("reproduce", "perpetuum-mobile")
    assert done.returncode == 1
    assert done.stderr.startswith("course: There is no experiment 'perpetuum-mobile'")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["dance"], ["run"], ["run", "x.py", "-np", "many"], ["run", "x.py", "-N", "2"], ["doctor", "--rehearse"]],
)
def test_what_cannot_be_meant_is_a_usage_error(arguments):
    done = course(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and done.stderr
