"""What keeps a script from being graded is told, with exit code 2; what the script is to blame for is a mark."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from course_grader.sandbox.resource_monitor import ResourceSample
from course_grader.script import contract, grader
from course_grader.script.evaluator import Weights
from course_lib.command.cli import app, main
from course_lib.notebook.judging import Verdict
from course_lib.ranks import launch
from course_lib.ranks.launch import Result
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
    with pytest.raises(grader.CannotGrade, match="The profile gpu needs GPUs, but this host has none"):
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
    script.write_text("#" * (contract.read().max_script_kb * 1024 + 1))
    outcome = grader.assess(script, profile="short")
    assert (outcome.passed, outcome.score, outcome.seconds) == (False, 0, None)
    assert {verdict.reason for verdict in outcome.verdicts} == {outcome.error}
    assert "16,385 bytes, but only 16,384 are allowed" in outcome.error


DONE = Result(0, 30.0)


class Run:
    """Stands in for a run of two ranks, or of one."""

    running = False

    def __init__(self, result, events=()):
        self._result, self._events = result, events

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        return iter(self._events)

    def wait(self):
        return self._result


ENDED = Result(0, 9.0)


@pytest.fixture
def graded(script, monkeypatch, tmp_path):
    """graded(result, *margins): the outcome, and how many runs on all ranks there were.

    All of them end with `result`; in one after the other the weights know the watermarks of the ranks by `margins`.
    """

    def assess(result=DONE, *margins, alone=ENDED, others=0.0, text="print('never run')\n"):
        left = list(margins)

        class Box:
            kind, weaknesses, ended_by, device_processes = "bubblewrap", (), "", None

            def __init__(self, script, limits, ranks, **_):
                self.folder, self.others, self.runs = Path(tempfile.mkdtemp(dir=tmp_path)), others, ranks
                self.samples = [ResourceSample(one, 10**6 * one, (9.0 * one,) * ranks) for one in range(20)]
                (self.folder / "weights.h5").write_text("")
                (self.folder / "record").mkdir()
                for rank in range(ranks):
                    init = {"kind": "init", "rank": rank, "size": ranks, "local_rank": rank}
                    log = [init, {"kind": "gpus", "visible": [f"GPU:{rank}"]}]
                    lines = "\n".join(map(json.dumps, log))
                    (self.folder / "record" / f"rank-{rank}.jsonl").write_text(lines)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def start(self, ranks, hosts, stall_timeout, fake_gpus):
                said = launch.Event("output", 0, 1.0, {"text": "val_accuracy: 0.99", "stream": "stdout"})
                return Run(result if ranks > 1 else alone, [said])

        class Weigher:
            folder, data = tmp_path, "cifar10"

            def __init__(self, *_):
                pass

            __enter__, __exit__, wait = Box.__enter__, Box.__exit__, Box.__enter__

            def evaluate(self, weights, marks):
                return Weights(0.9, 0.8, marks=tuple((one, 0.0) for one in left.pop(0)) if left else (), values=1000)

        nothing = SimpleNamespace(env={}, files={}, name="cifar10")
        script.write_text(text)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # slots of its own
        monkeypatch.setattr(launch, "controllers", lambda: ("gloo",))
        monkeypatch.setattr(grader, "Sandbox", Box)
        monkeypatch.setattr(grader, "Evaluator", Weigher)
        monkeypatch.setattr(grader.data, "bundle", lambda *_, **__: nothing)
        monkeypatch.setattr(grader._Assessment, "_watermarked", lambda *_: ([], [nothing] * 2))
        stages = []
        found = grader.assess(script, profile="short", on_event=stages.append)
        return found, sum(event.data.get("limit") is not None for event in stages)

    return assess


def test_what_was_measured_is_in_the_outcome(graded):
    found, runs = graded()
    assert (found.passed, found.score, found.max_score, runs) == (True, 100, 100, 1)
    assert (found.profile, found.ranks, found.data, found.seconds, found.limit) == ("short", 2, "cifar10", 30.0, 120.0)
    assert (found.train_accuracy, found.test_accuracy, found.claimed, found.sandbox) == (0.9, 0.8, 0.99, "bubblewrap")
    assert (found.look, found.needs_a_look, found.error, found.factor) == ((), False, "", 1.0)


def test_a_script_with_something_to_read_passes_once_a_person_has(graded):
    found, _ = graded(text="import subprocess\n")
    assert (found.passed, found.needs_a_look, found.score) == (False, True, 100)
    assert found.look == ("line 1 starts a program (subprocess)",)


UNKNOWN, KNOWN = (0.9, 0.1), (0.9, 0.9)


@pytest.mark.parametrize(
    ("margins", "passed"),
    [([KNOWN], True), ([UNKNOWN, KNOWN], True), ([UNKNOWN, (0.1, 0.9)], True), ([UNKNOWN] * 3, False)],
)
def test_a_watermark_that_the_weights_do_not_know_asks_for_further_runs(graded, margins, passed):
    found, runs = graded(DONE, *margins)
    assert (found.passed, runs) == (passed, len(margins))
    averaged = next(one for one in found.verdicts if one.id == "averaged")
    assert averaged.passed is passed and averaged.rests_on == "host"


def test_a_script_that_failed_is_not_run_again_and_its_last_lines_are_told(graded):
    hint = "Horovod 0.28.1 needs Keras 2"
    crash = Result(
        1, 9.0, 1, "Rank 1 failed with exit code 1.", ("Traceback", "ModuleNotFoundError: No module named 'tf_keras'")
    )
    found, runs = graded(crash, UNKNOWN, UNKNOWN)
    assert (found.passed, runs) == (False, 1)
    assert found.error.splitlines()[:2] == [crash.message, "Traceback"] and hint in found.error


def test_other_programs_are_to_blame_for_a_late_script(graded):
    late = Result(launch.TIMED_OUT, 138.0, message="Stopped at the time limit of 138 s.")
    assert not graded(late)[0].passed
    with pytest.raises(grader.CannotGrade, match="other programs used 40% of its cores' time"):
        graded(late, others=0.4)
    assert not graded(alone=late)[0].verdicts[0].passed
    with pytest.raises(grader.CannotGrade, match="other programs used 40% of its cores' time"):
        graded(alone=late, others=0.4)


def test_a_gpu_whose_memory_others_hold_costs_the_script_nothing(graded, monkeypatch, nvidia_smi):
    def driver(used):
        nvidia_smi(f"""case "$*" in
        -L) echo 'GPU 0: H100 (UUID: GPU-a)'; echo 'GPU 1: H100 (UUID: GPU-b)' ;;
        *compute-apps*) echo '4000001, 79000, GPU-a, /usr/bin/python' ;;
        *index*) echo '0, GPU-a, {used}, 81559' ;;
        *) echo 'H100, 580.1' ;;
        esac""")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(grader.bubblewrap, "cuda_problem", lambda: "")
    words = ("InternalError: cudaSetDevice() on GPU:0 failed. Status: out of memory",)
    crash = Result(1, 9.0, 1, "Rank 1 failed with exit code 1.", words)
    driver(79900)
    for runs in ({"result": crash}, {"alone": crash}):
        with pytest.raises(grader.CannotGrade, match=r"by process 4000001 .* Then assess it again"):
            graded(**runs)
    driver(300)  # the script itself had taken all of it
    found, _ = graded(crash)
    assert not found.passed and "its own GPU" in found.error


@pytest.mark.parametrize("owner", ["criteria.host_checks.silent", "judge", "run_record.read"])
def test_a_fault_of_the_grader_costs_the_script_nothing(graded, monkeypatch, caplog, owner):
    *path, name = owner.split(".")
    module = grader
    for part in path:
        module = getattr(module, part)
    monkeypatch.setattr(module, name, float)  # which takes none of that
    with pytest.raises(grader.CannotGrade) as caught:
        graded()
    assert caught.value.code == 2
    assert str(caught.value).startswith("The grader failed, not the script (TypeError: float")
    assert str(caught.value).endswith("): please report it.")
    assert "Traceback" in caplog.text and "TypeError: float" in caplog.text


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
        Verdict("time", "In time", 0.0, 10.0, "Too late.", "See 2c.", "host"),
    )
    given = {
        "passed": False, "score": 5.0, "max_score": 15.0, "profile": "short", "ranks": 2, "data": "cifar10",
        "seconds": 12.3, "train_accuracy": 0.5, "test_accuracy": None, "verdicts": verdicts, "limit": 60.0,
        "factor": 1.0, "sandbox": "none", "weaknesses": ("It can read.",), "claimed": 0.99,
    }  # fmt: skip
    return grader.Outcome(**{**given, **changes})


def test_json_has_the_fields_of_the_contract_and_can_be_read_back():
    table = json.loads(json.dumps(outcome().as_json()))
    promised = "passed score max_score profile ranks data seconds train_accuracy test_accuracy criteria"
    assert {*promised.split()} <= table.keys()
    assert table["criteria"][1] == {
        "id": "time", "title": "In time", "points": 0.0, "max_points": 10.0, "reason": "Too late.", "hint": "See 2c.",
        "rests_on": "host", "passed": False,
    }  # fmt: skip
    assert grader.Outcome.from_json(table) == outcome()
    del table["first_step_seconds"]  # as an earlier version wrote it
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
