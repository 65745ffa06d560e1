"""Command lines typed in a notebook."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from course_lib.system.errors import CourseError
from labs.lab2_horovod.lessons import terminal


def test_what_a_command_says_is_shown_and_how_it_failed(capsys):
    with pytest.raises(CourseError, match=r"^The command ended with exit code 3\. Its output says why\.$"):
        terminal.run("""sh -c 'echo out; echo err >&2; echo $WHO; exit 3'""", env={"WHO": "me"})
    assert capsys.readouterr() == ("$ sh -c 'echo out; echo err >&2; echo $WHO; exit 3'\nout\nerr\nme\n", "")
    with pytest.raises(CourseError, match="Keras 2"):
        terminal.run("""sh -c "echo No module named \\'tf_keras\\'; exit 1\"""")


def test_the_python_of_the_course_comes_first(capsys):
    terminal.run("python -c 'import sys; print(sys.prefix)'")
    assert capsys.readouterr().out.splitlines()[-1] == sys.prefix


def test_after_its_time_the_whole_tree_is_ended(capsys):
    with pytest.raises(CourseError, match="exit code 124"):
        terminal.run("""sh -c 'sleep 71 & echo $!; sleep 72'""", timeout=1)
    _, sleeper, *_ = capsys.readouterr().out.splitlines()
    assert not psutil.pid_exists(int(sleeper))


def test_an_interrupt_ends_the_whole_tree():
    script = "from labs.lab2_horovod.lessons import terminal; terminal.run(\"sh -c 'sleep 71 & echo $!; sleep 72'\")"
    notebook = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = [notebook.stdout.readline() for _ in range(2)]
    sleeper = psutil.Process(int(lines[1]))
    notebook.send_signal(signal.SIGINT)
    _, errors = notebook.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 5
    while sleeper.is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sleeper.is_running()
