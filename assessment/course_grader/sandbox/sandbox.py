"""Run learners' code in a sandbox: it has no network, reads only the files that it needs, and writes only to memory.

With bubblewrap (`bwrap`) each rank has its own namespaces: it sees neither other ranks' processes nor the processes
and files of this host. The ranks share a loopback network without access to other networks, and folders in memory.
Horovod's launcher, which is not learners' code, runs in this network, but outside of the ranks' sandboxes (see
`entry`). If bubblewrap is missing or not allowed, the script runs in a private folder, and `weaknesses` lists what is
then unprotected.

    with Sandbox(script, limits, 2, files={...}, env={}, seconds=240) as sandbox:
        run = sandbox.start(2, stall_timeout=60)
        result = run.wait()
        sandbox.folder, sandbox.samples, sandbox.ended_by
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from course_grader.sandbox import bubblewrap, gpu_kernels, outbox
from course_grader.sandbox.limits import GB, MB, Monitor
from course_grader.sandbox.resource_monitor import ResourceSample
from course_lib.ranks import environment, launch
from course_lib.ranks.run import RankCommand
from course_lib.system import variables
from course_lib.system.errors import CourseError

if TYPE_CHECKING:  # each run imports this package within its time limit
    from course_grader.script.contract import Limits

SCRIPT = Path("/script/assessment.py")  # its path in the sandbox
FOLDER_PREFIX = "course-sandbox-"  # of temporary folders
# Starts a rank in its sandbox, with the rank's options; the file pid-RANK names the process for the monitor.
_STARTER = """\
folder=${{0%/*}}
rank=${{HOROVOD_RANK:-${{OMPI_COMM_WORLD_RANK:-0}}}}
echo $$ > "$folder/pid-$rank"
exec {program} --args {options} -- "$@" {options}< "$folder/options-$rank" {filter}< "$folder/filter"
"""
WEAKNESSES = (
    "The script can use the network.",
    "It can read every file that you can read, the test images and the reference solution among them.",
    "It can change and remove your files.",
    "It can end your processes, also the one that watches it.",
)


class Sandbox:
    """Runs one script once, within limits, and copies out its saved files; a context manager.

    The properties wait for the end of the run. They raise OSError if this host has no room for the copied files.

    Attributes:
        kind: "bubblewrap" or "none".
        weaknesses: sentences on what the sandbox does not protect.
    """

    def __init__(
        self,
        script: Path,
        limits: Limits,
        ranks: int,
        *,
        files: Mapping[Path, Path],
        env: Mapping[str, str],
        seconds: float | None,
        own_files: Sequence[Mapping[Path, Path]] = (),
    ) -> None:
        """Copy the script into a private folder.

        Args:
            script, limits, ranks: the script, the limits for each rank, and the number of ranks.
            files: path on this host → path in the sandbox, of files that all ranks can read.
            env: additional environment variables.
            seconds: the time limit; None: no limit.
            own_files: like `files`, for each rank: files that only this rank can read. Without bubblewrap all ranks
                read those of rank 0.

        Raises CourseError (code 2) if the script cannot be read.
        """
        problem = bubblewrap.available()
        self.kind = "none" if problem else "bubblewrap"
        self.weaknesses = (f"No sandbox: {problem}", *WEAKNESSES) if problem else ()
        self._gpus = launch.visible_gpus() > 0
        self._limits = replace(limits, memory=limits.gpu_memory) if self._gpus else limits
        self._ranks, self._seconds = range(ranks), seconds
        self._files, self._env = files, env
        self._own_files = own_files or [{} for _ in self._ranks]
        self._kernels = gpu_kernels.folder() if self._gpus and not problem else None
        self._cores = [] if self._gpus else sorted(os.sched_getaffinity(0))[:ranks]
        self._run: launch.Run | None = None
        self._monitor: Monitor | None = None
        self._private = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self._work = self._private / "room" / "work"
        try:
            (self._private / "script").mkdir()
            shutil.copyfile(script, self._private / "script" / SCRIPT.name)
        except OSError as error:
            self.__exit__()
            raise CourseError(f"The script {script} cannot be read: {error.strerror}.", code=2) from None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        if self._run:
            self._run.stop()
            self._run.wait()
        if self._monitor:
            self._monitor.join()
        shutil.rmtree(self._private, ignore_errors=True)

    def start(
        self,
        ranks: int,
        *,
        stall_timeout: float,
        fake_gpus: Sequence[int] = (),
        record: bool = True,
        hosts: str | None = None,
    ) -> launch.Run:
        """Start the script on `ranks` ranks, with or without a `record` of their training.

        The other arguments are those of `launch.Options`.

        Raises CourseError as `launch.start` does.
        """
        confined = self.kind == "bubblewrap"
        work = bubblewrap.WORK if confined else self._work  # its path in the sandbox
        options = launch.Options(
            hosts=hosts,
            cwd=work,
            stall_timeout=stall_timeout,
            record=work / outbox.RECORD if record else None,
            output_limit=self._limits.output * MB,
            cores=tuple(self._cores),
            fake_gpus=tuple(fake_gpus),
            confine=self._confined if confined else self._unconfined,
            confined=confined,
        )
        script = self._private / "script" / SCRIPT.name
        self._run = launch.start(script, ranks=ranks, timeout=self._seconds, options=options)
        pids = [self._private / f"pid-{rank}" for rank in range(ranks)] if confined else []
        self._monitor = Monitor(self._run, self._limits, ranks, self._cores, pids, self._work)
        self._monitor.start()
        return self._run

    @property
    def folder(self) -> Path:
        """The folder with the copies of `weights.h5` and `record/rank-R.…`, if they exist."""
        self._ended()
        return self._private / "copied"

    @property
    def samples(self) -> tuple[ResourceSample, ...]:
        """CPU seconds and traffic of the ranks over time; () without bubblewrap."""
        return tuple(self._ended().samples)

    @property
    def others(self) -> float | None:
        """The fraction of its cores' time, from 0 to 1, that other programs used; None if unknown."""
        return self._ended().others

    @property
    def device_processes(self) -> dict[int, frozenset[str]] | None:
        """Rank → UUIDs of the GPUs on which the driver listed a process of this rank; None if it listed none."""
        return self._ended().device_processes

    @property
    def ended_by(self) -> str:
        """The sentence about the limit that ended the run; "" if none did."""
        return self._ended().ended_by

    def _ended(self) -> Monitor:
        """Wait for the end of the run; return its monitor, or raise its error or that of copying the files."""
        self._monitor.join()
        if self._monitor.problem:
            raise self._monitor.problem
        with contextlib.suppress(FileNotFoundError):
            number = int(os.readlink(self._private / "problem"))
            raise OSError(number, os.strerror(number), str(self._private))
        return self._monitor

    def _confined(self, command: RankCommand) -> RankCommand:
        """Return the command that runs `command` with a sandbox around each rank."""
        room = self._private / "room"
        records = [room / f"record-{rank}" for rank in self._ranks]
        shared = {room / "shm": Path("/dev/shm"), room / "tmp": Path("/tmp"), self._work: bubblewrap.WORK}
        mounts = dict.fromkeys([*shared, *records], self._limits.disk * MB)
        kernels = [room / f"kernels-{rank}" for rank in self._ranks] if self._kernels else []
        if self._kernels:
            mounts.update(dict.fromkeys(kernels, gpu_kernels.size_of_copy(self._kernels)))
        for folder in mounts:
            folder.mkdir(parents=True)
        bound = [*shared.items()]
        mpi = "--mpi" in command.launcher
        if mpi:  # the launcher tells the ranks the path of a folder in which they connect
            bound.append((room / "tmp", room / "tmp"))
        for rank in self._ranks:
            writable = [*bound, (records[rank], bubblewrap.WORK / outbox.RECORD)]
            if self._kernels:
                writable.append((kernels[rank], gpu_kernels.IN_SANDBOX))
            readable = {**self._files, self._private / "script": SCRIPT.parent, **self._own_files[rank]}
            # MPI requires the same user id for the launcher, which is root in its namespace, and for the ranks.
            options = bubblewrap.rank_options(0 if mpi else 1000, writable, readable, self._variables(bubblewrap.WORK))
            (self._private / f"options-{rank}").write_text("\0".join([*options, ""]))
        bubblewrap.write_filter(self._private)
        fds = {"options": bubblewrap.OPTIONS_FD, "filter": bubblewrap.FILTER_FD}
        starter = self._private / "rank.sh"
        starter.write_text(_STARTER.format(program=shlex.quote(bubblewrap.program()), **fds))
        launcher = (*bubblewrap.own_network(), *self._entry(command, records, mounts, kernels))
        env = {**bubblewrap.passed(command.env), **bubblewrap.python_environment(), "TMPDIR": str(room / "tmp")}
        task = replace(command.task, script=str(SCRIPT))
        return RankCommand(launcher, env, task, wrapper=("/bin/sh", str(starter)), temporary=self._private)

    def _unconfined(self, command: RankCommand) -> RankCommand:
        """Return the command that runs `command` without bubblewrap: in a private folder, with a clean environment."""
        files = {**self._files, **self._own_files[0]}
        variables = bubblewrap.linked(self._variables(self._work), files, self._private / "root")
        launcher = self._entry(command, [self._work / outbox.RECORD for _ in self._ranks], {}, [])
        env = {**bubblewrap.passed(command.env), **bubblewrap.python_environment(), **variables}
        return replace(command, launcher=launcher, env=env, temporary=self._private)

    def _variables(self, work: Path) -> dict[str, str]:
        """Return the environment variables of the script; `work` is its working directory, as the script sees it."""
        return {
            **({} if self._gpus else environment.ONE_THREAD),
            variables.WEIGHTS: str(work / outbox.WEIGHTS),
            "HOME": str(work / "home"),
            "TMPDIR": str(work / "tmp"),
            **(gpu_kernels.variables(gpu_kernels.IN_SANDBOX) if self._kernels else {}),
            **self._env,
        }

    def _entry(
        self, command: RankCommand, records: Sequence[Path], mounts: Mapping[Path, int], kernels: Sequence[Path]
    ) -> tuple[str, ...]:
        """Return the command that runs the launcher of `command` below `entry`."""
        spec = {
            "work": str(self._work),
            "records": list(map(str, records)),
            "copied": str(self._private / "copied"),
            "mounts": {str(folder): size for folder, size in mounts.items()},
            "kernels": {str(self._kernels): list(map(str, kernels))} if kernels else {},
            "memory": 0 if self._gpus else int(self._limits.memory * GB),
            "disk": self._limits.disk * MB,
            "cores": self._cores,
        }
        return (sys.executable, "-m", "course_grader.sandbox.entry", json.dumps(spec), *command.launcher)
