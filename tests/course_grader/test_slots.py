"""Cores and GPUs are held by one at a time, and free again however their holder ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from course_grader.script import slots
from course_lib.system import gpus
from course_lib.system.errors import CourseError


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_those_who_fit_hold_different_ones():
    with slots.take(1, gpus=3) as first, slots.take(2, gpus=3) as second:
        assert sorted(first + second) == [0, 1, 2]


def test_the_next_one_waits_and_says_for_what():
    told, got = [], threading.Event()

    def second():
        with slots.take(2, gpus=2, on_wait=told.append):
            got.set()

    with slots.take(1, gpus=2):
        thread = threading.Thread(target=second)
        thread.start()
        assert not got.wait(0.5)
    assert got.wait(10)
    thread.join()
    assert told == ["Waiting for 2 free GPUs: another assessment uses them."]


def test_waiting_can_be_stopped():
    stopping = threading.Event()
    stopping.set()
    with (
        slots.take(2, gpus=2),
        pytest.raises(CourseError, match="Stopped") as caught,
        slots.take(1, gpus=2, stopping=stopping),
    ):
        pass
    assert caught.value.code == 130
    with slots.take(2, gpus=2):  # and nothing is held by the one that gave up
        pass


def test_a_killed_holder_holds_nothing():
    script = """
import time
from course_grader.script import slots
with slots.take(2, gpus=2):
    print("mine", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "mine\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with slots.take(2, gpus=2) as taken:
        assert taken == [0, 1]


def test_more_ranks_than_cores_get_all_cores_and_more_than_gpus_are_refused():
    with slots.take(1000) as taken:
        assert taken == sorted(os.sched_getaffinity(0))
    with pytest.raises(CourseError, match="3 ranks need 3 GPUs, but this host has 2"), slots.take(3, gpus=2):
        pass


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ("2,0", [0, 2]),
        ("1,1", [1]),
        ("GPU-c,GPU-b1", [1, 2]),
        ("MIG-x,MIG-y", [0, 1]),
        ("1,-1,2", [1]),
        ("3", []),
        ("", []),
    ],
)
def test_only_gpus_that_cuda_may_see_are_given_out(monkeypatch, chosen, left):
    lines = [f"GPU {number}: NVIDIA H200 (UUID: GPU-{name})" for number, name in enumerate(("a9", "b1", "c2"))]
    monkeypatch.setattr(gpus, "listing", lambda: lines)
    monkeypatch.setattr(slots.launch, "gpus", lambda: ["NVIDIA H200"] * 3)
    assert slots.count() == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert slots.count() == len(left)
    if left:
        with slots.take(len(left), gpus=len(left)) as taken:
            assert taken == left


def test_all_accounts_of_a_machine_share_their_files(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert slots._SHARED.parent == Path("/tmp")
    shared = tmp_path / "shared"
    monkeypatch.setattr(slots, "_SHARED", shared)
    before = os.umask(0o077)
    try:
        with slots.take(1, gpus=1):
            assert shared.stat().st_mode & 0o7777 == 0o1777
            assert {path.stat().st_mode & 0o7777 for path in shared.iterdir()} == {0o666}
            assert {path.name for path in shared.iterdir()} == {
                f"{slots._machine()}-{name}" for name in ("gate", "GPU-0")
            }
    finally:
        os.umask(before)


def test_a_link_in_the_place_of_a_slot_is_not_followed(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(slots, "_SHARED", tmp_path)
    (tmp_path / f"{slots._machine()}-gate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CourseError, match="cannot be written") as caught, slots.take(1):
        pass
    assert caught.value.code == 2
    assert not (tmp_path / "elsewhere").exists()


def test_what_starts_meanwhile_stays_on_the_cores_that_are_held():
    ask = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    before = os.sched_getaffinity(0)
    with slots.take(1) as taken, slots.on_cores(taken, 0):
        assert subprocess.check_output(ask, text=True) == f"{taken}\n"
    assert os.sched_getaffinity(0) == before
    assert slots.environment([1, 3], gpus=4) == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert slots.environment([1, 3], gpus=0) == {}


def test_machines_that_share_a_home_have_slots_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with slots.take(1, gpus=1):
        monkeypatch.setattr(slots, "_machine", lambda: "another")
        with slots.take(1, gpus=1) as there:
            assert there == [0]
