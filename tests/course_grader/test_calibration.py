"""How fast a host trains is measured while it has nothing else to do, and kept."""

from __future__ import annotations

import os
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
    """measured([(images per second, seconds, of which a rank computed, of which its core did)], cores)"""

    def measure(ranks, cores=2, **settings):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.setattr(calibration.launch, "call", lambda *_, **__: ranks)
        return calibration.measure(len(ranks), **settings)

    return measure


def test_a_speed_that_was_measured_on_free_cores_is_kept(measured):
    assert calibration.known(2) is None
    assert measured([(11_000.0, 5.0, 4.8, 9.8), (10_900.0, 5.0, 4.7, 9.8)]) == 10_900.0
    assert calibration.known(2) == 10_900.0


def test_a_speed_that_was_measured_on_busy_cores_is_not(measured):
    with pytest.raises(CourseError, match=r"Other programs used 50% of its cores' time: .* assess again") as caught:
        measured([(1_192.0, 5.0, 2.5, 10.0), (1_192.0, 5.0, 2.5, 10.0)])
    assert caught.value.code == 2
    assert calibration.known(2) is None


def test_what_was_busy_for_a_moment_is_measured_again(monkeypatch):
    answers = [[(1_192.0, 5.0, 2.5, 10.0)] * 2, [(11_000.0, 5.0, 4.8, 9.8)] * 2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(calibration.launch, "call", lambda *_, **__: answers.pop(0))
    assert calibration.measure(2) == calibration.known(2) == 11_000.0


def test_where_it_cannot_be_told_what_others_computed_the_speed_is_kept(measured):
    assert measured([(11_000.0, 5.0, 4.8, None)]) == calibration.known(1) == 11_000.0


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
