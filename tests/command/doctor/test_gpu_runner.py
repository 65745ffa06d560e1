"""Steps in processes of their own: what hangs, crashes or says nothing is a line; an interrupt leaves nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from course_lib.command.doctor.gpu import runner
from course_lib.command.doctor.gpu.devices import Gpu, Host
from course_lib.command.doctor.gpu.report import FAILED, PASSED, UNTESTED
from course_lib.command.doctor.gpu.runner import STEPS, Step
from course_lib.system.supervise import LEFT

FAKES = """
import os, subprocess, sys, time
from course_lib.command.doctor.gpu.report import failed, passed
from course_lib.system.errors import CourseError

def works(host):
    yield passed("One", f"on {host.devices}", **{"images/s": 12.5})
    yield passed("Two", "too")

def fails(host):
    yield failed("It", "is broken: fix it.")

def raises(host):
    raise CourseError("The data are damaged: copy them again.")

def crashes(host):
    print("ImportError: libcudnn.so.8", file=sys.stderr)
    yield passed("Before", "it went well")
    os._exit(3)

def dies(host):
    os.kill(os.getpid(), 11)

def crowded(host):
    raise RuntimeError("cudaSetDevice() on GPU:0 failed. Status: out of memory")

def silent(host):
    return iter(())

def hangs(host):
    yield passed("Before", "it went well")
    child = subprocess.Popen(["sleep", "987654"], start_new_session=True)
    print(child.pid, file=open(os.environ["FAKE_PID"], "w"))
    time.sleep(600)
"""
TWO = Host((Gpu("NVIDIA H100", 81559.0, "9.0"),) * 2, 2, "550", "12.4")


@pytest.fixture
def step(tmp_path, monkeypatch):
    """step(name): a step whose function is one of FAKES."""
    (tmp_path / "fake_steps.py").write_text(FAKES)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("FAKE_PID", str(tmp_path / "pid"))

    def make(name: str, seconds: float = 60, after: tuple[str, ...] = (), on_cpu: bool = True) -> Step:
        return Step(name, "fake_steps", f"Step {name}", seconds, on_cpu, after)

    return make


def examined(*chosen: Step, host: Host = TWO, budget: float = 900) -> list[tuple[str, str, str]]:
    sections = runner.examine(host, chosen, budget=budget)
    return [(line.title, line.state, line.text) for section in sections for line in section.lines]


def test_a_steps_lines_come_with_what_it_measured(step):
    [section] = runner.examine(TWO, [step("works")])
    assert (section.step, section.title) == ("works", "Step works")
    assert [(line.title, line.state, line.text) for line in section.lines] == [
        ("One", PASSED, "on 2 GPUs"),
        ("Two", PASSED, "too"),
    ]
    assert section.lines[0].values == {"images/s": 12.5}


def test_failures_of_all_kinds_are_lines_and_the_next_step_follows(step):
    lines = examined(*map(step, ("fails", "raises", "crashes", "dies", "silent", "works")))
    assert [state for _, state, _ in lines] == [FAILED, FAILED, PASSED, FAILED, FAILED, FAILED, PASSED, PASSED]
    texts = [text for _, _, text in lines]
    assert texts[1] == "The data are damaged: copy them again."
    assert "exit code 3 (ImportError: libcudnn.so.8)" in texts[3]
    assert "signal 11" in texts[4]
    assert "It reported nothing" in texts[5]


def test_who_holds_the_memory_of_a_gpu_is_named(step, nvidia_smi):
    nvidia_smi("""case "$*" in
    *query-compute-apps*) echo '4000001, 79000, GPU-a, /usr/bin/python' ;;
    *query-gpu*) echo '0, GPU-a, 79900, 81559' ;;
    esac""")
    [(_, state, text)] = examined(step("crowded"))
    assert state == FAILED
    assert text.startswith(
        "The memory of GPU 0 is in use (78 of 80 GB) by process 4000001 (/usr/bin/python, 77 GB): stop it"
    )


def test_what_hangs_is_ended_with_all_its_processes_and_named(step, tmp_path):
    shown = []
    chosen = step("hangs", seconds=8)
    sections = runner.examine(TWO, [chosen, step("works")], follow=lambda *progress: shown.append(progress))
    [before, hung], after = (section.lines for section in sections)
    assert before.state == after[0].state == PASSED
    assert (hung.title, hung.state) == ("Step hangs", FAILED)
    assert "stopped after 8 s" in hung.text
    assert gone(int((tmp_path / "pid").read_text()))
    assert any(one is chosen and limit <= 8 for one, _, limit in shown)


def test_what_the_driver_does_not_let_go_is_named():
    problem = runner._problem(124, f"{LEFT}process 7 (python, state disk-sleep)", 60, True)
    assert "can't be killed, because they hang in the driver" in problem


def test_what_builds_on_a_failure_is_not_tested_nor_what_builds_on_that(step):
    lines = examined(step("fails"), step("works", after=("fails",)), step("hangs", after=("works",)))
    reason = "It needs “Step fails”, which failed."
    assert lines[1:] == [("Step works", UNTESTED, reason), ("Step hangs", UNTESTED, reason)]


def test_without_a_gpu_a_step_for_gpus_is_not_tested(step):
    [(_, state, text)] = examined(step("works", on_cpu=False), host=Host())
    assert state == UNTESTED and "no NVIDIA GPU" in text
    assert examined(step("works"), host=Host())[0] == ("One", PASSED, "on the CPU")


def test_what_the_time_does_not_suffice_for_is_not_tested(step):
    lines = examined(step("works"), budget=0)
    assert lines == [("Step works", UNTESTED, "The time limit of 0 minutes for all steps was reached.")]


def test_ctrl_c_leaves_nothing(step, tmp_path):
    step("hangs")  # writes the fakes
    code = (
        "import sys\n"
        "from course_lib.command import cli\n"
        "from course_lib.command.doctor.gpu import runner\n"
        "chosen = [runner.Step('hangs', 'fake_steps', 'It hangs', 60)]\n"
        "runner.examine.__defaults__ = (chosen,)\n"
        "sys.argv = ['course', 'doctor', '--gpu', '--rehearse', '--report', 'report']\n"
        "cli.main()\n"
    )
    done = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    pid = awaited(tmp_path / "pid")
    done.send_signal(signal.SIGINT)
    _, err = done.communicate(timeout=60)
    assert done.returncode == 130, err
    assert "Traceback" not in err
    assert gone(pid)
    assert not list(tmp_path.glob("report*"))


def awaited(path: Path) -> int:
    """The number that stands in a file, once it does."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return int(path.read_text())


def gone(pid: int) -> bool:
    """Whether a process ends, within some seconds."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(15)
    return not psutil.pid_exists(pid)


def test_the_steps():
    names = [one.name for one in STEPS]
    assert len(set(names)) == len(names)
    for place, one in enumerate(STEPS):
        assert set(one.after) <= set(names[:place]), "a step builds on earlier ones"
        assert one.seconds <= runner.BUDGET_S
        assert callable(getattr(import_module(one.module), one.name))
