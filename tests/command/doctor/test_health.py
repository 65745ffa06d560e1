"""The health of an image: examined once, answered from memory while nothing has changed, then examined again."""

from __future__ import annotations

import errno
import json

import pytest

from course_lib.command.doctor import health
from course_lib.system import files

HEALTHY = {
    "tensorflow": "2.15.1",
    "keras": "2.15.0",
    "horovod": "0.28.1",
    "controllers": ["gloo"],
    "nccl": "2.18.5",
    "gpus": ["NVIDIA H100"] * 2,
    "ranks": 2,
    "ranks_agree": True,
    "problems": [],
}
GPUS = ["GPU 0: NVIDIA H100 (UUID: GPU-1)", "GPU 1: NVIDIA H100 (UUID: GPU-2)"]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A healthy machine with two GPUs; `examined` counts, the rest may be spoilt."""

    class State:
        report, gpus, container, examined = dict(HEALTHY), list(GPUS), "boot 1", 0

    def training() -> dict:
        State.examined += 1
        return State.report

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(health, "training", training)
    monkeypatch.setattr(health.gpus, "listing", lambda: State.gpus)
    monkeypatch.setattr(health, "_container", lambda: State.container)
    return State


def test_the_first_answer_says_what_was_found_and_the_next_is_from_memory(machine, capsys):
    assert health.main() == 0
    said = capsys.readouterr().out
    for words in ("TensorFlow 2.15.1", "Horovod 0.28.1 with Gloo, NCCL", "2 GPUs: NVIDIA H100", "2 ranks agree"):
        assert words in said
    assert health.main() == 0
    assert (machine.examined, capsys.readouterr().out) == (1, "")


def test_a_problem_is_a_sentence_each_time_and_is_not_kept(machine, capsys):
    machine.report = {**HEALTHY, "ranks_agree": False, "problems": ["The ranks differ."]}
    for examined in (1, 2):
        assert health.main() == 1
        said = capsys.readouterr()
        assert said.err == "course: The ranks differ.\n"
        assert "2 ranks do not agree" in said.out
        assert machine.examined == examined


def test_other_gpus_another_driver_another_horovod_and_another_keras_are_examined_again(machine, monkeypatch):
    health.check()
    for number, change in enumerate(
        (
            lambda: machine.gpus.append("GPU 2: NVIDIA H100 (UUID: GPU-3)"),
            lambda: monkeypatch.setattr(health, "_read", lambda path: "driver 2"),
            lambda: monkeypatch.setenv("TF_USE_LEGACY_KERAS", "another"),
            lambda: monkeypatch.setattr(health, "find_spec", lambda name: None),
        ),
        start=2,
    ):
        change()
        assert health.check() == []
        assert health.check() == []
        assert machine.examined == number


def test_gpus_that_leave_a_running_container_are_a_problem_and_in_a_new_one_are_not(machine):
    health.check()
    machine.gpus = GPUS[:1]
    (sentence,) = health.check()
    assert "had 2 GPUs when it started and has 1 now" in sentence
    assert machine.examined == 1
    machine.container = "boot 2"
    assert health.check() == []
    assert machine.examined == 2


def test_memory_that_is_damaged_or_cannot_be_written_costs_time_only(machine, tmp_path):
    health.check()
    memory = health._file()
    memory.write_text(json.dumps({"basis": "x"})[:-3])
    assert health.check() == []
    memory.unlink()
    memory.mkdir()
    assert health.check() == []
    assert machine.examined == 3


def test_a_file_system_without_locks_or_without_the_cache_is_no_problem(machine, monkeypatch, tmp_path):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", flock)
    assert health.check() == health.check() == []
    assert machine.examined == 1
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert health.check() == []
