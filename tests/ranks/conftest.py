"""What tests of real ranks share."""

from __future__ import annotations

import time
import uuid

import psutil
import pytest

MARK = "COURSE_TEST_RUN"
GONE = 10  # seconds that processes may take to be gone after their run has ended


@pytest.fixture
def marked():
    """An environment for a test's runs; when the test is over, no process that has it is left."""
    environment = {MARK: uuid.uuid4().hex}
    yield environment
    deadline = time.monotonic() + GONE
    while left := [
        process for process in psutil.process_iter() if _environment(process).items() >= environment.items()
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}
