"""What the steps of `course doctor --gpu` conclude from what drivers, builds, ranks and the grader tell them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pandas as pd
import pytest

from course_grader.script import contract
from course_grader.script.grader import CannotGrade, Outcome
from course_lib.command.doctor.gpu import all_ranks, first_use, grading, machine, peaks, ranked
from course_lib.command.doctor.gpu.host import Gpu, Host
from course_lib.command.doctor.gpu.lines import FAILED, PASSED, UNTESTED
from course_lib.command.doctor.gpu.steps import STEPS
from course_lib.notebook.judging import Verdict
from course_lib.ranks.run import Event, Result
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

H100 = Gpu("NVIDIA H100 80GB HBM3", 81559.0, "9.0")
ONE, FOUR, NONE = Host((H100,), 1, "550", "12.4"), Host((H100,) * 4, 4, "550", "12.4"), Host()
BUILT = {"cuda": "12.2", "cudnn": "8", "targets": ["sm_60", "sm_70", "sm_75", "compute_80"], "nccl": "2.18.5"}
STACK = {
    "tensorflow": "2.15.1",
    "keras": "2.15.0",
    "horovod": "0.28.1",
    "controllers": ["gloo", "mpi"],
    "nccl": True,
    "gpus": ["NVIDIA H100"] * 4,
    "faults": {},
}


def states(lines) -> dict[str, str]:
    return {line.title: line.state for line in lines}


# machine


@pytest.mark.parametrize(
    ("capability", "kind", "target"),
    [
        ("7.0", "cubin", "sm_70"),
        ("7.5", "cubin", "sm_75"),
        ("6.1", "cubin", "sm_60"),
        ("8.6", "cubin", "compute_80"),  # with a cubin for 8.0, which 8.6 runs
        ("9.0", "ptx", "compute_80"),
        ("12.0", "ptx", "compute_80"),
        ("5.2", "none", ""),
    ],
)
def test_which_kernels_a_gpu_gets(capability, kind, target):
    assert peaks.kernels(capability, BUILT["targets"]) == peaks.Kernels(kind, target)


def test_two_digits_of_a_capability():
    assert peaks.kernels("10.3", ["sm_90", "compute_100"]) == peaks.Kernels("cubin", "compute_100")
    assert peaks.kernels("10.0", ["sm_90"]) == peaks.Kernels("none")
    assert peaks.at_least("12.10", "12.8") and not peaks.at_least("11.8", "12.0")


@pytest.mark.parametrize(
    ("name", "float16"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("Tesla T4", 65e12),
        ("NVIDIA B200", 2250e12),
    ],
)
def test_published_peaks_by_the_drivers_name(name, float16):
    assert peaks.published(name).float16 == float16


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3060", "NVIDIA T400", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GB10"])
def test_no_peak_is_made_up(name):
    assert peaks.published(name) is None


def test_memory_bandwidth_tells_cards_apart():
    assert peaks.published("NVIDIA A100-SXM4-40GB").bandwidth == 1555e9
    assert peaks.published("NVIDIA A100-SXM4-80GB").bandwidth == 2039e9
    assert peaks.published("NVIDIA A100 80GB PCIe").bandwidth == 1935e9


@pytest.mark.parametrize(
    ("host", "built", "words"),
    [
        (FOUR, {}, ["built without CUDA"]),
        (replace(FOUR, cuda="11.4", driver="470"), BUILT, ["CUDA 11.4 at most", "update the driver", "would compile"]),
        (replace(FOUR, cuda="12.0"), BUILT, ["would compile them", "CUDA 12.0 cannot do with code of CUDA 12.2"]),
        (Host((replace(H100, capability="5.2"),), 1, "550", "12.4"), BUILT, ["no kernels for compute capability 5.2"]),
        (Host((replace(H100, capability="10.0"),), 1, "570", "12.8"), {**BUILT, "targets": ["sm_90"]}, ["25.02"]),
    ],
)
def test_what_does_not_fit_is_told_with_its_remedy(host, built, words):
    told = " ".join(machine.misfits(host, built))
    for word in words:
        assert word in told
    assert re.search("update the driver|use an image|run `./course setup`", told)


def test_what_fits_is_no_problem():
    assert machine.misfits(FOUR, BUILT) == []
    assert machine.misfits(replace(FOUR, cuda=""), BUILT) == []
    old = Host((Gpu("Tesla T4", 15109.0),), 1, "450", "12.2")  # a driver that does not know the capability
    assert machine.misfits(old, BUILT) == []


def test_the_stack_step(monkeypatch):
    monkeypatch.setattr(machine.doctor, "ask_stack", lambda: dict(STACK))
    monkeypatch.setattr(machine, "_asked", lambda what: dict(BUILT))
    lines = list(machine.stack(FOUR))
    assert states(lines) == {"Versions": PASSED, "What Horovod was built with": PASSED}
    assert "CUDA 12.2" in lines[0].text and lines[0].values["NCCL"] == "2.18.5"
    assert lines[1].text == "Gloo, MPI, NCCL."
    monkeypatch.setattr(machine.doctor, "ask_stack", lambda: {**STACK, "nccl": False, "gpus": ["H100"] * 3})
    told = " ".join(line.text for line in machine.stack(FOUR) if line.state == FAILED)
    assert "has 4 NVIDIA GPUs, but TensorFlow sees 3" in told and "without NCCL" in told


def test_a_missing_tensorflow_is_one_failure(monkeypatch):
    missing = {
        **STACK,
        "tensorflow": None,
        "keras": None,
        "horovod": None,
        "controllers": [],
        "nccl": False,
        "gpus": [],
    }
    missing["faults"] = {"TensorFlow": "it is not installed in this environment"}
    monkeypatch.setattr(machine.doctor, "ask_stack", lambda: missing)
    [line] = machine.stack(NONE)
    assert line.state == FAILED and "TensorFlow cannot be used" in line.text


def test_the_stack_step_names_a_tensorflow_for_the_cpu(monkeypatch):
    monkeypatch.setattr(machine.doctor, "ask_stack", lambda: dict(STACK))
    monkeypatch.setattr(machine, "_asked", lambda what: {})  # of such a build there is nothing to say
    told = " ".join(line.text for line in machine.stack(FOUR) if line.state == FAILED)
    assert "built without CUDA" in told


def test_the_stack_step_names_a_horovod_that_does_not_load(monkeypatch):
    broken = {**STACK, "horovod": None, "faults": {"Horovod": "it was built for TensorFlow 2.11, not for 2.15"}}
    monkeypatch.setattr(machine.doctor, "ask_stack", lambda: broken)  # and asking for the build would fail as well
    [line] = machine.stack(FOUR)
    assert line.state == FAILED and "built for TensorFlow 2.11" in line.text


def test_the_driver_step(monkeypatch, tmp_path):
    first, second = machine.driver(FOUR)
    assert first.state == PASSED and "4 × NVIDIA H100 80GB HBM3" in first.text
    assert first.values["compute capability"] == "9.0"
    assert second.title == "Shared memory"
    assert next(machine.driver(NONE)).state == UNTESTED
    assert next(machine.driver(Host(problem="It hangs."))).state == FAILED
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path / "shm")
    assert [line.state for line in machine.driver(FOUR)] == [PASSED, FAILED]
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: type("Use", (), {"total": 64 * 2**20}))
    *_, small = machine.driver(FOUR)
    assert small.state == FAILED and "has 64 MB" in small.text and "--shm-size 1g" in small.text


@pytest.mark.parametrize(
    ("capability", "compiled", "state", "word"),
    [("7.5", 0, PASSED, "sm_75"), ("9.0", 9, PASSED, "saves 30.0 s"), ("9.0", 0, FAILED, "ComputeCache")],
)
def test_the_first_use(monkeypatch, capability, compiled, state, word):
    answers = iter([{**BUILT, "seconds": 35.0, "cuDNN": "8.9.6", "device": "/device:GPU:0"}, {**BUILT, "seconds": 5.0}])

    def asked(what, CUDA_CACHE_PATH):
        with open(f"{CUDA_CACHE_PATH}/index", "ab") as file:
            file.write(b"x" * (compiled // 9))
        return next(answers)

    monkeypatch.setattr(machine, "_asked", asked)
    lines = list(machine.first_use(Host((replace(H100, capability=capability),), 1, "550", "12.4")))
    assert "35.0 s, in a second process 5.0 s" in lines[0].text
    assert (lines[1].state, lines[1].text) == (PASSED, "On the GPU, with cuDNN 8.9.6.")
    assert (lines[2].state, word in lines[2].text) == (state, True)


def test_a_first_use_on_the_processor_is_told(monkeypatch):
    monkeypatch.setattr(machine, "_asked", lambda what, **env: {**BUILT, "seconds": 1.0, "device": "/device:CPU:0"})
    assert states(machine.first_use(ONE))["Where it ran"] == FAILED


def test_a_first_use_that_hangs_or_crashes_is_a_sentence(monkeypatch, tmp_path):
    program = tmp_path / "use.py"
    monkeypatch.setattr(machine, "FIRST_USE", program)
    program.write_text("import sys; print('CUDA_ERROR_NO_BINARY_FOR_GPU', file=sys.stderr); sys.exit(7)")
    with pytest.raises(CourseError, match=r"exit code 7 \(CUDA_ERROR_NO_BINARY_FOR_GPU\)"):
        list(machine.first_use(ONE))
    program.write_text("import time; time.sleep(600)")
    monkeypatch.setattr(machine, "FIRST_USE_S", 0.5)
    with pytest.raises(CourseError, match=r"not done within 0\.5 s .* use an image with kernels"):
        list(machine.first_use(ONE))


@pytest.mark.parametrize(("code", "text"), [(0, ""), (2708, "2.7.8"), (21805, "2.18.5"), (22403, "2.24.3")])
def test_versions_of_nccl(code, text):
    assert first_use.dotted(code) == text


# ranks


FINE = Result(0, 1.0)


class FakeRun:
    """What `launch.start` gives: these lines of output, this end."""

    def __init__(self, lines=(), result=FINE):
        self._lines, self._result = lines, result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        return (Event("output", 0, 0.0, {"stream": "stdout", "text": line}) for line in self._lines)

    def wait(self):
        return self._result


HUNG = FakeRun(
    ["node:12:34 [0] transport/p2p.cc:140 NCCL WARN Cuda failure 'peer access is not supported'"],
    Result(124, 60.0, message="Stopped at the time limit of 60 s."),
)
GOOD = FakeRun(['result {"size": 4}', "noise"])


@pytest.fixture
def started(monkeypatch):
    """started(*runs): these come of the next starts; the list of the environments that they were given."""
    asked = []

    def make(*runs):
        left = list(runs)

        def start(script, args, ranks, **options):
            asked.append({"args": args, "ranks": ranks, **options})
            return left.pop(0)

        monkeypatch.setattr(ranked.launch, "start", start)
        return asked

    return make


def test_the_result_of_ranks(started):
    asked = started(GOOD)
    assert ranked.run("train", FOUR, 60, steps=5) == {"size": 4}
    assert json.loads(asked[0]["args"][1]) == {"steps": 5}
    assert (asked[0]["ranks"], asked[0]["timeout"], asked[0]["env"]) == (4, 60, {"NCCL_DEBUG": "WARN"})


def test_a_hung_nccl_is_named_with_its_last_words(started):
    started(HUNG)
    with pytest.raises(ranked.Hung) as hung:
        ranked.run("all_reduce", FOUR, 60)
    for words in ("all-reduce with 4 ranks on 4 GPUs hung over NCCL", "after 60 s", "peer access is not supported"):
        assert words in str(hung.value)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (FakeRun((), Result(1, 2.0, 3, "Rank 3 failed with exit code 1.", ("ValueError: x",))), "ValueError: x"),
        (FakeRun(("NCCL WARN Duplicate GPU detected",), Result(1, 2.0, 0, "Rank 0 failed.")), "Duplicate GPU"),
        (FakeRun(('result {"size": 1}',) * 4), "4 of the ranks take themselves for rank 0"),
        (FakeRun(), "0 of the ranks take themselves"),
    ],
)
def test_ranks_that_fail_are_a_sentence(started, run, words):
    started(run)
    with pytest.raises(CourseError, match=words) as failure:
        ranked.run("train", FOUR, 60)
    assert not isinstance(failure.value, ranked.Hung) and str(failure.value).endswith(".")


def test_a_detour_around_what_hangs_names_the_cause(started):
    asked = started(HUNG, HUNG, GOOD)
    found, detour = ranked.with_detours("all_reduce", FOUR, 60, {})
    assert found == {"size": 4}
    assert "with NCCL_SHM_DISABLE=1 it does not" in detour and "--shm-size 1g" in detour
    assert [set(one["env"]) - {"NCCL_DEBUG"} for one in asked] == [set(), {"NCCL_P2P_DISABLE"}, {"NCCL_SHM_DISABLE"}]


def test_what_hangs_whatever_is_done_says_so(started):
    started(HUNG, HUNG, HUNG, HUNG)
    with pytest.raises(ranked.Hung, match="nor did it end with any of NCCL_P2P_DISABLE, NCCL_SHM_DISABLE"):
        ranked.with_detours("all_reduce", FOUR, 60, {})
    asked = started(HUNG)
    before = len(asked)
    with pytest.raises(ranked.Hung):
        ranked.with_detours("all_reduce", ONE, 60, {})  # over Gloo there is nothing to do without
    assert len(asked) == before + 1


SIZES = all_ranks.SIZES


def reduces(alpha: float, beta: float, ranks: int = 4, right: bool = True) -> dict:
    """Seconds of a ring's all-reduces."""
    seconds = [2 * (ranks - 1) * (alpha + beta * size / ranks) for size in SIZES]
    return {"seconds": seconds, "right": right, "size": ranks}


