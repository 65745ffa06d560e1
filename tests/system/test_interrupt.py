"""Signals that end a command: each becomes a KeyboardInterrupt, wherever it arrives."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from course_lib.system.paths import ROOT

MODULE = ROOT / "course_lib" / "system" / "interrupt.py"
CODE = """
import importlib.machinery, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored
importlib.machinery.SourceFileLoader("interrupt", sys.argv[1]).load_module().raise_on_signals()

class Finalized:
    def __del__(self):
        {finalizer}

try:
    Finalized()
    {then}
except KeyboardInterrupt:
    sys.exit(130)
"""


def run(finalizer: str = "pass", then: str = "pass", under: tuple[str, ...] = ()):
    code = CODE.format(finalizer=finalizer, then=then)
    command = [*under, sys.executable, "-W", "ignore", "-c", code, str(MODULE)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


class TestRaiseOnSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_an_interrupt_that_arrives_in_a_finalizer_is_not_lost(self, number):
        # There, Python drops what is raised.
        done = run(f"os.kill(os.getpid(), {number:d}); time.sleep(9)", "time.sleep(50)")
        assert (done.returncode, done.stderr) == (130, "")

    def test_another_error_in_a_finalizer_is_reported_as_ever(self):
        done = run("raise ValueError('bad')")
        assert done.returncode == 0 and "ValueError: bad" in done.stderr

    def test_who_asked_for_no_hangup_gets_none(self):
        done = run(then="os.kill(os.getpid(), signal.SIGHUP)", under=("nohup",))
        assert done.returncode == 0
