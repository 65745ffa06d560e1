"""Kills who started it, after all is trained and saved."""

#: plain
import signal

import psutil

for process in psutil.Process().parents():
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.Error:
        pass
