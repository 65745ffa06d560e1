"""The runs of notebook 6a end with all of their processes and leave no shared memory, whoever is killed."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from course_lib.system.errors import CourseError
from labs.lab6_beyond_synchronous.lessons import apart

MARK = "TEST_APART"
PATIENCE = 60  # seconds for the processes to start; the machine may be busy
ENDED = 15  # seconds that a run may take to end

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

HEAD = """
import os
from course_lib.system.errors import CourseError
from labs.lab6_beyond_synchronous.lessons import hogwild, parameter_server, ratings

def arrived(server, worker, gradient):
    server.updates += 1
    return {worker: server.weights}
"""
TAIL = """
try:
    run()
except CourseError as error:
    print(error)
except KeyboardInterrupt:
    print("interrupted")
"""
RUNS = {
    "server": "run = lambda: parameter_server.run(arrived, (0.02, 0.05), seconds=300)",
    "hogwild": "run = lambda: hogwild.run('locked', ratings.Sparse.drawn, {'examples': 500, 'values': 50}, 100_000)",
}
ROOT_NAMES = {"server": "The parameter server", "hogwild": "The run on shared memory"}


class Started:
    """A run in a process of its own, once its root and both workers are at work."""

    def __init__(self, kind: str, folder: Path) -> None:
        mark = uuid.uuid4().hex
        self._mark = f"{MARK}={mark}".encode()
        script = folder / "run.py"
        script.write_text(HEAD + RUNS[kind] + TAIL)
        env = {**dict(psutil.Process().environ()), MARK: mark, "COURSE_SLICE": "600", "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, str(script)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not (self.root and len(self.workers) == 2 and all(map(_works, self.workers))):
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < deadline, "root and workers are not at work"
                time.sleep(0.1)
        except BaseException:
            self.kill()
            raise
        self.shared = {name for process in self.all() for name in _shared(process)}

    def all(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if self._mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                    found += [process] * (process.status() != psutil.STATUS_ZOMBIE)
        return found

    def _with(self, words: str) -> list[psutil.Process]:
        found = []
        for process in self.all():
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                found += [process] * (re.search(words, line) is not None and "supervise.py" not in line)
        return found

    @property
    def root(self) -> psutil.Process | None:
        return next(iter(self._with(r"apart\.py")), None)

    @property
    def workers(self) -> list[psutil.Process]:
        return self._with("spawn_main")

    def kill(self) -> None:
        for process in self.all():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def end(self) -> tuple[str, str]:
        """What the run said, once it has ended; nothing of it is left."""
        said = self.process.communicate(timeout=ENDED)
        deadline = time.monotonic() + ENDED
        while (left := self.all()) or any((Path("/dev/shm") / name).exists() for name in self.shared):
            assert time.monotonic() < deadline, (left, self.shared)
            time.sleep(0.1)
        return said


def _works(process: psutil.Process) -> bool:
    """Whether it has come to its loop: it has calculated for a while or waits for a server."""
    with contextlib.suppress(psutil.Error):
        return sum(process.cpu_times()[:2]) > 0.3
    return False


def _shared(process: psutil.Process) -> set[str]:
    with contextlib.suppress(OSError):
        return set(re.findall(r"/dev/shm/((?:psm_|sem\.)\S+)", Path(f"/proc/{process.pid}/maps").read_text()))
    return set()


@pytest.fixture(params=RUNS)
def started(request, tmp_path):
    run = Started(request.param, tmp_path)
    run.kind, run.folder = request.param, tmp_path
    yield run
    run.kill()


def test_ctrl_c_ends_everything(started):
    started.process.send_signal(signal.SIGINT)
    said, errors = started.end()
    assert (said, errors) == ("interrupted\n", "")
    assert [path.name for path in started.folder.iterdir()] == ["run.py"]


def test_a_killed_worker_ends_the_run_with_a_sentence(started):
    started.workers[0].kill()
    said, errors = started.end()
    assert re.fullmatch(r"Worker [01] was killed by signal 9 \(SIGKILL\): the run has ended\.\n", said) and not errors


def test_a_killed_root_ends_the_run_with_a_sentence(started):
    started.root.kill()
    said, errors = started.end()
    assert said == f"{ROOT_NAMES[started.kind]} was killed by signal 9 (SIGKILL): the run has ended.\n" and not errors


def test_a_killed_notebook_takes_the_run_with_it(started):
    started.process.kill()
    started.end()
    deadline = time.monotonic() + ENDED
    while [path.name for path in started.folder.iterdir()] != ["run.py"]:
        assert time.monotonic() < deadline, list(started.folder.iterdir())
        time.sleep(0.1)


def test_what_is_returned_or_raised_comes_back():
    assert apart.call("it", divmod, 7, 2) == (3, 1)
    with pytest.raises(CourseError, match=r"^`_main` raised ZeroDivisionError: "):
        apart.call("it", divmod, 7, 0)
    with pytest.raises(CourseError, match=r"^It was ended: its 0\.5 seconds are over"):
        apart.call("it", time.sleep, 60, timeout=0.5)
    with pytest.raises(CourseError, match=r"^It ended with exit code 3"):
        apart.call("it", sys.exit, 3)