def test_all_reduces_are_fitted(monkeypatch):
    monkeypatch.setattr(ranked, "with_detours", lambda *_, **__: (reduces(1e-5, 1e-11), ""))
    [line] = all_ranks.all_reduce(FOUR)
    assert line.state == PASSED and "NCCL" in line.title
    assert line.values["alpha s"] == pytest.approx(1e-5)
    assert line.values["beta s/B"] == pytest.approx(1e-11)
    assert line.values["bus bandwidth B/s"] == pytest.approx(1e11, rel=0.05)  # 1/β: that of each link
    monkeypatch.setattr(ranked, "with_detours", lambda *_, **__: (reduces(1e-5, 1e-11, right=False), ""))
    assert next(all_ranks.all_reduce(FOUR)).state == FAILED
    monkeypatch.setattr(ranked, "with_detours", lambda *_, **__: (reduces(1e-5, 1e-11), "NCCL hung, and …"))
    assert [line.state for line in all_ranks.all_reduce(FOUR)] == [FAILED, PASSED]


def test_all_reduces_that_hang_are_a_failure(monkeypatch):
    def hang(*_, **__):
        raise ranked.Hung("all-reduce with 4 ranks on 4 GPUs hung over NCCL.")

    monkeypatch.setattr(ranked, "with_detours", hang)
    [line] = all_ranks.all_reduce(FOUR)
    assert line.state == FAILED and "hung over NCCL" in line.text


