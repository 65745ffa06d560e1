"""The commands of the set-up: their output in a log, a line that shows how far they are, one sentence when they fail.

With the standard library alone, because the set-up uses it before anything is installed.
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
GRACE_S = 3.0  # between asking processes to end and killing them
LINE_WIDTH = 79

# A pattern in what a failed command printed → the reason, what to do.
_EXPLANATIONS = (
    (r"No space left on device|Disk quota exceeded", "the disk is full", "free about 3 GB"),
    (r"Killed signal terminated program|out of memory", "memory ran out", "close other programs"),
    (
        r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate|UnknownIssuer",
        "the package index has a certificate that is not known here",
        "set SSL_CERT_FILE to your organisation's certificates",
    ),
    (
        r"name resolution|resolve host|dns error|Network is unreachable|Connection refused|connect error"
        r"|error sending request|[Tt]imed? ?out|NewConnectionError|Failed to fetch",
        "the package index could not be reached",
        "check the network (and https_proxy)",
    ),
    (r"fatal error: (?P<what>\S+): No such file", "{what} is missing", "install the package that has it"),
    (r"Permission denied: '?(?P<what>[^'\n]+)", "{what} cannot be written", "change its owner or permissions"),
)


class Failed(CourseError):
    """A step's command failed; the sentence says why, as far as its output tells."""


class Steps:
    """A sequence of `total` steps, named on standard error; what their commands print goes to the file `log`."""

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
        """Announce a step; at its end, say how many seconds it took."""
        self._number, self._title, began = self._number + 1, title, time.monotonic()
        self.say(f"[{self._number}/{self._total}] {title}")
        yield
        self.say(f"      done in {time.monotonic() - began:.0f} s")

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
        """Run a command to its end and return what it printed; none of its processes is left, whatever happens.

        Raises Failed where its exit code is not 0.
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
            raise Failed(f"{self._title} failed, because {reason}: {fix} and start again. The log is {self.log}.")
        return printed

    def _wait(self, process: subprocess.Popen, begin: int) -> int:
        """Wait for the command, with the seconds and its latest line shown meanwhile; return its exit code."""
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
        """Print a line of progress; in a terminal in the place of the one before."""
        print(f"{line:<{LINE_WIDTH}}\r" if terminal else f"{line}\n", end="", file=sys.stderr, flush=True)

    def _printed(self, begin: int) -> str:
        return self.log.read_bytes()[begin:].decode(errors="replace")


def explain(printed: str, code: int = 1) -> tuple[str, str]:
    """Why a command failed and what to do about it, from what it printed and its exit code."""
    for pattern, reason, fix in _EXPLANATIONS:
        if match := re.search(pattern, printed):
            return reason.format(**match.groupdict()), fix
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}", "find out by whom"
    errors = re.findall(r"^.*\berror(?: at |: ).*$", printed, re.IGNORECASE | re.MULTILINE)
    return f"“{errors[0].strip()[:200]}”" if errors else "its command gave no reason", "correct that"


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold the file `lock` while the block runs; wait for whoever holds it now."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another set-up to end.", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_group(process: subprocess.Popen, grace: float = GRACE_S) -> None:
    """End what is left of the process group that `process` leads: politely, after `grace` seconds by force.

    Ninja gives each compiler a group of its own, and ends them when it is asked to end.
    """
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
