"""Follow a run in the sandbox from outside: sample what its ranks use, end it where it exceeds a limit."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_grader.sandbox import devices
from course_grader.sandbox.resource_monitor import ProcessTree, ResourceSample, Usage, cores_cpu_seconds, disk_bytes
from course_lib.ranks import launch

if TYPE_CHECKING:  # each run starts with an import of this package, in its time
    from course_grader.script.contract import Limits

POLL_INTERVAL_S = 0.2  # between two samples
CORE_CHECK_POLLS = 10  # from one look at their cores to the next: it costs milliseconds of these cores
DEVICE_POLL_INTERVAL_S = 2.0
OVERHEAD_PROCESSES = 13  # of the sandbox and of the launcher, for each rank
THREADS_PER_PROCESS = 64  # for each process that is allowed: TensorFlow starts dozens
MB, GB = 2**20, 2**30


class Monitor(threading.Thread):
    """Follows a run until its end. The attributes are complete when the thread has ended.

    Attributes:
        samples: what each rank computed and all sent each other, at one moment after the other; () without bubblewrap.
        others: the part, from 0 to 1, of its cores' time that other programs had, when they were looked at last; None
            where that is not known.
        ended_by: "" or the sentence on the limit that ended the run.
        device_processes: rank → UUIDs of the GPUs that its processes computed on; None where nothing lists them.
        problem: what went wrong here, if anything did: the run was ended then, for nothing runs without limits.
    """

    def __init__(
        self, run: launch.Run, limits: Limits, ranks: int, cores: Sequence[int], pids: Sequence[Path], files: Path
    ) -> None:
        """`limits.memory` is that of these ranks. `cores`: those that they may run on; none where they have GPUs, and
        all cores. `pids`: for each rank the file that holds, once it has started, the number of the process that its
        sandbox hangs on; none without bubblewrap, where the size of the folder `files` is limited here."""
        super().__init__(daemon=True)
        self.samples: list[ResourceSample] = []
        self.others: float | None = None
        self.ended_by = ""
        self.device_processes: dict[int, frozenset[str]] | None = None
        self.problem: Exception | None = None
        self._run, self._limits, self._number, self._cores = run, limits, ranks, cores
        self._pids, self._files = pids, files
        self._everything = ProcessTree(run.pid, namespace=False)  # the launcher too
        self._trees = {} if pids else {0: self._everything}  # rank → its processes
        self._usages: dict[int, Usage] = {}
        self._began, self._cpu_before = time.monotonic(), cores_cpu_seconds(cores)

    def run(self) -> None:
        """Called by `start`."""
        watching = threading.Thread(target=self._watch_devices, daemon=True)
        try:
            if self._pids and not self._cores:
                watching.start()
            self._enforce()
        except Exception as error:
            self.problem = error
            self._run.stop()
        result = self._run.wait()
        if result.code in (launch.TIMED_OUT, launch.STOPPED):
            self.ended_by = result.message
        if watching.ident:
            watching.join()

    def _enforce(self) -> None:
        for poll in itertools.count(1):
            if not self._run.running:
                return
            self._enter_ranks()
            reason = self._exceeded(self._sample(), poll)
            if reason:
                self._run.stop(reason)
                for tree in self._trees.values():
                    tree.kill()
                return
            self._run.join(POLL_INTERVAL_S)

    def _enter_ranks(self) -> None:
        for rank, path in enumerate(self._pids):
            if rank not in self._trees:
                with contextlib.suppress(OSError, ValueError):
                    self._trees[rank] = ProcessTree(int(path.read_text()), namespace=True)

    @property
    def _max_processes(self) -> int:
        return (self._limits.processes + OVERHEAD_PROCESSES) * self._number

    def _sample(self) -> Usage:
        """What all ranks use now."""
        self._usages.update({rank: tree.usage(self._max_processes) for rank, tree in self._trees.items()})
        counts = [count for tree in self._trees.values() if (count := tree.traffic()) is not None]
        if counts:
            seconds = tuple(self._usages.get(rank, Usage()).user_seconds for rank in range(self._number))
            self.samples.append(ResourceSample(time.monotonic() - self._began, max(counts), seconds))
        return sum(self._usages.values(), Usage())

    def _exceeded(self, usage: Usage, poll: int) -> str:
        """The sentence on the limit that is exceeded; "" where none is."""
        limits, most = self._limits, self._limits.memory * GB * self._number
        if usage.processes > self._max_processes or usage.threads > self._max_processes * THREADS_PER_PROCESS:
            return f"It started more than {limits.processes} processes for each rank."
        if usage.memory > most and sum(tree.memory() for tree in self._trees.values()) > most:
            return (
                f"It used more than {limits.memory * self._number:g} GB of memory, {limits.memory:g} GB for each rank: "
                "what its processes hold in the host's memory counts, not the files that they read nor a GPU's memory."
            )
        if not self._pids and disk_bytes(self._files) > limits.disk * MB:
            return f"It wrote more than {limits.disk} MB of files."
        if poll % CORE_CHECK_POLLS == 0 and self._cores:
            if not set().union(*(tree.cores() for tree in self._trees.values())) <= set(self._cores):
                return "It left the cores that it was given, one for each rank."
            if self._cpu_before is not None:
                had = cores_cpu_seconds(self._cores) - self._cpu_before
                own = self._everything.usage(self._max_processes + OVERHEAD_PROCESSES).cpu_seconds
                had -= max(own, usage.cpu_seconds)
                self.others = max(0.0, had / (len(self._cores) * (time.monotonic() - self._began)))
        return ""

    def _watch_devices(self) -> None:
        seen: dict[int, set[str]] = {rank: set() for rank in range(self._number)}
        while self._run.running:
            listed = devices.processes()
            ours = {pid: rank for rank, tree in list(self._trees.items()) for pid in tree.pids()} if listed else {}
            for pid, uuid in listed:
                if pid in ours:
                    seen[ours[pid]].add(uuid)
            if any(seen.values()):
                self.device_processes = {rank: frozenset(uuids) for rank, uuids in seen.items()}
            self._run.join(DEVICE_POLL_INTERVAL_S)
