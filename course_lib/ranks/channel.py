"""The line from a rank to its launcher: JSON records in the rank's standard error, so that they cross hosts with it."""

from __future__ import annotations

import json
import os
import time

from course_lib.ranks.messages import idle
from course_lib.system import notices

MARK = "\x1e"  # ASCII record separator: starts a line meant for the launcher, not for the reader


class Channel:
    """Sends records to the launcher by a private copy of standard error: the script may redirect its own."""

    def __init__(self) -> None:
        self._descriptor = os.dup(2)

    def report(self, kind: str, **data: object) -> None:
        """Send one record. Any thread may call it."""
        line = MARK + json.dumps({"kind": kind, "time": time.time(), **data}) + "\n"
        os.write(self._descriptor, line.encode())  # one write below PIPE_BUF: never mixed with another rank's line


def open_channel() -> Channel:
    """Open this rank's channel. From now on it also reports what modules notify and where this rank waits."""
    channel = Channel()
    notices.listeners.append(channel.report)
    idle.watch(channel.report)
    return channel
