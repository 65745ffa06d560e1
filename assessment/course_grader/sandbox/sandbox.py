"""A place for other people's code: no network, nothing to read but what it needs, nowhere to write but memory.

With bubblewrap (`bwrap`) each rank has namespaces of its own: it sees neither the processes of the other ranks nor
processes nor files of this host. The ranks share a loopback network that leads nowhere, and folders in memory to write
to. Horovod's launcher, which is no learner's code, stands in that network outside of the ranks' sandboxes (see
`entry`). Where bubblewrap is missing or not allowed, the script runs in a private folder, and `weaknesses` says what
that does not protect.

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

from course_grader.sandbox import bubblewrap, outbox
from course_grader.sandbox.limits import GB, MB, Monitor
from course_grader.sandbox.resource_monitor import ResourceSample
from course_lib.ranks import environment, launch
from course_lib.ranks.run import RankCommand
from course_lib.system import variables
from course_lib.system.errors import CourseError

if TYPE_CHECKING:  # each run starts with an import of this package, in its time
    from course_grader.script.contract import Limits

SCRIPT = Path("/script/assessment.py")  # as it is seen inside
FOLDER_PREFIX = "course-sandbox-"  # of temporary folders
# Starts a rank in its sandbox: each has options of its own. Its number names the process for the monitor.
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
    """Runs one script once, within limits, and takes out what it saved; a context manager.

    The properties wait for the end of the run, and raise OSError where this host can't hold what came out.

    Attributes:
        kind: "bubblewrap" or "none".
        weaknesses: sentences on what it does not protect.
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
        hosts: str | None = None,
    ) -> None:
        """Copy the script into a private folder.

        Args:
            files: what all ranks can read → where they see it.
            env: adds to the environment inside.
            seconds: the time limit; None: there is none.
            own_files: for each rank the same as `files`, which it alone can read. Without bubblewrap all ranks read
                those of the first.
            hosts: names of this host, as in `launch.start`.

        Raises CourseError (code 2) where the script can't be read.
        """
        problem = bubblewrap.available()
        self.kind = "none" if problem else "bubblewrap"
        self.weaknesses = (f"No sandbox: {problem}", *WEAKNESSES) if problem else ()
        self._gpus = launch.visible_gpus() > 0
        self._limits = replace(limits, memory=limits.gpu_memory) if self._gpus else limits
        self._ranks, self._seconds, self._hosts = range(ranks), seconds, hosts
        self._files, self._env = files, env
        self._own_files = own_files or [{} for _ in self._ranks]
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
        self, ranks: int, *, stall_timeout: float, fake_gpus: Sequence[int] = (), record: bool = True
    ) -> launch.Run:
        """Start the script on `ranks` ranks, with a `record` of their training or without one.

        The other arguments are those of `launch.Options`.

        Raises CourseError as `launch.start` does.
        """
        confined = self.kind == "bubblewrap"
        work = bubblewrap.WORK if confined else self._work  # as the script sees it
        options = launch.Options(
            hosts=self._hosts,
            cwd=work,
            stall_timeout=stall_timeout,
            record=work / outbox.RECORD if record else None,
            output_limit=self._limits.output * MB,
            cores=tuple(self._cores),
            fake_gpus=tuple(fake_gpus),
            confine=self._shut_in if confined else self._cleaned,
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
        """The folder with `weights.h5` and `record/rank-R.…`, as far as they came out."""
        self._ended()
        return self._private / "taken"

    @property
    def samples(self) -> tuple[ResourceSample, ...]:
        """What each rank computed and all sent each other, at one moment after the other; () without bubblewrap."""
        return tuple(self._ended().samples)

    @property
    def others(self) -> float | None:
        """The part of its cores' time, from 0 to 1, that other programs had; None where that is not known."""
        return self._ended().others

    @property
    def device_processes(self) -> dict[int, frozenset[str]] | None:
        """Rank → UUIDs of the GPUs on which the driver listed a process of this rank; None where it listed none."""
        return self._ended().device_processes

    @property
    def ended_by(self) -> str:
        """The sentence on the limit that ended the run; "" where none did."""
        return self._ended().ended_by

    def _ended(self) -> Monitor:
        self._monitor.join()
        if self._monitor.problem:
            raise self._monitor.problem
        with contextlib.suppress(FileNotFoundError):
            number = int(os.readlink(self._private / "problem"))
            raise OSError(number, os.strerror(number), str(self._private))
        return self._monitor

    def _shut_in(self, command: RankCommand) -> RankCommand:
        """What runs `command` with a sandbox around each rank."""
        room = self._private / "room"
        records = [room / f"record-{rank}" for rank in self._ranks]
        shared = {room / "shm": Path("/dev/shm"), room / "tmp": Path("/tmp"), self._work: bubblewrap.WORK}
        mounts = [*shared, *records]
        for folder in mounts:
            folder.mkdir(parents=True)
        bound = [*shared.items()]
        mpi = "--mpi" in command.launcher
        if mpi:  # its ranks meet in a folder that has one name for them and for the launcher
            bound.append((room / "tmp", room / "tmp"))
        for rank in self._ranks:
            writable = [*bound, (records[rank], bubblewrap.WORK / outbox.RECORD)]
            readable = {**self._files, self._private / "script": SCRIPT.parent, **self._own_files[rank]}
            # MPI's ranks must be of one user, as the launcher sees it.
            words = bubblewrap.rank_options(0 if mpi else 1000, writable, readable, self._inside(bubblewrap.WORK))
            (self._private / f"options-{rank}").write_text("\0".join([*words, ""]))
        bubblewrap.write_filter(self._private)
        fds = {"options": bubblewrap.OPTIONS_FD, "filter": bubblewrap.FILTER_FD}
        starter = self._private / "rank.sh"
        starter.write_text(_STARTER.format(program=shlex.quote(bubblewrap.program()), **fds))
        launcher = (*bubblewrap.own_network(), *self._entry(command, records, mounts))
        env = {**bubblewrap.passed(command.env), **bubblewrap.python_environment(), "TMPDIR": str(room / "tmp")}
        task = replace(command.task, script=str(SCRIPT))
        return RankCommand(launcher, env, task, wrapper=("/bin/sh", str(starter)), temporary=self._private)

    def _cleaned(self, command: RankCommand) -> RankCommand:
        """What runs `command` in a private folder and with a clean environment, where there is no bubblewrap."""
        files = {**self._files, **self._own_files[0]}
        inside = bubblewrap.linked(self._inside(self._work), files, self._private / "root")
        launcher = self._entry(command, [self._work / outbox.RECORD for _ in self._ranks], [])
        env = {**bubblewrap.passed(command.env), **bubblewrap.python_environment(), **inside}
        return replace(command, launcher=launcher, env=env, temporary=self._private)

    def _inside(self, work: Path) -> dict[str, str]:
        """What the script finds in its environment; `work` is the folder that it works in, as it sees it."""
        return {
            **({} if self._gpus else environment.ONE_THREAD),
            variables.WEIGHTS: str(work / outbox.WEIGHTS),
            "HOME": str(work / "home"),
            "TMPDIR": str(work / "tmp"),
            **self._env,
        }

    def _entry(self, command: RankCommand, records: Sequence[Path], mounts: Sequence[Path]) -> tuple[str, ...]:
        """What runs the launcher of `command` below `entry`."""
        spec = {
            "work": str(self._work),
            "records": list(map(str, records)),
            "taken": str(self._private / "taken"),
            "mounts": list(map(str, mounts)),
            "memory": 0 if self._gpus else int(self._limits.memory * GB),
            "disk": self._limits.disk * MB,
            "cores": self._cores,
        }
        return (sys.executable, "-m", "course_grader.sandbox.entry", json.dumps(spec), *command.launcher)
