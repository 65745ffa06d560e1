"""Processes that leave nothing running: each is the root of a tree that `supervise` ends."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib.system import supervise
from course_lib.system.supervise import GRACE_S


class Supervised(subprocess.Popen):
    """A command whose whole process tree ends with it, after its time-out, at `end`, or with this process.

    Its exit codes are those of `supervise`. As a context manager, it has ended when the block has.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = 0.0,
        grace: float = GRACE_S,
        temporary: Path | None = None,
        **options: Any,
    ) -> None:
        """Start `command`, which reads nothing.

        `timeout` in seconds, 0 for none; `grace` is how many seconds the tree has to end by itself; `temporary` is a
        folder that is removed where this process dies before it; `options` as for subprocess.Popen.
        """
        command_line = supervise.command_line(command, timeout, grace, temporary=temporary)
        # In a session of its own: Ctrl-C comes to this process alone, which then ends the tree.
        super().__init__(command_line, stdin=subprocess.PIPE, start_new_session=True, **options)

    def __exit__(self, *_: object) -> None:
        self.end()
        self.wait()
        if self.stdout:
            self.stdout.close()

    def end(self) -> None:
        """Have the whole tree ended; return at once (`wait` for the end). Any thread may call it."""
        assert self.stdin
        with contextlib.suppress(OSError):
            self.stdin.close()  # the lease
