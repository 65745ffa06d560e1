"""A process that dies in the middle of writing a file, at a place of our choice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from course_lib.system.errors import last_line

_WRITER = """
import resource, signal, sys
import cloudpickle
save, path, state, limit = cloudpickle.load(sys.stdin.buffer)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
save(path, state)
"""


def while_writing(save: Callable[[Path, object], None], path: Path, state: object, limit: int) -> bool:
    """Call `save(path, state)` in a process that the system kills when a file gets longer than `limit` bytes.

    Returns whether it was killed. Raises RuntimeError with its last words where it fails in another way.
    """
    done = subprocess.run(
        [sys.executable, "-c", _WRITER], input=cloudpickle.dumps((save, path, state, limit)), capture_output=True
    )
    if done.returncode not in (0, -signal.SIGXFSZ):
        raise RuntimeError(last_line(done.stderr.decode(errors="replace")))
    return done.returncode != 0
