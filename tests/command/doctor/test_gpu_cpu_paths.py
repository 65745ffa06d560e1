"""The steps of `course doctor --gpu` for real, on the processor: what a rehearsal runs."""

from __future__ import annotations

import psutil
import pytest

from course_lib.command.doctor.gpu import all_ranks, machine, one_process
from course_lib.command.doctor.gpu.devices import Host
from course_lib.command.doctor.gpu.report import FAILED, PASSED, UNTESTED
from course_lib.command.doctor.gpu.runner import STEPS
from course_lib.optimizers.check_values import CHECK_VALUES

HOST = Host()
pytestmark = [pytest.mark.slow]


def by_title(lines) -> dict:
    """The lines by title; none may have failed."""
    lines = list(lines)
    assert [line.text for line in lines if line.state == FAILED] == []
    return {line.title: line for line in lines}


def test_the_machine():
    versions = by_title(machine.stack(HOST))["Versions"].values
    assert versions["TensorFlow"].startswith("2.15.") and versions["Horovod"] == "0.28.1"
    lines = by_title(machine.first_use(HOST))
    assert lines["First training step"].values["first process s"] > 0
    assert lines["Kernels"].state == UNTESTED


def test_one_process():
    assert set(by_title(one_process.optimizers(HOST))) == set(CHECK_VALUES)
    assert by_title(one_process.loops(HOST))["fit"].values["loss before"] > 1
    assert set(by_title(one_process.mixed_precision(HOST))) == {"Mixed precision", "Loss scale"}
    assert one_process.tf.keras.mixed_precision.global_policy().name == "float32"
    speed = by_title(one_process.speed(HOST))
    assert speed["Training, batch 128"].values["images/s"] > 100
    assert [line.state for line in one_process.memory(HOST)] == [UNTESTED]


@pytest.mark.ranks
def test_what_goes_between_ranks():
    lines = by_title(all_ranks.all_reduce(HOST))
    assert lines["All-reduce over Gloo"].values["alpha s"] > 0
    assert lines["All-reduce over NCCL"].state == UNTESTED
    assert by_title(all_ranks.batch_norm(HOST))["Batch norm across ranks"].values["a rank's own"] > 1e-3
    assert "GLOO_ALLREDUCE" in by_title(all_ranks.timeline(HOST))["Timeline"].text


@pytest.mark.ranks
def test_scaling_of_two_ranks(monkeypatch):
    monkeypatch.setattr(all_ranks, "STEPS", {True: 40, False: 2})
    lines = by_title(all_ranks.scaling(HOST))
    assert [line.state for line in lines.values()] == [PASSED, PASSED, UNTESTED]


@pytest.mark.ranks
def test_a_rank_is_lost():
    assert by_title(all_ranks.elastic(HOST))["Losing a rank"].values == {"ranks at the end": 1, "updates": 30.0}


@pytest.mark.ranks
def test_ranks_that_hang_are_ended_and_named(tmp_path, monkeypatch):
    script = tmp_path / "hangs.py"
    script.write_text("import time; print('NCCL WARN waiting for the other', flush=True); time.sleep(9876)")
    monkeypatch.setattr(all_ranks, "WORK", script)
    with pytest.raises(all_ranks.Hung, match=r"hung over Gloo; .* NCCL printed: NCCL WARN waiting for the other"):
        all_ranks.run("all_reduce", HOST, 20, {})
    left = [one for one in psutil.process_iter(["cmdline"]) if str(script) in (one.info["cmdline"] or ())]
    assert left == []


def test_every_step_that_says_so_has_a_path_on_the_cpu():
    assert {step.name for step in STEPS if not step.on_cpu} == {"memory", "pinned"}
