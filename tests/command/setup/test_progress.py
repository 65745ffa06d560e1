"""Long steps: what is shown, why they failed, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from course_lib.command.setup import progress
from course_lib.command.setup.progress import Failed, Progress, detail, explain, only_one
from course_lib.system.paths import ROOT

# Starts a process in a group of its own, as Ninja does, and says its id.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], preexec_fn=os.setpgrp)
open(sys.argv[1], 'w').write(str(child.pid))
if sys.argv[2] == 'wait':
    time.sleep(600)
sys.exit(3)
"""


def read_all(terminal: int) -> str:
    """What a terminal shows until the last program has left it."""
    shown = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 4096):
            shown += chunk
    os.close(terminal)
    return shown.decode()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  [37/111] Building CXX object operations.cc.o", "33 %"),
        ("[111/111] Linking", "100 %"),
        ("Downloading tensorflow-cpu (227.4MiB)", "Downloading tensorflow-cpu (227.4MiB)"),
        ("warning: unused variable", ""),
    ],
)
def test_a_line_tells_how_far_it_is(line, shown):
    assert detail(line) == shown


@pytest.mark.parametrize(
    ("log", "reason", "fix"),
    [
        ("g++: error: writing /tmp/x.o: No space left on device", "disk is full", "free"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "memory ran out", "close"),
        ("error: dns error: failed to lookup address", "could not be reached", "network"),
        ("invalid peer certificate: UnknownIssuer", "certificate", "SSL_CERT_FILE"),
        ("mpi.cc:1:10: fatal error: mpi.h: No such file or directory", "mpi.h is missing", "install"),
        ("all well\nCMake Error at CMakeLists.txt:7\n", "CMake Error at CMakeLists.txt:7", ""),
        ("[33/111] Building CXX object transport/tcp/error.cc.o\nx.cc:3:1: error: expected ;", "x.cc:3:1", ""),
        ("silence", "no reason", ""),
    ],
)
def test_a_log_is_explained(log, reason, fix):
    said, to_do = explain(log)
    assert reason in said
    assert fix in to_do


def test_a_failed_command_is_a_sentence_with_reason_fix_and_log(tmp_path, capsys):
    log = tmp_path / "logs" / "setup.log"
    command = [sys.executable, "-c", "print('No space left on device'); raise SystemExit(1)"]
    with pytest.raises(Failed) as failure, Progress(2, log) as show, show.step("Packages"):
        show.run(command)
    for word in ("Packages failed", "disk is full", "free", "start again", str(log)):
        assert word in str(failure.value)
    assert "No space left on device" in log.read_text()
    assert capsys.readouterr().err.startswith("[1/2] Packages")


def test_a_command_that_was_killed_is_said_to_be(tmp_path):
    command = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    with Progress(1, tmp_path / "log") as show, show.step("Compiling"), pytest.raises(Failed, match="SIGKILL"):
        show.run(command)


def test_a_reason_is_sought_in_the_failed_command_only(tmp_path):
    with Progress(1, tmp_path / "log") as show, show.step("Packages"):
        show.run([sys.executable, "-c", "print('No space left on device')"])
        with pytest.raises(Failed, match="no reason"):
            show.run([sys.executable, "-c", "raise SystemExit(1)"])


def test_nothing_is_left_of_a_failed_command(tmp_path):
    with Progress(1, tmp_path / "log") as show, show.step("Compiling"), pytest.raises(Failed):
        show.run([sys.executable, "-c", PARENT, str(tmp_path / "pid"), "fail"])
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_after_an_interrupt(tmp_path, number):
    code = (
        "import sys; from pathlib import Path; from course_lib.system import interrupt\n"
        "from course_lib.command.setup.progress import Progress\n"
        "interrupt.raise_on_signals()\n"
        "try:\n"
        "    with Progress(1, Path(sys.argv[1])) as show, show.step('Compiling'): show.run(sys.argv[2:])\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, str(pid), "wait"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log"), *command],
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # tests may run where it is ignored
    )
    while not (pid.exists() and pid.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert gone(int(pid.read_text()))


def test_a_process_that_ignores_a_polite_end_is_ended_all_the_same():
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    progress.end_session(process, grace=0.2)
    assert process.returncode == -signal.SIGKILL


def test_only_one_runs_at_a_time(tmp_path, capsys):
    order, inside = [], threading.Event()
    release = threading.Event()

    def first() -> None:
        with only_one(tmp_path / "cache" / "lock"):
            inside.set()
            release.wait(30)
            order.append("first")

    def second() -> None:
        with only_one(tmp_path / "cache" / "lock"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    deadline = time.monotonic() + 30
    while "Waiting" not in capsys.readouterr().err:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    release.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "second"]


def test_a_terminal_gets_one_live_line_a_step(tmp_path):
    master, slave = os.openpty()
    code = (
        "import sys; from pathlib import Path; from course_lib.command.setup.progress import Progress\n"
        "with Progress(1, Path(sys.argv[1])) as show, show.step('Compiling'):\n"
        "    show.run([sys.executable, '-c', 'print(\"[1/4] a.cc\", flush=True); import time; time.sleep(1.5)'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log")], stderr=slave, cwd=ROOT)
    os.close(slave)
    shown = read_all(master)
    assert process.wait(30) == 0
    assert "25 %" in shown
    assert shown.count("\n") == 1
    assert shown.rstrip().replace("\x1b[K", "").endswith("done")
