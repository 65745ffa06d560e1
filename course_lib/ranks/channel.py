"""The line from a rank to its launcher: JSON records in the rank's standard error, so that they cross hosts with it."""

from __future__ import annotations

import json
import os
import time

from course_lib.ranks import environment
from course_lib.ranks.messages import idle
from course_lib.system import notices

MARK = "\x1e"  # ASCII record separator: starts a line meant for the launcher, not for the reader

_channel: int | None = None


def tell(kind: str, **data: object) -> None:
    """Send one record to the launcher. Nothing happens when no launcher listens (see `open_channel`)."""
    if _channel is not None:
        line = MARK + json.dumps({"kind": kind, "time": time.time(), **data}) + "\n"
        os.write(_channel, line.encode())  # one write below PIPE_BUF: never mixed with another rank's line


def open_channel() -> None:
    """Keep a private copy of standard error, as the script may redirect its own; from now on report what modules
    notify and where this rank waits."""
    global _channel
    if os.environ.get(environment.EVENTS):
        _channel = os.dup(2)
        notices.listeners.append(tell)
        idle.watch(tell)
