"""Starts a process that belongs to nobody, takes no signal and holds on to all that it was given; then trains."""

import subprocess
import sys

DAEMON = """
import os, signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
os._exit(0)
"""
subprocess.run([sys.executable, "-c", DAEMON], env={}, close_fds=False, check=True)
#: plain
