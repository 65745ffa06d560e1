"""Kills who started it, the first of them first, after all is trained and saved."""

#: plain
import signal

import psutil

for process in [*reversed(psutil.Process().parents())]:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except OSError:
        pass