@pytest.mark.parametrize(("used", "state"), [([700] * 4, PASSED), ([2100, 100, 100, 100], FAILED), ([], UNTESTED)])
def test_each_rank_has_a_gpu(monkeypatch, used, state):
    monkeypatch.setattr(all_ranks, "memory_used", lambda: [100.0] * len(used))
    monkeypatch.setattr(ranked, "run", lambda *_, **__: {"used": used})
    assert [line.state for line in all_ranks.pinned(FOUR)] == [state]
    [line] = all_ranks.pinned(ONE)
    assert line.state == UNTESTED and "NCCL refuses two ranks on one" in line.text


def test_scaling_of_equal_and_of_drifting_ranks(monkeypatch):
    def run(name, host, seconds, ranks, steps, batches):
        asked.append((ranks, batches))
        return {"images/s": [1000.0 * ranks, 800.0 * ranks], "difference": drift, "size": ranks}

    asked, drift = [], 0.0
    monkeypatch.setattr(ranked, "run", run)
    lines = list(all_ranks.scaling(FOUR))
    assert asked == [(1, [128, 512]), (2, [128, 256]), (4, [128, 128])]
    assert [line.state for line in lines] == [PASSED, PASSED]
    assert lines[0].values["efficiency"] == 1.0 and "1: 1,000, 2: 2,000, 4: 4,000" in lines[0].text
    assert all("Equal weights" in line.text for line in lines)
    drift = 1e-9
    lines = list(all_ranks.scaling(FOUR))
    assert [line.state for line in lines].count(FAILED) == 3
    assert not any("Equal weights" in line.text for line in lines)
    asked.clear()
    assert list(all_ranks.scaling(ONE))[-1].state == UNTESTED
    assert [ranks for ranks, _ in asked] == [1, 2]


