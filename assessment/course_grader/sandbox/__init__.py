"""A place for other people's code: no network, nothing to read but what it needs, nowhere to write but memory.

With bubblewrap (`bwrap`) each rank has namespaces of its own: it sees neither the processes of the other ranks nor
processes nor files of this host. The ranks share a loopback network that leads nowhere, and folders in memory to write
to. Horovod's launcher, which is no learner's code, stands in that network outside of the ranks' sandboxes (see
`entry`). Where bubblewrap is missing or not allowed, the script runs in a private folder, and `weaknesses` says what
that does not protect.

    with Sandbox(script, limits, ranks=2, files={...}, seconds=240) as sandbox:
        run = sandbox.start(2, patience=60)
        result = run.wait()
        sandbox.folder, sandbox.use, sandbox.ended_by
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from course_grader.sandbox import bubblewrap, outbox, system_calls
from course_grader.sandbox.resource_monitor import ProcessTree, Usage, cores_cpu_seconds, disk_bytes
from course_lib.ranks import environment, launch
from course_lib.ranks.run import RankCommand, rank_program
from course_lib.ranks.run_record import Moment
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

if TYPE_CHECKING:  # each run starts with an import of this package, in its time
    from course_grader.script.contract import Limits

SCRIPT, MARKS = Path("/script/assessment.py"), Path("/marks.json")  # as they are seen inside
POLL_INTERVAL_S = 0.2  # between two looks at what the processes use
CORE_CHECK_POLLS = 10  # from one look at their cores to the next: it costs milliseconds of these cores
OVERHEAD_PROCESSES = 13  # of the sandbox and of the launcher, for each rank
THREADS_PER_PROCESS = 64  # for each process that is allowed: TensorFlow starts dozens
FOLDER_PREFIX = "course-sandbox-"  # of temporary folders
STALE_AFTER_S = 24 * 3600  # nobody uses such a folder any more
MB, GB = 2**20, 2**30
# Starts a rank in its sandbox: each has options of its own. Its number names the process for the grader.
_STARTER = """\
rank=${{HOROVOD_RANK:-${{OMPI_COMM_WORLD_RANK:-{first}}}}}
echo $$ > {folder}/pid-$rank
exec {program} --args 3 {filter} -- "$@" 3< {folder}/options-$rank 4< {folder}/filter
"""
WEAKNESSES = (
    "The script can use the network.",
    "It can read every file that you can read, the test images and the reference solution among them.",
    "It can change and remove your files.",
    "It can end your processes, also the one that watches it.",
)


class Sandbox:
    """Runs one script once, within limits, and takes out what it saved; a context manager.

    Attributes:
        kind: "bubblewrap" or "none".
        weaknesses: sentences on what it does not protect.
        ended_by: "" or the sentence on the limit that ended the run.
        use: what each rank computed and all sent each other, look for look; () where that can't be told.
        others: the part, from 0 to 1, of its cores' time that other programs had, at the last look at
            them; None where that can't be told.
        folder: with `weights.h5` and `evidence/`, as far as they came out.

    The last four wait for the end of the run, and raise OSError where this host can't hold what came out.
    """

    def __init__(
        self,
        script: Path,
        limits: Limits,
        ranks: int,
        files: Mapping[Path, Path] | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float | None = None,
        marks: Sequence[Path] = (),
        keys: Sequence[str] = (),
        hosts: str | None = None,
        rank: int | None = None,
        address: str = "",
    ) -> None:
        """`files`: what can be read → where it is seen; `env` is added inside; `seconds`: the time limit; `marks`: for
        each rank the file that marks its images, which it alone can read (without bubblewrap none can); `keys`: with
        which each signs its records; `hosts`: names of this host, as in `launch.start`. Of a run across hosts it holds
        one `rank`; the network of this host, which others know by `address`, is there then."""
        _remove_stale_folders()
        problem = bubblewrap.available()
        self.kind = "none" if problem else "bubblewrap"
        self.weaknesses = (f"No sandbox: {problem}", *WEAKNESSES) if problem else ()
        self._ended_by = ""
        self._use: list[Moment] = []
        self._others: float | None = None
        self._limits, self._seconds = limits, seconds
        self._numbers = range(ranks) if rank is None else [rank]
        self._marks, self._keys, self._hosts, self._address = marks, keys, hosts, address
        self._cores: list[int] = []
        self._files, self._env = dict(files or {}), dict(env or {})
        self._monitoring: threading.Thread | None = None
        self._run: launch.Run | None = None
        self._problem: Exception | None = None
        self._private = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
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
            self._monitoring.join()
        shutil.rmtree(self._private, ignore_errors=True)

    def start(self, ranks: int, *, patience: float) -> launch.Run:
        """Start the script on `ranks` ranks; `patience` as in `launch.start`.

        Raises CourseError as `launch.start` does.
        """
        return self.begin(
            lambda confine: launch.start(
                self._private / "script" / SCRIPT.name,
                ranks=ranks,
                timeout=self._seconds,
                patience=patience,
                record=self.work / outbox.EVIDENCE,
                cwd=self.work,
                hosts=self._hosts,
                confine=confine,
                confined=self.kind == "bubblewrap",
                output_limit=self._limits.output * MB,
            )
        )

    def begin(self, start: Callable[[launch.Confine], launch.Run]) -> launch.Run:
        """Start what `start(confine)` starts, a run or what is like one. `confine` makes of a
        command what is run in its place."""
        run = self._run = start(self._confine)
        self._monitoring = threading.Thread(target=self._monitor, args=(run,), daemon=True)
        self._monitoring.start()
        return run

    @property
    def folder(self) -> Path:
        self._ended()
        return self._private / "taken"

    @property
    def use(self) -> tuple[Moment, ...]:
        self._ended()
        return tuple(self._use)

    @property
    def others(self) -> float | None:
        self._ended()
        return self._others

    @property
    def ended_by(self) -> str:
        self._ended()
        return self._ended_by

    def _ended(self) -> None:
        if self._monitoring:
            self._monitoring.join()
        if self._problem:
            raise self._problem

    @property
    def work(self) -> Path:
        """The folder that the script runs in, as it sees it."""
        return bubblewrap.WORK if self.kind == "bubblewrap" else self._private / "work"

    def _confine(self, command: RankCommand) -> RankCommand:
        gpus = launch.gpus()
        cores = self._cores = [] if gpus else sorted(os.sched_getaffinity(0))[: len(self._numbers)]
        private = self.kind == "bubblewrap"
        room = self._private / "room"
        records = {rank: room / f"records-{rank}" if private else self.work / outbox.EVIDENCE for rank in self._numbers}
        shared = [(room / "shm", Path("/dev/shm")), (room / "tmp", Path("/tmp")), (room / "work", bubblewrap.WORK)]
        spec = {
            "work": str(room / "work" if private else self.work),
            "taken": str(self._private / "taken"),
            "most": 2 * self._limits.disk * MB,
            "problem": str(self._private / "problem"),
            "shared": [str(folder) for folder in (*dict(shared), *records.values())] if private else [],
            "network": private and not self._address,
            "records": {rank: str(folder) for rank, folder in records.items()},
            "keys": {rank: self._keys[rank] for rank in self._numbers if self._keys},
            "data": 0 if gpus else int(self._limits.memory * GB),
            "file": self._limits.disk * MB,
            "cores": cores,
        }
        inside = {
            **({} if gpus else environment.ONE_THREAD),
            environment.CORES: ",".join(map(str, cores)),
            environment.WEIGHTS: str(self.work / outbox.WEIGHTS),
            "HOROVOD_TIMELINE": str(self.work / outbox.EVIDENCE / outbox.TIMELINE),
        }
        places = {"HOME": str(self.work / "home"), "TMPDIR": str(self.work / "tmp")}
        entry = (sys.executable, "-m", "course_grader.sandbox.entry", json.dumps(spec), *command.launcher)
        env = {name: command.env[name] for name in bubblewrap.PASSED_VARIABLES if name in command.env}
        env.update(inside)
        if not private:
            env.update(places, **bubblewrap.linked(self._env, self._files, self._private / "root"))
            return replace(command, launcher=entry, env={**env, "PYTHONPATH": str(ROOT)}, temporary=self._private)
        readable = {**self._files, self._private / "script": SCRIPT.parent}
        if self._address:
            # Horovod looks its own address up by name, for all but the first of its connections.
            names = self._private / "hosts"
            names.write_text(f"127.0.0.1 localhost\n{self._address} {socket.gethostname()}\n")
            readable[names] = Path("/etc/hosts")
        for folder in map(Path, spec["shared"]):
            folder.mkdir(parents=True)
        mpi = "--mpi" in command.launcher
        if mpi:  # its ranks meet in a folder that has one name for them and for the launcher
            shared.append((room / "tmp", room / "tmp"))
        hostname = socket.gethostname() if self._address else ""
        for rank, folder in records.items():
            writable = [*shared, (folder, self.work / outbox.EVIDENCE)]
            seen, inner = dict(readable), {**places, **self._env}
            if self._marks:
                seen[self._marks[rank]], inner[environment.MARKS] = MARKS, str(MARKS)
            # MPI's ranks must be of one user, as the launcher sees it.
            words = bubblewrap.rank_options(0 if mpi else 1000, writable, seen, inner, hostname)
            (self._private / f"options-{rank}").write_text("\0".join([*words, ""]))
        starter = self._private / "rank.sh"
        (self._private / "filter").write_bytes(refused := system_calls.program())
        seccomp = "--seccomp 4" if refused else ""
        starter.write_text(
            _STARTER.format(first=self._numbers[0], program=bubblewrap.program(), folder=self._private, filter=seccomp)
        )
        launcher = (*bubblewrap.own_network(spec["network"]), *entry)
        env.update(bubblewrap.python_environment(), TMPDIR=str(room / "tmp"), **environment.BY_LOOPBACK)
        return RankCommand(launcher, ("/bin/sh", str(starter), *rank_program(SCRIPT)), env, self._private)

    def _monitor(self, run: launch.Run) -> None:
        try:
            self._enforce_limits(run)
        except Exception as error:  # nothing runs without limits
            self._problem = error
            run.stop()

    def _enforce_limits(self, run: launch.Run) -> None:
        limits, ranks = self._limits, len(self._numbers)
        private = self.kind == "bubblewrap"
        memory = limits.memory * GB * ranks
        processes = (limits.processes + OVERHEAD_PROCESSES) * ranks
        everything = ProcessTree(run.pid, namespace=False)  # the launcher too
        trees = {} if private else {0: everything}  # rank → its processes
        uses: dict[int, Usage] = {}
        began, cpu_before = time.monotonic(), cores_cpu_seconds(self._cores)
        for poll in itertools.count(1):
            if not run.running:
                break
            if private:
                self._find_ranks(trees)
            uses.update({rank: tree.usage(processes) for rank, tree in trees.items()})
            use = sum(uses.values(), Usage())
            counts = [count for tree in trees.values() if (count := tree.traffic()) is not None]
            if counts and not self._address:
                computed = tuple(uses[rank].user_seconds if rank in uses else 0.0 for rank in self._numbers)
                self._use.append(Moment(time.monotonic() - began, max(counts), computed))
            reason = ""
            if use.processes > processes or use.threads > processes * THREADS_PER_PROCESS:
                reason = f"It started more than {limits.processes} processes for each rank."
            elif use.memory > memory and sum(tree.memory() for tree in trees.values()) > memory:
                reason = f"It used more than {limits.memory * ranks:g} GB of memory."
            elif not private and disk_bytes(self.work) > limits.disk * MB:
                reason = f"It wrote more than {limits.disk} MB of files."
            elif poll % CORE_CHECK_POLLS == 0 and self._cores:
                if not _cores(trees.values()) <= set(self._cores):
                    reason = "It left the cores that it was given, one for each rank."
                if cpu_before is not None:
                    had = cores_cpu_seconds(self._cores) - cpu_before
                    had -= max(everything.usage(processes + OVERHEAD_PROCESSES).cpu_seconds, use.cpu_seconds)
                    self._others = max(0.0, had / (len(self._cores) * (time.monotonic() - began)))
            if reason:
                run.stop(reason)
                for tree in trees.values():
                    tree.kill()
                break
            run.join(POLL_INTERVAL_S)
        result = run.wait()
        if result.code == launch.TIMED_OUT or result.code == launch.STOPPED:
            self._ended_by = result.message
        with contextlib.suppress(FileNotFoundError):
            number = int(os.readlink(self._private / "problem"))
            self._problem = OSError(number, os.strerror(number), str(self._private))

    def _find_ranks(self, trees: dict[int, ProcessTree]) -> None:
        """Enter the ranks that have started."""
        for rank in self._numbers:
            if rank not in trees:
                with contextlib.suppress(OSError, ValueError):
                    number = int((self._private / f"pid-{rank}").read_text())
                    trees[rank] = ProcessTree(number, namespace=True)


def _cores(trees: Iterable[ProcessTree]) -> set[int]:
    return set().union(*(tree.cores() for tree in trees))


def _remove_stale_folders() -> None:
    """Remove what was left behind where the whole process was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > STALE_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
