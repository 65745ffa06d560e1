"""How fast a host trains is measured while it has nothing else to do, and kept."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from course_grader.script import calibration
from course_lib.system.errors import CourseError


@pytest.fixture(autouse=True)
def memory(monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "_cache_file", lambda: tmp_path / "calibration.json")


@pytest.fixture
def measured(monkeypatch):
    """measured([(images per second, seconds, of which a rank computed, of which its core did, first step)], cores)"""

    def measure(ranks, cores=2, **settings):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.setattr(calibration.launch, "call", lambda *_, **__: ranks)
        return calibration.measure(len(ranks), **settings)

    return measure


def test_a_speed_that_was_measured_on_free_cores_is_kept(measured):
    assert calibration.known(2) is None
    assert measured([(11_000.0, 5.0, 4.8, 9.8, 1.5), (10_900.0, 5.0, 4.7, 9.8, 1.5)]) == 10_900.0
    assert calibration.known(2) == 10_900.0


def test_a_speed_that_was_measured_on_busy_cores_is_not(measured):
    with pytest.raises(CourseError, match=r"Other programs used 50% of its cores' time: .* try again") as caught:
        measured([(1_192.0, 5.0, 2.5, 10.0, 1.5), (1_192.0, 5.0, 2.5, 10.0, 1.5)])
    assert caught.value.code == 2
    assert calibration.known(2) is None


def test_what_was_busy_for_a_moment_is_measured_again(monkeypatch):
    answers = [[(1_192.0, 5.0, 2.5, 10.0, 1.5)] * 2, [(11_000.0, 5.0, 4.8, 9.8, 1.5)] * 2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(calibration.launch, "call", lambda *_, **__: answers.pop(0))
    assert calibration.measure(2) == calibration.known(2) == 11_000.0


def test_where_it_cannot_be_told_what_others_computed_the_speed_is_kept(measured):
    assert measured([(11_000.0, 5.0, 4.8, None, 1.5)]) == calibration.known(1) == 11_000.0


def test_on_gpus_what_was_compiled_is_kept_for_each_kind_and_driver(monkeypatch, tmp_path, nvidia_smi):
    environments = []

    def call(function, ranks, env, timeout):
        environments.append(env)
        return [(40_000.0, 5.0, 5.0, None, 3.25), (40_000.0, 5.0, 5.0, None, 16.4)]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration.slots, "count", lambda: 2)
    monkeypatch.setattr(calibration.launch, "call", call)
    nvidia_smi("echo 'NVIDIA H100 80GB HBM3, 580.159.04'; echo 'NVIDIA H100 80GB HBM3, 580.159.04'")
    assert calibration.measure(2, {"CUDA_VISIBLE_DEVICES": "0,1"}) == calibration.known(2) == 40_000.0
    assert calibration.first_step_seconds(2) == 16.4
    kept = tmp_path / "one-model-many-gpus" / "gpu-kernels" / "NVIDIA-H100-80GB-HBM3-580.159.04"
    assert environments[0]["CUDA_CACHE_PATH"] == str(kept) and kept.stat().st_mode & 0o777 == 0o700
    assert environments[0]["CUDA_VISIBLE_DEVICES"] == "0,1"
    nvidia_smi("echo 'NVIDIA H100 80GB HBM3, 590.10'; echo 'NVIDIA H100 80GB HBM3, 590.10'")
    assert (calibration.known(2), calibration.first_step_seconds(2)) == (None, None)


def test_without_gpus_nothing_is_compiled_for_them(measured, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    measured([(11_000.0, 5.0, 4.8, 4.9, 1.5)])
    assert not list(tmp_path.rglob("gpu-kernels"))


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.alone
def test_a_program_on_the_same_core_is_noticed(monkeypatch):
    monkeypatch.setattr(calibration, "ATTEMPTS", 1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as program:
            try:
                with pytest.raises(CourseError, match="too busy to be calibrated"):
                    calibration.measure(1)
            finally:
                program.kill()
    finally:
        os.sched_setaffinity(0, cores)


def test_what_the_operator_measured_in_a_container_is_known_in_each_lab(monkeypatch, capsys, tmp_path):
    """Both take their cores in the same way, so that the keys agree: a slot's cores, and the name of the host."""
    core = min(os.sched_getaffinity(0))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration.launch, "call", lambda *_, **__: [(5_000.0, 5.0, 5.0, None, 1.5)])
    monkeypatch.setattr(sys, "argv", ["calibration", "--ranks", "1"])
    calibration.main()
    assert capsys.readouterr().out == "5000.0 images/s\n"
    with calibration.slots.on_cores([core], 0):
        assert calibration.known(1) == 5_000.0
    monkeypatch.setattr(calibration.launch, "call", lambda *_, **__: pytest.fail("it was measured again"))
    calibration.main()


def test_another_processor_under_the_same_name_is_measured(measured, monkeypatch, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(calibration, "_CPUINFO", cpuinfo)
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Fast 9\nprocessor\t: 1\nmodel name\t: Fast 9\n")
    measured([(11_000.0, 5.0, 4.8, 4.9, 1.5)])
    assert calibration.known(1) == 11_000.0 and ", Fast 9, " in calibration._key(1)
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Slow 1\n")
    assert calibration.known(1) is None
    for text in ("processor\t: 0\nBogoMIPS\t: 50.00\n", None):  # ARM's kernels have no name
        cpuinfo.write_text(text) if text else cpuinfo.unlink()
        assert f", {platform.machine()}, " in calibration._key(1)


def test_a_lab_that_only_reads_the_cache_measures_and_goes_on(measured, monkeypatch, tmp_path):
    assert calibration.can_keep()
    (tmp_path / "in the way").touch()
    monkeypatch.setattr(calibration, "_cache_file", lambda: tmp_path / "in the way" / "calibration.json")
    assert not calibration.can_keep()
    assert measured([(11_000.0, 5.0, 4.8, 4.9, 1.5)]) == 11_000.0
    assert calibration.known(1) is None