def test_controllers(monkeypatch):
    monkeypatch.setattr(all_ranks.launch, "controllers", lambda: ("gloo",))
    monkeypatch.setattr(all_ranks.doctor, "disagreement", lambda name, ranks: "")
    assert list(states(all_ranks.controllers(FOUR)).values()) == [PASSED, UNTESTED]
    monkeypatch.setattr(all_ranks.doctor, "disagreement", lambda name, ranks: "They differ by 1e-9.")
    assert list(states(all_ranks.controllers(FOUR)).values()) == [FAILED, UNTESTED]
    assert UNTESTED in states(all_ranks.controllers(ONE)).values()


def test_batch_norm_and_elastic_runs_that_are_wrong(monkeypatch):
    monkeypatch.setattr(ranked, "run", lambda *_, **__: {"across": 0.3, "own": 0.3})
    assert next(all_ranks.batch_norm(FOUR)).state == FAILED
    monkeypatch.setattr(all_ranks.launch, "controllers", lambda: ("gloo",))
    for found, state in (
        ({"began": 4, "ended": 3, "steps": 30, "w": 30.0}, PASSED),
        ({"began": 4, "ended": 4, "steps": 30, "w": 30.0}, FAILED),
        ({"began": 4, "ended": 3, "steps": 30, "w": 28.0}, FAILED),
    ):
        monkeypatch.setattr(ranked, "run", lambda *_, found=found, **__: found)
        assert next(all_ranks.elastic(FOUR)).state == state
    monkeypatch.setattr(all_ranks.launch, "controllers", lambda: ("mpi",))
    assert next(all_ranks.elastic(FOUR)).state == UNTESTED


