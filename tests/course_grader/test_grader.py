"""What keeps a script from being graded is told, with exit code 2; what the script is to blame for is a mark."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from course_grader.sandbox import Sandbox
from course_grader.script import contract, grader
from course_grader.script.evaluator import Evaluator
from course_lib.command.cli import app, main
from course_lib.notebook.judging import Verdict
from course_lib.ranks import launch
from course_lib.system.errors import CourseError


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "assessment.py"
    path.write_text("print('never run')\n")
    return path


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    def start(*_: object) -> None:
        raise AssertionError("something was run")

    monkeypatch.setattr(grader, "Sandbox", start)
    monkeypatch.setattr(grader, "Evaluator", start)
    monkeypatch.setattr(grader.calibration, "known", lambda ranks: 1e9)


def refused(script, **arguments):
    with pytest.raises(grader.CannotGrade) as caught:
        grader.assess(script, profile="short", **arguments)
    assert caught.value.code == 2
    return str(caught.value)


def test_no_script(tmp_path):
    assert "There is no script" in refused(tmp_path / "none.py")


def test_no_horovod(script, monkeypatch):
    def controllers():
        raise CourseError("Horovod is not installed in this environment: run `course setup`.")

    monkeypatch.setattr(launch, "controllers", controllers)
    assert refused(script) == "Horovod is not installed in this environment: run `course setup`."


def test_no_cuda_in_the_sandbox_is_told_before_anything_runs(script, monkeypatch):
    monkeypatch.setattr(grader.slots, "count", lambda: 1)
    monkeypatch.setattr(grader.bubblewrap, "cuda_problem", lambda: "CUDA does not start in the sandbox (error 304).")
    assert refused(script) == "CUDA does not start in the sandbox (error 304)."


def test_no_disk(script, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 2**20))
    assert "Only 1 MB are free in" in refused(script)


def test_no_data(script, monkeypatch, tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    assert "is missing: copy the published file there" in refused(script)


def test_impossible_ranks_and_profiles(script):
    assert "at least one rank, not -1" in refused(script, ranks=-1)
    with pytest.raises(grader.CannotGrade, match="The profile gpu needs GPUs, and this host has none"):
        grader.assess(script, profile="gpu")
    with pytest.raises(grader.CannotGrade, match="There is no profile 'none'"):
        grader.assess(script, profile="none")


def test_stopped_before_it_began(script):
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(grader.Stopped) as caught:
        grader.assess(script, profile="short", stopping=stopping)
    assert caught.value.code == 130


def test_a_run_is_asked_to_stop_once():
    class Run:
        running = True  # for as long as its processes take to end
        stops = 0

        def stop(self):
            self.stops += 1
            assert self.stops == 1

    assessment, run = object.__new__(grader._Assessment), Run()
    assessment._stopping = threading.Event()
    assessment._stopping.set()
    assessment._stop_when_asked(run)
    assert run.stops == 1


def test_a_script_large_enough_to_carry_weights_gets_no_points(script):
    script.write_text("#" * (contract.read().largest * 1024 + 1))
    outcome = grader.assess(script, profile="short")
    assert (outcome.passed, outcome.score, outcome.seconds) == (False, 0, None)
    assert {verdict.reason for verdict in outcome.verdicts} == {outcome.error}
    assert "16,385 bytes; at most 16,384 are taken" in outcome.error


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.alone
def test_a_busy_host_is_to_blame_for_a_late_script(script, monkeypatch, spinning):
    monkeypatch.setattr(grader, "Sandbox", Sandbox)
    monkeypatch.setattr(grader, "Evaluator", Evaluator)
    script.write_text("import os, time\ntime.sleep(60 * int(os.environ['HOROVOD_RANK']))\n")
    terms = contract.read()
    terms = replace(terms, profiles={"short": replace(terms.profiles["short"], seconds=8.0)})
    with spinning():
        sentence = refused(script, contract=terms)
    assert re.fullmatch(r"The script was not done in time, but other programs had \d+% of the time .+", sentence)


def test_the_commands_answer_is_one_sentence_and_no_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["course", "assess", str(tmp_path / "none.py"), "--json", str(tmp_path / "out.json")]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("course: There is no script")
    assert list(tmp_path.iterdir()) == []


def outcome(**changes):
    verdicts = (
        Verdict("serial", "Runs", 5.0, 5.0, "It ran."),
        Verdict("time", "In time", 0.0, 10.0, "Too late.", "See 2c."),
    )
    given = {
        "passed": False, "score": 5.0, "max_score": 15.0, "profile": "short", "ranks": 2, "data": "cifar10",
        "seconds": 12.3, "train_accuracy": 0.5, "test_accuracy": None, "verdicts": verdicts, "limit": 60.0,
        "factor": 1.0, "sandbox": "none", "weaknesses": ("It can read.",), "claimed": 0.99,
    }  # fmt: skip
    return grader.Outcome(**{**given, **changes})


def test_json_has_the_fields_of_the_contract_and_can_be_read_back():
    table = json.loads(json.dumps(outcome().as_json()))
    promised = {
        "passed",
        "score",
        "max_score",
        "profile",
        "ranks",
        "data",
        "seconds",
        "train_accuracy",
        "test_accuracy",
    }
    assert promised <= table.keys()
    assert table["criteria"][1] == {
        "id": "time", "title": "In time", "points": 0.0, "max_points": 10.0, "reason": "Too late.", "hint": "See 2c.",
        "passed": False,
    }  # fmt: skip
    assert grader.Outcome.from_json(table) == outcome()


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_the_commands_exit_code_is_the_verdict(monkeypatch, tmp_path, script, passed, code):
    monkeypatch.setattr(grader, "assess", lambda *_, **__: outcome(passed=passed))
    result = CliRunner().invoke(app, ["assess", str(script), "--json", str(tmp_path / "out.json")])
    assert result.exit_code == code
    assert json.loads((tmp_path / "out.json").read_text())["passed"] is passed


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        ("val_accuracy: 0.7712", 0.7712),
        ("accuracy 99 %", 0.99),
        ("Accuracy = 1.0", 1.0),
        ("loss: 1.2 - accuracy: 0.5 - val_accuracy: 0.61", 0.61),
        ("acc" * 5000, None),
        ("accuracy on 5,000 images", None),
    ],
)
def test_what_a_script_claims_is_read_from_what_it_prints(line, claim):
    assert grader.claimed(line) == claim
