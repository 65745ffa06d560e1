"""Commands that leave no processes behind: `supervise` ends the process tree of each."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course_lib.system import supervise
from course_lib.system.supervise import GRACE_S


class Supervised(subprocess.Popen):
    """A command whose process tree ends with the command, at the time-out, at `end()`, or with this process.

    The exit codes are those of `supervise`. As a context manager, it ends the tree at the end of the block.
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
        """Start `command` with an empty standard input.

        Args:
            command: program and arguments.
            timeout: seconds; 0: no limit.
            grace: seconds between SIGTERM and SIGKILL.
            temporary: a folder that is deleted if this process dies before the command ends.
            options: as for `subprocess.Popen`.
        """
        command_line = supervise.command_line(command, timeout, grace, temporary=temporary)
        # A new session: Ctrl-C reaches only this process, which then ends the tree.
        super().__init__(command_line, stdin=subprocess.PIPE, start_new_session=True, **options)

    def __exit__(self, *_: object) -> None:
        self.end()
        self.wait()
        if self.stdout:
            self.stdout.close()

    def end(self) -> None:
        """End the whole tree; return at once (use `wait`). Thread-safe."""
        assert self.stdin
        with contextlib.suppress(OSError):
            self.stdin.close()  # the lease of `supervise`
