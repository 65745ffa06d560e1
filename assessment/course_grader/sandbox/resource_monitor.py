"""Measure, from outside, what runs in a sandbox: its processes, memory, files, processor time and traffic."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import psutil

TICKS_PER_S = os.sysconf("SC_CLK_TCK")  # of the kernel's clock

_NUMBER = re.compile(r"^(RssAnon|RssShmem|Threads):\s+(\d+)", re.MULTILINE)
_PROPORTIONAL = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+)", re.MULTILINE)
_CORES = re.compile(r"^Cpus_allowed_list:\s+(\S+)", re.MULTILINE)
_RECEIVED = re.compile(r"^\s*lo:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Usage:
    """What all processes of a sandbox use together.

    Attributes:
        processes, threads: how many there are.
        memory: bytes; what several processes share counts for each.
        cpu_seconds: of all cores, with what those that have ended had used when they were last seen.
        user_seconds: of these, what they used themselves, not the kernel for them: that grows with waiting, too.
    """

    processes: int = 0
    threads: int = 0
    memory: int = 0
    cpu_seconds: float = 0.0
    user_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(mine + its for mine, its in zip(astuple(self), astuple(other))))


@dataclass(frozen=True)
class ResourceSample:
    """What the ranks of a run have used up to a moment, as it is seen from outside.

    Attributes:
        time: seconds since the start of the run.
        traffic: bytes that the ranks have sent each other over the loopback device.
        user_seconds: CPU seconds of each rank, without the kernel's for it.
    """

    time: float
    traffic: int
    user_seconds: tuple[float, ...]


def disk_bytes(folder: Path) -> int:
    """Bytes that the files below a folder take."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(place, name)).st_blocks
    return total


def cores_cpu_seconds(cores: Iterable[int]) -> float | None:
    """Seconds for which these cores have computed since the host started; None where that is not known.

    What a virtual machine waits for while others have its core counts too, the kernel's work for devices does not.
    """
    wanted = {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return None
    found = [[int(ticks) for ticks in line[1:]] for line in lines if line[0] in wanted]
    if not found or len(found) < len(wanted):
        return None
    return sum(user + nice + system + stolen for user, nice, system, _, _, _, _, stolen, *_ in found) / TICKS_PER_S


class ProcessTree:
    """The processes below `root`: all of its descendants or, where one is the first of a namespace, all in that.

    Nothing can leave a namespace, and a look at it costs a few files: it lists its own processes only.
    """

    def __init__(self, root: int, namespace: bool) -> None:
        self._root, self._namespace = root, namespace
        self._first: psutil.Process | None = None
        self._ticks: dict[int, tuple[int, int]] = {}  # of the process and of the kernel for it

    def usage(self, max_processes: int) -> Usage:
        """What they use; where there are more than `max_processes`, only how many there are."""
        proc = self._inside("/proc") or Path("/proc")
        numbers = self._numbers(proc)
        if len(numbers) > max_processes:
            return Usage(len(numbers))
        threads = memory = 0
        for number in numbers:
            with contextlib.suppress(OSError):
                found = {
                    name: int(n)
                    for name, n in _NUMBER.findall((proc / str(number) / "status").read_text(errors="replace"))
                }
                threads += found.get("Threads", 0)
                memory += 1024 * (found.get("RssAnon", 0) + found.get("RssShmem", 0))
                after_name = (proc / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
                self._ticks[number] = int(after_name[11]), int(after_name[12])
        user, system = (sum(ticks) / TICKS_PER_S for ticks in zip((0, 0), *self._ticks.values()))
        return Usage(len(numbers), threads, memory, user + system, user)

    def memory(self) -> int:
        """Bytes that they use, where what several share counts once. This costs milliseconds for each process."""
        proc, total = self._inside("/proc") or Path("/proc"), 0
        for number in self._numbers(proc):
            with contextlib.suppress(OSError):
                text = (proc / str(number) / "smaps_rollup").read_text(errors="replace")
                total += 1024 * sum(map(int, _PROPORTIONAL.findall(text)))
        return total

    def cores(self) -> set[int]:
        """The cores that any of their threads may run on; the first process of a namespace only waits."""
        proc = self._inside("/proc") or Path("/proc")
        found: set[int] = set()
        for number in self._numbers(proc):
            with contextlib.suppress(OSError):
                for thread in os.listdir(proc / str(number) / "task") if number > 1 else ():
                    text = (proc / str(number) / "task" / thread / "status").read_text(errors="replace")
                    for part in ",".join(_CORES.findall(text)).split(","):
                        first, _, last = part.partition("-")
                        found.update(range(int(first), int(last or first) + 1) if first else ())
        return found

    def traffic(self) -> int | None:
        """Bytes that the loopback device of the namespace has received; None where there is no namespace."""
        if not self._inside("/"):
            return None
        with contextlib.suppress(OSError):
            if found := _RECEIVED.search(Path(f"/proc/{self._first.pid}/net/dev").read_text(errors="replace")):
                return int(found.group(1))
        return None

    def pids(self) -> set[int]:
        """Their numbers on this host, with that of `root`."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return {self._root, *(child.pid for child in psutil.Process(self._root).children(recursive=True))}
        return set()

    def kill(self) -> None:
        """End a namespace at once, however many processes it has."""
        if self._first:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._first.kill()

    def _numbers(self, proc: Path) -> list[int]:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if self._first:
                return [int(name) for name in os.listdir(proc) if name.isdigit()]
            return [child.pid for child in psutil.Process(self._root).children(recursive=True)]
        return []

    def _inside(self, folder: str) -> Path | None:
        """A folder as the first process of the namespace has it; None as long as there is none."""
        if self._namespace and not self._first:
            self._first = self._find()
        return Path(f"/proc/{self._first.pid}/root{folder}") if self._first else None

    def _find(self) -> psutil.Process | None:
        ours, here = os.readlink("/proc/self/ns/pid"), os.stat("/proc").st_dev
        with contextlib.suppress(psutil.Error, OSError):
            for process in psutil.Process(self._root).children(recursive=True):
                if os.readlink(f"/proc/{process.pid}/ns/pid") != ours:
                    ready = os.stat(f"/proc/{process.pid}/root/proc").st_dev != here
                    return process if ready else None
        return None