# grading


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
    ("error", "state"),
    [(None, PASSED), (CourseError("This host is too busy to be calibrated.", code=2), UNTESTED)],
)
def test_the_calibration(monkeypatch, tmp_path, error, state):
    def measure(ranks, env):
        if error:
            raise error
        return 40_000.0

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grading.gpu_slots, "count", lambda: 4)
    monkeypatch.setattr(grading.calibration, "measure", measure)
    [line] = grading.calibrate(FOUR)
    assert line.state == state
    assert ("ranks train 40,000 images/s: time limits are multiplied by 1.00" in line.text) == (error is None)


def test_a_calibration_that_fails_is_a_failure(monkeypatch, tmp_path):
    def measure(ranks, env):
        raise CourseError("Rank 1 failed with exit code 1.")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grading.calibration, "measure", measure)
    with pytest.raises(CourseError, match="Rank 1 failed"):
        list(grading.calibrate(NONE))


def test_the_reference_passes_in_the_profile_of_the_gpus(grader):
    asked = grader(outcome(True))
    assert states(grading.reference(FOUR)) == {"The reference": PASSED, "Sandbox": PASSED}
    text, profile = asked[0]
    assert profile == "gpu" and f"\nEPOCHS = {grading.EPOCHS_OF_GPU}\n" in text
    list(grading.reference(NONE))
    assert asked[1] == (grading.REFERENCE.read_text(), "short")


def test_a_reference_that_loses_points_says_which(grader):
    grader(outcome(False, sandbox="none", weaknesses=("No sandbox: bwrap is missing.",)))
    first, second = grading.reference(FOUR)
    assert first.state == FAILED and "180 s; lost: Averages: Nobody averages." in first.text
    assert second.state == FAILED and "bwrap is missing" in second.text
    device = Verdict("device", "One device", 0.0, 5.0, "Every rank sees all GPUs.")
    grader(outcome(True, score=95.0, verdicts=(device,)))  # it passes all the same
    assert next(grading.reference(FOUR)).text.endswith("180 s; lost: One device: Every rank sees all GPUs.")


def test_without_cuda_in_the_sandbox_nothing_is_graded(grader, monkeypatch):
    asked = grader(outcome(True))
    monkeypatch.setattr(grading.bubblewrap, "cuda_problem", lambda: "CUDA does not start in the sandbox (error 304).")
    assert [(line.title, line.state, line.text) for line in grading.reference(FOUR)] == [
        ("Sandbox", FAILED, "CUDA does not start in the sandbox (error 304).")
    ]
    assert asked == []


def test_the_starter_must_not_pass(grader):
    grader(outcome(False))
    assert states(grading.starter(FOUR)) == {"The serial starter": PASSED}
    grader(outcome(True))
    assert states(grading.starter(FOUR)) == {"The serial starter": FAILED}
    assert states(grading.starter(ONE)) == {"The serial starter": UNTESTED}


def test_what_can_not_be_graded_is_not_tested(grader, monkeypatch, tmp_path):
    grader(CannotGrade("Only 3 MB are free."))
    [line] = grading.reference(FOUR)
    assert line.state == UNTESTED and "Only 3 MB are free." in line.text
    monkeypatch.setattr(grading, "REFERENCE", tmp_path / "none.py")
    [line] = grading.reference(FOUR)
    assert line.state == UNTESTED and "the instructor's" in line.text


