"""What keeps a core busy."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def spinning() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Keep the first core, which a script on one rank runs on, busy with a program of its own."""

    @contextlib.contextmanager
    def spin() -> Iterator[None]:
        core = min(os.sched_getaffinity(0))
        with subprocess.Popen(
            [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"]
        ) as program:
            try:
                yield
            finally:
                program.kill()

    return spin
