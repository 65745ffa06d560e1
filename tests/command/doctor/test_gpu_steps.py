"""What the steps of `course doctor --gpu` conclude from what drivers, builds, ranks and the grader report."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace

import pytest

from course_grader.script.grader import CannotGrade, Outcome
from course_lib.command.doctor import stack
from course_lib.command.doctor.gpu import all_ranks, devices, grading, machine, one_process
from course_lib.command.doctor.gpu.devices import Gpu, Host
from course_lib.command.doctor.gpu.report import FAILED, PASSED, UNTESTED
from course_lib.notebook.judging import Verdict
from course_lib.ranks.run import Event, Result
from course_lib.system.errors import CourseError
from tests.command.fake_run import FakeRun

H100 = Gpu("NVIDIA H100 80GB HBM3", 81559.0, "9.0")
ONE, FOUR, NONE = Host((H100,), 1, "550", "12.4"), Host((H100,) * 4, 4, "550", "12.4"), Host()
BUILD = {
    "tensorflow": "2.15.1",
    "keras": "2.15.0",
    "horovod": "0.28.1",
    "controllers": ["gloo", "mpi"],
    "faults": {},
    "cuda": "12.2",
    "cudnn": "8",
    "nccl": "2.18.5",
    "gpus": ["NVIDIA H100"] * 4,
    "targets": ["sm_60", "sm_70", "sm_75", "compute_80"],
}


def states(lines) -> dict[str, str]:
    return {line.title: line.state for line in lines}


# --- machine


@pytest.mark.parametrize(
    ("host", "build", "words"),
    [
        (FOUR, {**BUILD, "cuda": None}, ["built without CUDA"]),
        (replace(FOUR, cuda="11.4", driver="470"), BUILD, ["CUDA 11.4 at most", "update the driver", "cannot compile"]),
        (replace(FOUR, cuda="12.0"), BUILD, ["CUDA 12.0 cannot compile them from code of CUDA 12.2"]),
        (Host((replace(H100, capability="5.2"),), 1, "550", "12.4"), BUILD, ["no kernels for compute capability 5.2"]),
        (Host((replace(H100, capability="10.0"),), 1, "570", "12.8"), {**BUILD, "targets": ["sm_90"]}, ["25.02"]),
    ],
)
def test_what_does_not_fit_is_named_with_its_remedy(host, build, words):
    problems = " ".join(machine.misfits(host, build))
    for word in words:
        assert word in problems
    assert re.search("update the driver|use an image|run `./course setup`", problems)


def test_what_fits_is_no_problem():
    assert machine.misfits(FOUR, BUILD) == []
    assert machine.misfits(replace(FOUR, cuda=""), BUILD) == []
    old = Host((Gpu("Tesla T4", 15109.0),), 1, "450", "12.2")  # a driver that does not know the capability
    assert machine.misfits(old, BUILD) == []


def test_versions_that_fit(monkeypatch):
    monkeypatch.setattr(machine.diagnosis, "ask_stack", lambda: BUILD)
    versions, parts = machine.stack(FOUR)
    assert (versions.state, parts.state, parts.text) == (PASSED, PASSED, "Gloo, MPI, NCCL.")
    assert "CUDA 12.2" in versions.text and versions.values["NCCL"] == "2.18.5"


@pytest.mark.parametrize(
    ("host", "build", "words"),
    [
        (FOUR, {**BUILD, "nccl": None, "gpus": ["H100"] * 3}, ["4 NVIDIA GPUs, but TensorFlow sees 3", "without NCCL"]),
        (FOUR, {**BUILD, "cuda": None}, ["built without CUDA"]),
        (NONE, {**stack.NOTHING, "faults": {"TensorFlow": "it is not installed"}}, ["TensorFlow cannot be used"]),
        (FOUR, {**BUILD, "horovod": None, "faults": {"Horovod": "built for TensorFlow 2.11"}}, ["TensorFlow 2.11"]),
    ],
)
def test_versions_that_do_not_fit(monkeypatch, host, build, words):
    monkeypatch.setattr(machine.diagnosis, "ask_stack", lambda: build)
    failures = [line.text for line in machine.stack(host) if line.state == FAILED]
    assert len(failures) == len(words) and all(word in text for word, text in zip(words, failures))


def test_the_driver_step(monkeypatch, tmp_path):
    first, second = machine.driver(FOUR)
    assert first.state == PASSED and "4 × NVIDIA H100 80GB HBM3" in first.text
    assert first.values["compute capability"] == "9.0"
    assert second.title == "Shared memory"
    assert next(machine.driver(NONE)).state == UNTESTED
    assert next(machine.driver(Host(problem="It hangs."))).state == FAILED
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: type("Use", (), {"total": 64 * 2**20}))
    *_, small = machine.driver(FOUR)
    assert small.state == FAILED and "has 64 MB" in small.text and "--shm-size 1g" in small.text


@pytest.mark.parametrize(
    ("capability", "compiled", "state", "word"),
    [("7.5", 0, PASSED, "sm_75"), ("9.0", 9, PASSED, "saves 30.0 s"), ("9.0", 0, FAILED, "ComputeCache")],
)
def test_the_first_use(monkeypatch, capability, compiled, state, word):
    steps = iter([{**BUILD, "seconds": 35.0, "libraries": ["libcudnn.so.8"], "device": "/GPU:0"}, {"seconds": 5.0}])

    def in_new_process(cuda_cache):
        with open(f"{cuda_cache}/index", "ab") as file:
            file.write(b"x" * (compiled // 9))
        return next(steps)

    monkeypatch.setattr(machine, "_in_new_process", in_new_process)
    lines = list(machine.first_use(Host((replace(H100, capability=capability),), 1, "550", "12.4")))
    assert "35.0 s, in a second process 5.0 s" in lines[0].text
    assert (lines[1].state, lines[1].text) == (PASSED, "On the GPU, with libcudnn.so.8.")
    assert (lines[2].state, word in lines[2].text) == (state, True)


def test_a_first_use_on_the_processor_is_a_failure(monkeypatch):
    step = {**BUILD, "seconds": 1.0, "device": "/CPU:0", "libraries": []}
    monkeypatch.setattr(machine, "_in_new_process", lambda cuda_cache: step)
    assert states(machine.first_use(ONE))["Where it ran"] == FAILED


@pytest.mark.parametrize(("code", "text"), [(0, None), (2708, "2.7.8"), (21805, "2.18.5"), (22403, "2.24.3")])
def test_versions_of_nccl(code, text):
    assert stack.dotted(code) == text


# --- one process


@pytest.mark.parametrize(
    ("tflops", "name", "state", "words"),
    [
        (52, "NVIDIA H100 80GB HBM3", PASSED, "78% of the 67 published. Outside the tensor cores"),
        (400, "NVIDIA H100 80GB HBM3", PASSED, "81% of the 494 published. On the tensor cores, in TF32."),
        (10, "NVIDIA H100 80GB HBM3", FAILED, "15% of the 67 published: the GPU is throttled or shared"),
        (7, "Tesla T4", PASSED, "86% of the 8.1 published."),
        (7, "Some GPU", PASSED, "the course has no published peak for this device."),
    ],
)
def test_products_in_float32_with_and_without_tensor_cores(tflops, name, state, words):
    line = one_process.float32_products(tflops * 1e12, devices.published(name))
    assert line.state == state and words in line.text
    assert line.text.endswith(".") and ("tensor cores" in line.text) == ("H100" in name)


def test_check_values_that_are_missed_are_a_failure(monkeypatch):
    rates, options, expected = one_process.CHECK_VALUES["LARS"]
    wrong = ((expected[0][0] + 1e-4, expected[0][1]), *expected[1:])
    monkeypatch.setattr(one_process, "CHECK_VALUES", {"LARS": (rates, options, wrong)})
    [line] = one_process.optimizers(NONE)
    assert line.state == FAILED and line.values["error"] == pytest.approx(1e-4, rel=0.01)


# --- ranks


FINE = Result(0, 1.0)


def ran(*lines: str, result: Result = FINE) -> FakeRun:
    """A run of ranks that printed these lines."""
    return FakeRun(result, *(Event("output", 0, 0.0, {"stream": "stdout", "text": line}) for line in lines))


HUNG = ran(
    "node:12:34 [0] transport/p2p.cc:140 NCCL WARN Cuda failure 'peer access is not supported'",
    result=Result(124, 60.0, message="Stopped at the time limit of 60 s."),
)
GOOD = ran('result {"size": 4}', "noise")


@pytest.fixture
def started(monkeypatch):
    """started(*runs): the next starts give these; the list of what they are asked for."""
    asked = []

    def make(*runs):
        left = list(runs)

        def start(script, args, ranks, **options):
            asked.append({"args": args, "ranks": ranks, **options})
            return left.pop(0)

        monkeypatch.setattr(all_ranks.launch, "start", start)
        return asked

    return make


@pytest.fixture
def ranks_return(monkeypatch):
    """ranks_return(result, workaround): every run of ranks gives this."""

    def make(result: dict, workaround: str = "") -> None:
        monkeypatch.setattr(all_ranks, "run", lambda *_, **__: result)
        monkeypatch.setattr(all_ranks, "run_with_workarounds", lambda *_, **__: (result, workaround))

    return make


def test_the_result_of_ranks(started):
    asked = started(GOOD)
    assert all_ranks.run("train", FOUR, 60, {"steps": 5}) == {"size": 4}
    assert json.loads(asked[0]["args"][1]) == {"steps": 5}
    assert (asked[0]["ranks"], asked[0]["timeout"], asked[0]["env"]) == (4, 60, {"NCCL_DEBUG": "WARN"})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (HUNG, "train with 4 ranks on 4 GPUs hung over NCCL; .* after 60 s.*peer access is not supported"),
        (ran(result=Result(1, 2.0, 3, "Rank 3 failed with exit code 1.", ("ValueError: x",))), "ValueError: x"),
        (ran("NCCL WARN Duplicate GPU detected", result=Result(1, 2.0, 0, "Rank 0 failed.")), "Duplicate GPU"),
        (
            ran(
                "NCCL WARN x",
                result=Result(1, 2.0, 0, "Rank 0 failed.", ("E CUDA_ERROR_OUT_OF_MEMORY: out of memory",)),
            ),
            "train with 4 ranks on 4 GPUs failed: Rank 0 failed. A GPU has too little free memory",
        ),
        (ran(*['result {"size": 1}'] * 4), "4 ranks call themselves rank 0"),
        (ran(), "0 ranks call themselves"),
    ],
)
def test_ranks_that_fail_are_a_sentence(started, run, words):
    started(run)
    with pytest.raises(CourseError, match=words) as failure:
        all_ranks.run("train", FOUR, 60, {})
    assert isinstance(failure.value, all_ranks.Hung) == (run is HUNG) and str(failure.value).endswith(".")


def test_a_workaround_for_what_hangs_names_the_cause(started):
    asked = started(HUNG, HUNG, GOOD)
    result, workaround = all_ranks.run_with_workarounds("all_reduce", FOUR, 60, {}, {})
    assert result == {"size": 4}
    assert "NCCL hangs, but not with NCCL_SHM_DISABLE=1" in workaround and "--shm-size 1g" in workaround
    assert [set(one["env"]) - {"NCCL_DEBUG"} for one in asked] == [set(), {"NCCL_P2P_DISABLE"}, {"NCCL_SHM_DISABLE"}]


@pytest.mark.parametrize(("host", "runs", "words"), [(FOUR, 4, "with each of NCCL_P2P_DISABLE"), (ONE, 1, "over Gloo")])
def test_what_hangs_whatever_is_done_is_named(started, host, runs, words):
    asked = started(*[HUNG] * 4)
    with pytest.raises(all_ranks.Hung, match=words):
        all_ranks.run_with_workarounds("all_reduce", host, 60, {}, {})
    assert len(asked) == runs


SECONDS = [6 * (1e-5 + 1e-11 * size / 4) for size in all_ranks.SIZES]  # of a ring of four: α = 10 µs, 1/β = 100 GB/s
RING = {"seconds": SECONDS, "right": True, "size": 4}
LOST = {"began": 4, "ended": 3, "steps": 30, "w": 30.0}


@pytest.mark.parametrize(
    ("step", "host", "result", "expected"),
    [
        (all_ranks.all_reduce, FOUR, RING, [PASSED]),
        (all_ranks.all_reduce, FOUR, {**RING, "right": False}, [FAILED]),
        (all_ranks.batch_norm, FOUR, {"across": 1e-6, "own": 0.3}, [PASSED]),
        (all_ranks.batch_norm, FOUR, {"across": 0.3, "own": 0.3}, [FAILED]),
        (all_ranks.pinned, FOUR, {"used": [700.0] * 4}, [PASSED]),
        (all_ranks.pinned, FOUR, {"used": [2100.0, 100.0, 100.0, 100.0]}, [FAILED]),
        (all_ranks.pinned, FOUR, {"used": []}, [UNTESTED]),
        (all_ranks.pinned, ONE, None, [UNTESTED]),
        (all_ranks.elastic, FOUR, LOST, [PASSED]),
        (all_ranks.elastic, FOUR, {**LOST, "ended": 4}, [FAILED]),
        (all_ranks.elastic, FOUR, {**LOST, "w": 28.0}, [FAILED]),
    ],
)
def test_what_ranks_return_is_judged(monkeypatch, ranks_return, step, host, result, expected):
    monkeypatch.setattr(all_ranks, "memory_used", lambda: [100.0] * 4)
    monkeypatch.setattr(all_ranks.launch, "controllers", lambda: ("gloo",))
    ranks_return(result)
    assert [line.state for line in step(host)] == expected


def test_all_reduces_are_fitted(ranks_return):
    ranks_return(RING, "NCCL hung, and …")
    workaround, line = all_ranks.all_reduce(FOUR)
    assert workaround.state == FAILED and "NCCL" in line.title
    assert line.values["alpha s"] == pytest.approx(1e-5)
    assert line.values["beta s/B"] == pytest.approx(1e-11)
    assert line.values["bus bandwidth B/s"] == pytest.approx(1e11, rel=0.05)  # 1/β: that of each link


@pytest.mark.parametrize(
    ("host", "difference", "ranks", "line_states"),
    [
        (FOUR, 0.0, [1, 2, 4], [PASSED, PASSED]),
        (FOUR, 1e-9, [1, 2, 4], [FAILED, FAILED, FAILED, PASSED, PASSED]),
        (ONE, 0.0, [1, 2], [PASSED, PASSED, UNTESTED]),
    ],
)
def test_scaling_of_equal_and_of_drifting_ranks(monkeypatch, host, difference, ranks, line_states):
    def run(name, host, seconds, arguments, ranks):
        asked.append((ranks, arguments["batches"]))
        return {"images/s": [1000.0 * ranks, 800.0 * ranks], "difference": difference, "size": ranks}

    asked = []
    monkeypatch.setattr(all_ranks, "run", run)
    lines = list(all_ranks.scaling(host))
    assert asked == [(count, [128, 128 * max(ranks) // count]) for count in ranks]
    assert [line.state for line in lines] == line_states
    weak, strong = (line for line in lines if line.title.startswith("Scaling, "))
    assert weak.values["efficiency"] == 1.0 and "1: 1,000, 2: 2,000" in weak.text
    assert ("weights are equal" in strong.text) == (difference == 0.0)


def test_a_host_whose_name_does_not_resolve_is_named_before_gloo_dies_of_it(monkeypatch):
    def getaddrinfo(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "gethostname", lambda: "pluto")
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(all_ranks.launch, "controllers", lambda: ("gloo",))
    sentence = "The name of this host, pluto, does not resolve, and Gloo needs it: add the line `127.0.0.1 pluto` to"
    with pytest.raises(CourseError, match=sentence):
        all_ranks.run("train", FOUR, 60, {})
    line = next(all_ranks.controllers(ONE))
    assert (line.state, line.text) == (FAILED, f"Two ranks could not be started under Gloo: {sentence} /etc/hosts.")


def test_controllers(monkeypatch):
    monkeypatch.setattr(all_ranks.launch, "controllers", lambda: ("gloo",))
    monkeypatch.setattr(all_ranks.diagnosis, "disagreement", lambda name, ranks: "")
    assert list(states(all_ranks.controllers(FOUR)).values()) == [PASSED, UNTESTED]
    assert list(states(all_ranks.controllers(ONE)).values()) == [PASSED, UNTESTED, UNTESTED]
    monkeypatch.setattr(all_ranks.diagnosis, "disagreement", lambda name, ranks: "They differ by 1e-9.")
    assert list(states(all_ranks.controllers(FOUR)).values()) == [FAILED, UNTESTED]


# --- grading


def outcome(passed: bool, **changes) -> Outcome:
    verdicts = (Verdict("averaged", "Averages", 20.0 if passed else 0.0, 20.0, "Nobody averages."),)
    made = Outcome(
        passed=passed, score=100.0 if passed else 40.0, max_score=100.0, profile="gpu", ranks=4, data="cifar10",
        seconds=61.0, train_accuracy=0.95, test_accuracy=0.79, verdicts=verdicts, limit=180.0, factor=1.0,
        sandbox="bubblewrap",
    )  # fmt: skip
    return replace(made, **changes)


@pytest.fixture
def grader(monkeypatch):
    """grader(outcome): what the next assessments come to; the text and profile of the scripts."""
    asked = []

    def make(result):
        def assess(script, profile):
            asked.append((script.read_text(), profile))
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(grading.grader, "assess", assess)
        monkeypatch.setattr(grading.data, "locate", lambda name: "cache")
        monkeypatch.setattr(grading.bubblewrap, "cuda_problem", lambda: "")
        return asked

    return make


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (None, PASSED, "train 40,000 images/s: time limits are multiplied by 1.00. The first step took 16.4 s."),
        (CourseError("This host is too busy to be calibrated.", code=2), UNTESTED, "too busy"),
        (CourseError("Rank 1 failed with exit code 1."), FAILED, "Rank 1 failed"),
    ],
)
def test_the_calibration(monkeypatch, tmp_path, error, state, words):
    def measure(ranks, env):
        if error:
            raise error
        return 40_000.0

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grading.slots, "count", lambda: 4)
    monkeypatch.setattr(grading.calibration, "measure", measure)
    monkeypatch.setattr(grading.calibration, "first_step_seconds", lambda ranks: 16.42)
    if state == FAILED:  # the runner makes a line of it
        with pytest.raises(CourseError, match=words):
            list(grading.calibrate(FOUR))
    else:
        [line] = grading.calibrate(FOUR)
        assert line.state == state and words in line.text


def test_the_reference_passes_in_the_profile_of_the_gpus(grader):
    asked = grader(outcome(True))
    assert states(grading.reference(FOUR)) == {"The reference": PASSED, "Sandbox": PASSED}
    text, profile = asked[0]
    assert profile == "gpu" and f"\nEPOCHS = {grading.EPOCHS_OF_GPU}\n" in text
    list(grading.reference(NONE))
    assert asked[1] == (grading.REFERENCE.read_text(), "short")


DEVICE = Verdict("device", "One device", 0.0, 5.0, "Every rank sees all GPUs.")


@pytest.mark.parametrize(
    ("step", "host", "result", "state", "words"),
    [
        (grading.reference, FOUR, outcome(False), FAILED, "180 s; lost: Averages: Nobody averages."),
        (grading.reference, FOUR, outcome(True, score=95.0, verdicts=(DEVICE,)), FAILED, "lost: One device: Every"),
        (grading.reference, FOUR, CannotGrade("Only 3 MB are free."), UNTESTED, "Only 3 MB are free."),
        (grading.starter, FOUR, outcome(False), PASSED, "It does not pass, as expected"),
        (grading.starter, FOUR, outcome(True), FAILED, "passed"),
        (grading.starter, ONE, outcome(True), UNTESTED, "One GPU means one rank"),
    ],
)
def test_an_assessment_is_judged(grader, step, host, result, state, words):
    grader(result)
    line = next(step(host))
    assert line.state == state and words in line.text


def test_a_missing_sandbox_script_or_data_set_is_a_line(grader, monkeypatch, tmp_path):
    grader(outcome(True, sandbox="none", weaknesses=("No sandbox: bwrap is missing.",)))
    monkeypatch.setattr(grading.data, "locate", lambda name: "stand-in")
    _, sandbox, data = grading.reference(FOUR)
    assert sandbox.state == FAILED and "bwrap is missing" in sandbox.text
    assert (data.title, data.state) == ("The reference on CIFAR-10", UNTESTED)
    monkeypatch.setattr(grading, "REFERENCE", tmp_path / "none.py")
    [line] = grading.reference(FOUR)
    assert line.state == UNTESTED and "the instructor's" in line.text


def test_without_cuda_in_the_sandbox_nothing_is_graded(grader, monkeypatch):
    asked = grader(outcome(True))
    monkeypatch.setattr(grading.bubblewrap, "cuda_problem", lambda: "CUDA does not start in the sandbox (error 304).")
    assert [(line.title, line.state, line.text) for line in grading.reference(FOUR)] == [
        ("Sandbox", FAILED, "CUDA does not start in the sandbox (error 304).")
    ]
    assert asked == []