def test_the_stand_in_is_told(grader, monkeypatch):
    grader(outcome(True))
    monkeypatch.setattr(grading.data, "locate", lambda name: "stand-in")
    assert states(grading.reference(FOUR))["The reference on CIFAR-10"] == UNTESTED


def test_a_second_assessment_waits_for_the_gpus_of_the_first(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(grading.gpu_slots, "count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    [line] = grading.slots(FOUR)
    assert line.state == PASSED and "waits until the first has ended" in line.text
    with grading.gpu_slots.take(4, gpus=4):
        monkeypatch.setattr(grading, "SLOT_S", 0.5)
        [line] = grading.slots(FOUR)
    assert line.state == UNTESTED and "Another assessment holds" in line.text


# docs/hardware


HARDWARE = ROOT / "docs" / "hardware"
GUIDE = (HARDWARE / "README.md").read_text()


def test_the_profiles_derivation_is_right():
    gpu = contract.read().profiles["gpu"]
    t4, images, activations = peaks.published("Tesla T4"), 24 * 45_000, 60_042
    flops, moved = images * 3 * 2 * 4.0e6, images * activations * 4 * 6
    one, eight = (24 * (45_000 // (128 * ranks)) for ranks in (1, 8))
    for text in (
        f"{flops / 1e12:.1f} TFLOP | {t4.float32 / 1e12} TFLOP/s: {flops / t4.float32:.1f} s",
        f"{moved / 1e12:.2f} TB | {t4.bandwidth / 1e9:.0f} GB/s: {moved / t4.bandwidth:.1f} s",
        f"{one:,} steps of 230 operations",
        f"| {one * 230 * 20e-6:.0f} s |",
        f"{eight:,} steps, each with 3 ms more",
        f"| {eight * (230 * 20e-6 + 3e-3):.0f} s |",
        f"{round(50_000 * 24 / 26, -3):,.0f} images/s",
        f"The limit is {gpu.seconds} s",
        f"Asked for are {gpu.train_accuracy:.2f} and {gpu.test_accuracy:.2f}",
        f"with {grading.EPOCHS_OF_GPU} epochs",
    ):
        assert text in GUIDE, text
    assert gpu.seconds >= 2 * 70


def test_the_profiles_targets_stand_below_what_was_reached():
    gpu, comment = contract.read().profiles["gpu"], contract.CONTRACT.read_text()
    [row] = pd.read_csv(ROOT / "benchmarks/results/gpu_targets.csv", comment="#").to_dict("records")
    assert (row["ranks"], row["epochs"]) == (8, grading.EPOCHS_OF_GPU)
    assert row["train accuracy"] > gpu.train_accuracy + 0.03 and row["test accuracy"] > gpu.test_accuracy + 0.03
    for value in (row["train accuracy"], row["test accuracy"]):
        assert f"{value:.3f}" in GUIDE and f"{value:.3f}" in comment


@pytest.mark.parametrize("report", sorted(HARDWARE.glob("[!R]*.md")), ids=lambda path: path.stem)
def test_each_number_of_a_report_was_printed(report):
    said = report.read_text()
    printed = report.with_suffix(".txt").read_text()
    assert f"]({report.name})" in GUIDE and f"]({report.stem}.txt)" in said
    proven, _, refuted = said.partition("## What it proves")[2].partition("## What it refuted")
    told = re.findall(r"(?<![\w.])(\d[\d,]*\.\d+|\.\d+|\d+e-\d+|[\d,]*\d,\d{3}|\d+%)", proven + refuted)
    assert len(told) > 20
    for number in told:
        exact = re.search(rf"(?<![\d,.]){re.escape(number.lstrip('.'))}|0{re.escape(number)}", printed)
        rounded = "e-" in number and any(
            float(f"{float(one):.2e}") == float(number) for one in re.findall(r"\d\.\d+e-\d+", printed)
        )
        assert exact or rounded, number


def test_the_guide_says_what_is_true_of_the_command():
    [table] = re.findall(r"^\| step \| what passes \|\n\|---\|---\|\n((?:\|.+\n)+)", GUIDE, re.MULTILINE)
    rows = [row.split(" | ")[0].strip("| ") for row in table.splitlines()]
    told = [name for row in rows for name in (row.split(", ") if row.startswith(("slots", "reference")) else [row])]
    assert len(told) == len(STEPS)
