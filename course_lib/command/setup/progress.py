"""Long steps in a terminal: numbered and timed, each child's output in a log, nothing left running.

With the standard library alone, because the set-up uses it before anything is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from course_lib.system.errors import CourseError

REDRAW_INTERVAL_S = 0.5  # of the live line
REPORT_INTERVAL_S = 30  # of a new line, where there is no terminal

# What is in the log of a failed step → what it means, what to do.
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
    (
        r"Permission denied: '?(?P<what>[^'\n]+)",
        "{what} cannot be written",
        "change its owner or permissions",
    ),
)
_FRACTION = re.compile(r"\[(\d+)/(\d+)\]")
_NEWS = re.compile(r"\s*((?:Downloading|Downloaded|Building|Built|Resolved|Prepared|Installed|Collecting) .*)")


class Failed(CourseError):
    """A step's command failed; the sentence says why, as far as its log tells."""


class Progress:
    """A sequence of `total` steps on standard error; what their commands print goes to the file `log`."""

    def __init__(self, total: int, log: Path) -> None:
        self.log = log
        self._total, self._number = total, 0
        self._out = sys.stderr
        self._live = self._out.isatty()
        self._title = self._detail = ""
        self._rest = b""  # of a line that has come in part
        self._started = self._drawn = time.monotonic()

    def __enter__(self) -> Progress:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.log.open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=self._out, flush=True)

    def note(self, detail: str) -> None:
        """Tell what the current step is at."""
        self._detail = detail
        if not self._live:
            self.say(f"      {detail}")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step, keep its line alive while it lasts, then tell the seconds that it took."""
        self._number += 1
        self._title, self._detail = title, ""
        self._started = self._drawn = time.monotonic()
        self._draw() if self._live else self.say(self._head())
        try:
            yield
        except BaseException:
            self._close("")
            raise
        self._close("done")

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Run a command to its end. Raises Failed. Whatever happens, none of its processes is left."""
        self._file.write(f"$ {' '.join(command)}\n".encode())
        self._file.flush()
        begin = self._file.tell()
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            pipe = process.stdout.fileno()
            while True:
                if select.select([pipe], [], [], REDRAW_INTERVAL_S)[0]:
                    chunk = os.read(pipe, 1 << 16)
                    if not chunk:
                        break
                    self._take(chunk)
                elif process.poll() is not None:
                    break  # what it left behind may hold the pipe open
                self._tick()
            code = process.wait()
        finally:
            end_session(process)
        if code:
            log = self._file_text(begin)
            self._file.write(f"exit code {code}\n".encode())
            reason, fix = explain(log, code)
            raise Failed(f"{self._title} failed, because {reason}: {fix} and start again. The log is {self.log}.")

    def output(self, command: Sequence[str]) -> str:
        """Run a quick command and return what it prints. Raises Failed."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self._file.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}".encode())
        if done.returncode:
            raise Failed(f"{self._title} failed. The log is {self.log}.")
        return done.stdout.strip()

    def _file_text(self, begin: int) -> str:
        self._file.flush()
        with self.log.open("rb") as file:
            file.seek(begin)
            return file.read().decode(errors="replace")

    def _take(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._file.flush()
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + chunk)
        for line in lines:
            self._detail = detail(line.decode(errors="replace")) or self._detail

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= (REDRAW_INTERVAL_S if self._live else REPORT_INTERVAL_S):
            self._drawn = now
            self._draw() if self._live else self.say(f"      {self._seconds()}  {self._detail}".rstrip())

    def _head(self) -> str:
        return f"[{self._number}/{self._total}] {self._title}"

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"

    def _draw(self) -> None:
        line = f"{self._head()}  {self._seconds()}  {self._detail}"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{line[:width]}\x1b[K", end="", file=self._out, flush=True)

    def _close(self, how: str) -> None:
        if self._live:
            self._detail = how
            self._draw()
            self.say("")
        elif how:
            self.say(f"      {how} in {self._seconds()}")


def detail(line: str) -> str:
    """What a line of a child's output says about how far it is; "" for nothing.

    >>> detail("  [37/111] Building CXX object operations.cc.o")
    '33 %'
    """
    if found := _FRACTION.search(line):
        done, total = map(int, found.groups())
        return f"{100 * done // max(total, 1)} %"
    found = _NEWS.match(line)
    return found.group(1) if found else ""


def explain(log: str, code: int = 1) -> tuple[str, str]:
    """Why a command failed and what to do about it, from what it printed and its exit code."""
    for pattern, reason, fix in _EXPLANATIONS:
        if found := re.search(pattern, log):
            return reason.format(**found.groupdict()), fix
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}", "find out by whom"
    lines = [line.strip() for line in log.splitlines() if re.search(r"\berror( at |: )", line, re.IGNORECASE)]
    return (f"“{lines[0][:200]}”" if lines else "its command gave no reason"), "mend that"


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


def end_session(process: subprocess.Popen, grace: float = 3.0) -> None:
    """End what is left of the session that `process` leads: politely, after `grace` seconds by force."""
    deadline = time.monotonic() + grace
    force = False
    while members := _session(process.pid):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
        process.poll()
        time.sleep(0.05)
        force = time.monotonic() > deadline
    process.wait()
    process.stdout.close()


def _session(leader: int) -> list[int]:
    """The living processes of a session. (Not its process group: Ninja gives each compiler its own.)"""
    members = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            members.append(pid)
    return members
