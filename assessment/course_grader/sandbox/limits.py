"""Monitor a run in the sandbox from outside: sample what its ranks use, and end the run if it exceeds a limit."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_grader.sandbox.resource_monitor import ProcessTree, ResourceSample, Usage, cores_cpu_seconds, disk_bytes
from course_lib.ranks import launch
from course_lib.system import gpus

if TYPE_CHECKING:  # each run imports this package within its time limit
    from course_grader.script.contract import Limits

POLL_INTERVAL_S = 0.2  # between two samples
CORE_CHECK_POLLS = 10  # samples between two checks of the cores: a check costs milliseconds of these cores
DEVICE_POLL_INTERVAL_S = 2.0
DEVICE_TIMEOUT_S = 10.0  # a faulty driver never answers
OVERHEAD_PROCESSES = 13  # of the sandbox and of the launcher, for each rank
THREADS_PER_PROCESS = 64  # for each allowed process: TensorFlow starts dozens of threads
MB, GB = 2**20, 2**30


class Monitor(threading.Thread):
    """Monitors a run until its end. The attributes are complete when the thread has ended.

    Attributes:
        samples: CPU seconds and traffic of the ranks over time; [] without bubblewrap.
        others: fraction of its cores' time that other programs used until the last check, 0 to 1; None if unknown.
        ended_by: the sentence about the limit that ended the run; "" if none did.
        device_processes: rank → UUIDs of the GPUs that its processes computed on; None if the driver listed none.
        problem: an error of the monitor itself; it ends the run, because nothing may run without limits.
    """

    def __init__(
        self, run: launch.Run, limits: Limits, ranks: int, cores: Sequence[int], pids: Sequence[Path], files: Path
    ) -> None:
        """Prepare to monitor `run`.

        Args:
            run, ranks: the run and its number of ranks.
            limits: limits for each rank.
            cores: cores that the ranks may use; empty: all cores, for ranks on GPUs.
            pids: for each rank the file that will hold the process id of its sandbox; empty without bubblewrap.
            files: the folder that the ranks write to; without bubblewrap the monitor limits its size.
        """
        super().__init__(daemon=True)
        self.samples: list[ResourceSample] = []
        self.others: float | None = None
        self.ended_by = ""
        self.device_processes: dict[int, frozenset[str]] | None = None
        self.problem: Exception | None = None
        self._run, self._limits, self._number, self._cores = run, limits, ranks, cores
        self._pids, self._files = pids, files
        self._all_processes = ProcessTree(run.pid, namespace=False)  # with the launcher
        self._trees = {} if pids else {0: self._all_processes}  # rank → its processes
        self._usages: dict[int, Usage] = {}
        self._began, self._cpu_before = time.monotonic(), cores_cpu_seconds(cores)

    def run(self) -> None:
        """Monitor the run. `start` calls this method."""
        device_monitor = threading.Thread(target=self._monitor_devices, daemon=True)
        try:
            if self._pids and not self._cores:
                device_monitor.start()
            self._enforce()
        except Exception as error:
            self.problem = error
            self._run.stop()
        result = self._run.wait()
        if result.code in (launch.TIMED_OUT, launch.STOPPED):
            self.ended_by = result.message
        if device_monitor.ident:
            device_monitor.join()

    def _enforce(self) -> None:
        for poll in itertools.count(1):
            if not self._run.running:
                return
            self._find_ranks()
            reason = self._exceeded(self._sample(), poll)
            if reason:
                self._run.stop(reason)
                for tree in self._trees.values():
                    tree.kill()
                return
            self._run.join(POLL_INTERVAL_S)

    def _find_ranks(self) -> None:
        for rank, path in enumerate(self._pids):
            if rank not in self._trees:
                with contextlib.suppress(OSError, ValueError):
                    self._trees[rank] = ProcessTree(int(path.read_text()), namespace=True)

    @property
    def _max_processes(self) -> int:
        return (self._limits.processes + OVERHEAD_PROCESSES) * self._number

    def _sample(self) -> Usage:
        """Append a sample; return what all ranks use now."""
        self._usages.update({rank: tree.usage(self._max_processes) for rank, tree in self._trees.items()})
        counts = [count for tree in self._trees.values() if (count := tree.traffic()) is not None]
        if counts:
            seconds = tuple(self._usages.get(rank, Usage()).user_seconds for rank in range(self._number))
            self.samples.append(ResourceSample(time.monotonic() - self._began, max(counts), seconds))
        return sum(self._usages.values(), Usage())

    def _exceeded(self, usage: Usage, poll: int) -> str:
        """Return the sentence about the limit that the run exceeds; "" if it exceeds none."""
        limits, max_memory = self._limits, self._limits.memory * GB * self._number
        if usage.processes > self._max_processes or usage.threads > self._max_processes * THREADS_PER_PROCESS:
            return f"It started more than {limits.processes} processes for each rank."
        if usage.memory > max_memory and sum(tree.memory() for tree in self._trees.values()) > max_memory:
            return (
                f"It used more than {limits.memory * self._number:g} GB of memory, {limits.memory:g} GB for each rank. "
                "This counts the host memory of its processes, but not cached files or GPU memory."
            )
        if not self._pids and disk_bytes(self._files) > limits.disk * MB:
            return f"It wrote more than {limits.disk} MB of files."
        if poll % CORE_CHECK_POLLS == 0 and self._cores:
            if not set().union(*(tree.cores() for tree in self._trees.values())) <= set(self._cores):
                return "It ran on cores other than those assigned to its ranks."
            if self._cpu_before is not None:
                cores_cpu = cores_cpu_seconds(self._cores) - self._cpu_before
                own_cpu = self._all_processes.usage(self._max_processes + OVERHEAD_PROCESSES).cpu_seconds
                others_cpu = cores_cpu - max(own_cpu, usage.cpu_seconds)
                self.others = max(0.0, others_cpu / (len(self._cores) * (time.monotonic() - self._began)))
        return ""

    def _monitor_devices(self) -> None:
        devices_of: dict[int, set[str]] = {rank: set() for rank in range(self._number)}
        while self._run.running:
            listed = gpus.processes(DEVICE_TIMEOUT_S)
            rank_of = {pid: rank for rank, tree in list(self._trees.items()) for pid in tree.pids()} if listed else {}
            for pid, uuid in listed:
                if pid in rank_of:
                    devices_of[rank_of[pid]].add(uuid)
            if any(devices_of.values()):
                self.device_processes = {rank: frozenset(uuids) for rank, uuids in devices_of.items()}
            self._run.join(DEVICE_POLL_INTERVAL_S)
