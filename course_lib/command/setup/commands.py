"""Run the commands of the set-up: log their output, show progress in one line, explain a failure in one sentence.

Only the standard library: the set-up uses this module before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from course_lib.system.errors import CourseError, last_line

TERMINAL_INTERVAL_S, LOG_INTERVAL_S = 1.0, 30.0  # between lines of progress, in a terminal and elsewhere
GRACE_S = 3.0  # between SIGTERM and SIGKILL
LINE_WIDTH = 79

# Pattern in the output of a failed command, reason, what to do.
_EXPLANATIONS = (
    (r"No space left on device|Disk quota exceeded", "the disk is full", "free about 3 GB"),
    (r"Killed signal terminated program|out of memory", "memory ran out", "close other programs"),
    (
        r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate|UnknownIssuer",
        "the certificate of the package index is not trusted",
        "set SSL_CERT_FILE to your organisation's certificates",
    ),
    (
        r"name resolution|resolve host|dns error|Network is unreachable|Connection refused|connect error"
        r"|error sending request|[Tt]imed? ?out|NewConnectionError|Failed to fetch",
        "the package index could not be reached",
        "check the network and https_proxy",
    ),
    (r"fatal error: (?P<what>\S+): No such file", "{what} is missing", "install the package that contains it"),
    (r"Permission denied: '?(?P<what>[^'\n]+)", "{what} cannot be written", "change its owner or permissions"),
)


class Failed(CourseError):
    """A command of a step failed; the sentence gives the reason, if the output shows it."""


class Steps:
    """A sequence of `total` steps. The titles go to standard error, the output of the commands to the file `log`."""

    def __init__(self, total: int, log: Path) -> None:
        self.log = log
        self._total, self._number, self._title = total, 0, ""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the title of a step, and at its end the seconds that it took."""
        self._number, self._title, began = self._number + 1, title, time.monotonic()
        self.say(f"[{self._number}/{self._total}] {title}")
        yield
        self.say(f"      done in {time.monotonic() - began:.0f} s")

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """Run a command and return its output; all of its processes end with it, also after an error.

        Raises Failed if the exit code is not 0.
        """
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            begin = log.tell()
            log.flush()
            process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            code = self._wait(process, begin)
        finally:
            end_group(process)
        printed = self._printed(begin)
        if code:
            reason, fix = explain(printed, code)
            raise Failed(f"{self._title} failed because {reason}: {fix} and start again. Log: {self.log}")
        return printed

    def _wait(self, process: subprocess.Popen, begin: int) -> int:
        """Wait for the command, and show the elapsed seconds and its last line; return the exit code."""
        terminal, began = sys.stderr.isatty(), time.monotonic()
        try:
            while True:
                try:
                    return process.wait(TERMINAL_INTERVAL_S if terminal else LOG_INTERVAL_S)
                except subprocess.TimeoutExpired:
                    line = f"      {time.monotonic() - began:.0f} s  {last_line(self._printed(begin), '')}"[:LINE_WIDTH]
                    self._show(line, terminal)
        finally:
            if terminal:
                self._show("", terminal)

    def _show(self, line: str, terminal: bool) -> None:
        """Print a line of progress; in a terminal it replaces the previous one."""
        print(f"{line:<{LINE_WIDTH}}\r" if terminal else f"{line}\n", end="", file=sys.stderr, flush=True)

    def _printed(self, begin: int) -> str:
        return self.log.read_bytes()[begin:].decode(errors="replace")


def explain(printed: str, code: int = 1) -> tuple[str, str]:
    """The reason of a command's failure and what to do, from its output and exit code."""
    for pattern, reason, fix in _EXPLANATIONS:
        if match := re.search(pattern, printed):
            return reason.format(**match.groupdict()), fix
    if code < 0:
        return f"{signal.Signals(-code).name} killed it", "find out which program sent the signal"
    errors = re.findall(r"^.*\berror(?: at |: ).*$", printed, re.IGNORECASE | re.MULTILINE)
    return (f"of “{errors[0].strip()[:200]}”", "fix this") if errors else ("of an unknown error", "read the log")


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Lock the file `lock` during the block; wait if another process has locked it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another set-up to finish.", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_group(process: subprocess.Popen, grace: float = GRACE_S) -> None:
    """End the process group of `process`: SIGTERM, and SIGKILL after `grace` seconds.

    Ninja runs each compiler in its own group, and ends them after a SIGTERM.
    """
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError):  # no process is left
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
