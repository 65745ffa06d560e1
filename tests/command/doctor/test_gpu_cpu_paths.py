"""The steps of `course doctor --gpu` for real, on the processor: what a rehearsal runs."""

from __future__ import annotations

import time

import psutil
import pytest

from course_lib.command.doctor.gpu import all_ranks, grading, machine, one_rank, peaks, ranked
from course_lib.command.doctor.gpu.host import Host
from course_lib.command.doctor.gpu.lines import FAILED, PASSED, UNTESTED
from course_lib.command.doctor.gpu.steps import STEPS

HOST = Host()
pytestmark = [pytest.mark.slow]


def found(lines) -> dict:
    """The lines by title; none may have failed."""
    lines = list(lines)
    assert [line.text for line in lines if line.state == FAILED] == []
    return {line.title: line for line in lines}


def test_the_machine():
    versions = found(machine.stack(HOST))["Versions"].values
    assert versions["TensorFlow"].startswith("2.15.") and versions["Horovod"] == "0.28.1"
    lines = found(machine.first_use(HOST))
    assert 0 < lines["First training step"].values["first process s"] < machine.FIRST_USE_S
    assert lines["Kernels"].state == UNTESTED


@pytest.mark.parametrize(
    ("tflops", "name", "state", "said"),
    [
        (52, "NVIDIA H100 80GB HBM3", PASSED, "78% of the 67 published. Not on the tensor cores"),
        (400, "NVIDIA H100 80GB HBM3", PASSED, "81% of the 494 published. On the tensor cores, in TF32."),
        (10, "NVIDIA H100 80GB HBM3", FAILED, "15% of the 67 published: the GPU is throttled or shared"),
        (7, "Tesla T4", PASSED, "86% of the 8.1 published."),
        (7, "Some GPU", PASSED, "the course knows no published peak for it."),
    ],
)
def test_products_in_float32_with_and_without_tensor_cores(tflops, name, state, said):
    line = one_rank.float32_products(tflops * 1e12, peaks.published(name), Host(visible=1))
    assert line.state == state and said in line.text
    assert line.text.endswith(".") and ("tensor cores" in line.text) == ("H100" in name)


def test_one_rank():
    assert set(found(one_rank.optimizers(HOST))) == {"LARS", "LARC", "LAMB", "NovoGrad"}
    assert found(one_rank.loops(HOST))["fit"].values["loss before"] > 1
    assert set(found(one_rank.mixed_precision(HOST))) == {"Mixed precision", "Loss scale"}
    assert one_rank.tf.keras.mixed_precision.global_policy().name == "float32"
    speed = found(one_rank.speed(HOST))
    assert speed["Training, batch 128"].values["images/s"] > 100
    assert [line.state for line in one_rank.memory(HOST)] == [UNTESTED]


def test_check_values_that_are_missed_are_told(monkeypatch):
    rates, options, expected = one_rank.CHECKS["LARS"]
    wrong = ((expected[0][0] + 1e-4, expected[0][1]), *expected[1:])
    monkeypatch.setattr(one_rank, "CHECKS", {"LARS": (rates, options, wrong)})
    [line] = one_rank.optimizers(HOST)
    assert line.state == FAILED and line.values["error"] == pytest.approx(1e-4, rel=0.01)


@pytest.mark.ranks
def test_what_goes_between_ranks():
    lines = found(all_ranks.all_reduce(HOST))
    assert lines["All-reduce over Gloo"].values["alpha s"] > 0
    assert lines["All-reduce over NCCL"].state == UNTESTED
    assert found(all_ranks.batch_norm(HOST))["Batch norm across ranks"].values["a rank's own"] > 1e-3
    assert "GLOO_ALLREDUCE" in found(all_ranks.timeline(HOST))["Timeline"].text


@pytest.mark.ranks
def test_scaling_of_two_ranks(monkeypatch):
    monkeypatch.setattr(all_ranks, "STEPS", {True: 40, False: 2})
    lines = found(all_ranks.scaling(HOST))
    assert [line.state for line in lines.values()] == [PASSED, PASSED, UNTESTED]


@pytest.mark.ranks
def test_a_rank_is_lost():
    assert found(all_ranks.elastic(HOST))["Losing a rank"].values == {"ranks at the end": 1, "updates": 30.0}


@pytest.mark.ranks
def test_ranks_that_hang_are_ended_and_named(tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text("import time; print('NCCL WARN waiting for the other', flush=True); time.sleep(9876)")
    began = time.monotonic()
    with pytest.raises(ranked.Hung, match=r"hung over Gloo .* NCCL said: NCCL WARN waiting for the other"):
        ranked.run("all_reduce", HOST, 8, script=script)
    assert time.monotonic() - began < 60
    left = [one for one in psutil.process_iter(["cmdline"]) if str(script) in (one.info["cmdline"] or ())]
    assert left == []


def test_the_slots_of_cores(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = found(grading.slots(HOST))
    assert [line.state for line in lines.values()] == [PASSED, UNTESTED]


def test_every_step_that_says_so_has_a_path_on_the_cpu():
    assert {step.name for step in STEPS if not step.on_cpu} == {"memory", "pinned"}
