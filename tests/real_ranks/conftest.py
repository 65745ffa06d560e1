"""What tests of real ranks share."""

from __future__ import annotations

import time
import uuid

import psutil
import pytest

MARK = "TEST_RUN"
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


@pytest.fixture(scope="session")
def nothing_runs_on():
    """Wait until no process of a run is left on any of some pretended hosts."""
    names = "[r]ank.py|[r]un_function|[s]shd:.*@|[c]ourse_lib|[b]wrap|[s]leep"
    ask = ["sh", "-c", f"ps -eo stat,args | grep -v ^Z | grep -E '{names}'"]  # a host's first process buries no dead

    def check(hosts):
        deadline = time.monotonic() + GONE
        while left := "".join(host.run(ask).stdout for host in hosts):
            assert time.monotonic() < deadline, left
            time.sleep(0.2)

    return check


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}
