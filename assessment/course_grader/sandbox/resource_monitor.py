"""Measure from outside the resources that a sandbox uses: processes, memory, files, CPU time, network traffic."""

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
    """The resources that all processes of a sandbox use together.

    Attributes:
        processes, threads: their numbers.
        memory: bytes; memory that several processes share counts for each of them.
        cpu_seconds: user and kernel CPU seconds; for ended processes, those at the last sample.
        user_seconds: user CPU seconds only, because kernel seconds also grow while a process waits.
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
    """The resources that the ranks of a run have used since its start.

    Attributes:
        time: seconds since the start of the run.
        traffic: bytes that the ranks have sent each other over the loopback device.
        user_seconds: user CPU seconds of each rank.
    """

    time: float
    traffic: int
    user_seconds: tuple[float, ...]


def disk_bytes(folder: Path) -> int:
    """Return the bytes on disk of the files below a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += 512 * os.lstat(os.path.join(parent, name)).st_blocks
    return total


def cores_cpu_seconds(cores: Iterable[int]) -> float | None:
    """Return the CPU seconds of these cores since the host started; None if unknown.

    They include the time that other virtual machines took (steal time), but not interrupts.
    """
    wanted = {f"cpu{core}" for core in cores}
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return None
    rows = [[int(ticks) for ticks in line[1:]] for line in lines if line[0] in wanted]
    if not rows or len(rows) < len(wanted):
        return None
    return sum(user + nice + system + stolen for user, nice, system, _, _, _, _, stolen, *_ in rows) / TICKS_PER_S


class ProcessTree:
    """The descendants of the process `root` or, with `namespace`, all processes of the PID namespace below it.

    No process can leave a PID namespace, and it is fast to read: its /proc lists its own processes only.
    """

    def __init__(self, root: int, namespace: bool) -> None:
        self._root, self._namespace = root, namespace
        self._first: psutil.Process | None = None
        self._ticks: dict[int, tuple[int, int]] = {}  # process id → user and kernel ticks

    def usage(self, max_processes: int) -> Usage:
        """Return the usage of all processes; if there are more than `max_processes`, only their number."""
        proc = self._inside("/proc") or Path("/proc")
        pids = self._pids_in(proc)
        if len(pids) > max_processes:
            return Usage(len(pids))
        threads = memory = 0
        for pid in pids:
            with contextlib.suppress(OSError):
                status = (proc / str(pid) / "status").read_text(errors="replace")
                fields = {name: int(value) for name, value in _NUMBER.findall(status)}
                threads += fields.get("Threads", 0)
                memory += 1024 * (fields.get("RssAnon", 0) + fields.get("RssShmem", 0))
                after_name = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
                self._ticks[pid] = int(after_name[11]), int(after_name[12])
        user, system = (sum(ticks) / TICKS_PER_S for ticks in zip((0, 0), *self._ticks.values()))
        return Usage(len(pids), threads, memory, user + system, user)

    def memory(self) -> int:
        """Return the bytes of memory; shared memory counts once. This takes milliseconds for each process."""
        proc, total = self._inside("/proc") or Path("/proc"), 0
        for pid in self._pids_in(proc):
            with contextlib.suppress(OSError):
                text = (proc / str(pid) / "smaps_rollup").read_text(errors="replace")
                total += 1024 * sum(map(int, _PROPORTIONAL.findall(text)))
        return total

    def cores(self) -> set[int]:
        """Return the cores on which any thread may run; ignore the first process of a namespace, which only waits."""
        proc = self._inside("/proc") or Path("/proc")
        cores: set[int] = set()
        for pid in self._pids_in(proc):
            with contextlib.suppress(OSError):
                for thread in os.listdir(proc / str(pid) / "task") if pid > 1 else ():
                    text = (proc / str(pid) / "task" / thread / "status").read_text(errors="replace")
                    for part in ",".join(_CORES.findall(text)).split(","):
                        first, _, last = part.partition("-")
                        cores.update(range(int(first), int(last or first) + 1) if first else ())
        return cores

    def traffic(self) -> int | None:
        """Return the bytes that the loopback device of the namespace has received; None without a namespace."""
        if not self._inside("/"):
            return None
        with contextlib.suppress(OSError):
            if match := _RECEIVED.search(Path(f"/proc/{self._first.pid}/net/dev").read_text(errors="replace")):
                return int(match.group(1))
        return None

    def pids(self) -> set[int]:
        """Return their process ids on this host, with that of `root`."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return {self._root, *(child.pid for child in psutil.Process(self._root).children(recursive=True))}
        return set()

    def kill(self) -> None:
        """Kill all processes of a namespace at once."""
        if self._first:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._first.kill()

    def _pids_in(self, proc: Path) -> list[int]:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if self._first:
                return [int(name) for name in os.listdir(proc) if name.isdigit()]
            return [child.pid for child in psutil.Process(self._root).children(recursive=True)]
        return []

    def _inside(self, folder: str) -> Path | None:
        """Return the path of a folder as the namespace's first process sees it; None if there is no process yet."""
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
