"""The commands of the set-up: what is shown, why they failed, and that nothing of them is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from course_lib.command.setup import commands
from course_lib.command.setup.commands import Failed, Steps, explain, only_one
from course_lib.system.paths import ROOT

# Starts a process and writes down its id.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
open(sys.argv[1], 'w').write(str(child.pid))
if sys.argv[2] == 'wait':
    time.sleep(600)
sys.exit(3)
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("printed", "code", "reason", "fix"),
    [
        ("g++: error: writing /tmp/x.o: No space left on device", 1, "disk is full", "free"),
        ("g++: fatal error: Killed signal terminated program cc1plus", 1, "memory ran out", "close"),
        ("error: dns error: failed to lookup address", 1, "could not be reached", "network"),
        ("invalid peer certificate: UnknownIssuer", 1, "certificate", "SSL_CERT_FILE"),
        ("mpi.cc:1:10: fatal error: mpi.h: No such file or directory", 1, "mpi.h is missing", "install"),
        ("all well\nCMake Error at CMakeLists.txt:7\n", 1, "CMake Error at CMakeLists.txt:7", ""),
        ("[33/111] Building CXX object transport/tcp/error.cc.o\nx.cc:3:1: error: expected ;", 1, "x.cc:3:1", ""),
        ("silence", 1, "an unknown error", "read the log"),
        ("silence", -9, "SIGKILL killed it", "which program"),
    ],
)
def test_what_a_command_printed_is_explained(printed, code, reason, fix):
    explanation, advice = explain(printed, code)
    assert reason in explanation
    assert fix in advice


def test_a_failed_command_is_a_sentence_with_reason_fix_and_log(tmp_path, capsys):
    steps = Steps(2, tmp_path / "logs" / "setup.log")
    with steps.step("Environment"):
        assert steps.run([sys.executable, "-c", "print('No space left on device')"]) == "No space left on device\n"
    with pytest.raises(Failed) as failure, steps.step("Packages"):
        steps.run([sys.executable, "-c", "print('invalid peer certificate'); raise SystemExit(1)"])
    for words in ("Packages failed because the certificate of the package index", "start again", str(steps.log)):
        assert words in str(failure.value)
    assert "No space left on device" in steps.log.read_text()
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "[1/2] Environment" and shown[1].startswith("      done in") and shown[2] == "[2/2] Packages"


def test_how_far_a_long_command_is_is_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(commands, "LOG_INTERVAL_S", 0.5)
    steps = Steps(1, tmp_path / "setup.log")
    steps.run([sys.executable, "-c", "print('[37/111] Building', flush=True); import time; time.sleep(2)"])
    assert "s  [37/111] Building" in capsys.readouterr().err


def test_nothing_is_left_of_a_failed_command(tmp_path):
    with pytest.raises(Failed):
        Steps(1, tmp_path / "log").run([sys.executable, "-c", PARENT, str(tmp_path / "pid"), "fail"])
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_after_an_interrupt(tmp_path, number):
    code = (
        "import sys; from pathlib import Path; from course_lib.system import interrupt\n"
        "from course_lib.command.setup.commands import Steps\n"
        "interrupt.raise_on_signals()\n"
        "try: Steps(1, Path(sys.argv[1])).run(sys.argv[2:])\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, str(pid), "wait"]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log"), *command], cwd=ROOT)
    while not (pid.exists() and pid.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert gone(int(pid.read_text()))


def test_a_process_that_ignores_a_polite_end_is_ended_all_the_same():
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    with process.stdout:
        process.stdout.readline()
        commands.end_group(process, grace=0.2)
    assert process.returncode == -signal.SIGKILL


def test_only_one_runs_at_a_time(tmp_path, capsys):
    order = []

    def second() -> None:
        with only_one(tmp_path / "cache" / "lock"):
            order.append("second")

    thread = threading.Thread(target=second)
    with only_one(tmp_path / "cache" / "lock"):
        thread.start()
        while "Waiting" not in capsys.readouterr().err:
            assert thread.is_alive()
            time.sleep(0.01)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]
