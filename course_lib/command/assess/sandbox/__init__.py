"""A place for other people's code: no network, nothing to read but what it needs, nowhere to write but memory.

With bubblewrap (`bwrap`) the script's processes have namespaces of their own: they see neither the network nor other
processes nor the files of this host, and all of them end together. Where it is missing or not allowed, the script
runs in a private folder, and `weaknesses` says what that does not protect.

    with Sandbox(script, limits, ranks=2, files={...}, seconds=240) as sandbox:
        run = sandbox.start(2, patience=60)
        result = run.wait()
        sandbox.folder, sandbox.traffic, sandbox.ended_by
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from course_lib.command.assess.contract import Limits
from course_lib.command.assess.sandbox import bubblewrap, outbox
from course_lib.command.assess.sandbox.resource_monitor import ProcessTree, Usage, cores_cpu_seconds, disk_bytes
from course_lib.ranks import environment, launch
from course_lib.ranks.run import RankCommand, rank_program
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

SCRIPT = Path("/script/assessment.py")  # as it is seen inside
POLL_INTERVAL_S = 0.2  # between two looks at what the processes use
CORE_CHECK_POLLS = 10  # from one look at their cores to the next
OVERHEAD_PROCESSES = 8  # of the sandbox and of the launcher, besides five for each rank
THREADS_PER_PROCESS = 64  # for each process that is allowed: TensorFlow starts dozens
FOLDER_PREFIX = "course-sandbox-"  # of temporary folders
STALE_AFTER_S = 24 * 3600  # nobody uses such a folder any more
MB, GB = 2**20, 2**30
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
        traffic: bytes that the ranks sent each other over the loopback device; None where that can't be counted.
        others: the part, from 0 to 1, of its cores' time that other programs had; None where that can't be told.
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
        address: str = "",
    ) -> None:
        """`files`: what can be read → where it is seen; `env` is added inside; `seconds`: the time limit; with an
        `address`, by which others know this host, its network is there."""
        _remove_stale_folders()
        problem = bubblewrap.available()
        self.kind = "none" if problem else "bubblewrap"
        self.weaknesses = (f"No sandbox: {problem}", *WEAKNESSES) if problem else ()
        self._ended_by = ""
        self._traffic: int | None = None
        self._others: float | None = None
        self._limits, self._ranks, self._seconds = limits, ranks, seconds
        self._address = address
        self._cores: list[int] = []
        self._files, self._env = dict(files or {}), dict(env or {})
        self._threads: list[threading.Thread] = []
        self._run: launch.Run | None = None
        self._problem: Exception | None = None
        self._private = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        try:
            (self._private / "script").mkdir()
            shutil.copyfile(script, self._private / "script" / SCRIPT.name)
        except OSError as error:
            self.__exit__()
            raise CourseError(f"The script {script} cannot be read: {error.strerror}.", code=2) from None
        os.mkfifo(self._private / "out", 0o600)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        if self._run:
            self._run.stop()
            self._wait()
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
                probe=self.work / outbox.EVIDENCE,
                cwd=self.work,
                confine=confine,
                output_limit=self._limits.output * MB,
            )
        )

    def begin(self, start: Callable[[launch.Confine], launch.Run]) -> launch.Run:
        """Start what `start(confine)` starts, a run or what is like one. `confine` makes of a
        command what is run in its place."""
        pipe = os.open(self._private / "out", os.O_RDONLY | os.O_NONBLOCK)
        try:
            run = self._run = start(self._confine)
        except BaseException:
            os.close(pipe)
            raise
        self._threads = [
            threading.Thread(target=self._monitor, args=(run,), daemon=True),
            threading.Thread(target=self._collect, args=(run, pipe), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return run

    @property
    def folder(self) -> Path:
        self._ended()
        return self._private / "taken"

    @property
    def traffic(self) -> int | None:
        self._ended()
        return self._traffic

    @property
    def others(self) -> float | None:
        self._ended()
        return self._others

    @property
    def ended_by(self) -> str:
        self._ended()
        return self._ended_by

    def _wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def _ended(self) -> None:
        self._wait()
        if self._problem:
            raise self._problem

    @property
    def work(self) -> Path:
        """The folder that the script runs in, as it sees it."""
        return bubblewrap.WORK if self.kind == "bubblewrap" else self._private / "work"

    def _confine(self, command: RankCommand) -> RankCommand:
        gpus = launch.gpus()
        cores = self._cores = [] if gpus else sorted(os.sched_getaffinity(0))[: self._ranks]
        private = self.kind == "bubblewrap"
        spec = {
            "work": str(self.work),
            "out": str(bubblewrap.OUT if private else self._private / "out"),
            "data": 0 if gpus else int(self._limits.memory * GB),
            "file": self._limits.disk * MB,
            "cores": cores,
            "private": private,
        }
        inside = {name: command.env[name] for name in bubblewrap.PASSED_VARIABLES if name in command.env}
        inside.update(
            {
                **({} if gpus else environment.ONE_THREAD),
                environment.CORES: ",".join(map(str, cores)),
                environment.WEIGHTS: str(self.work / outbox.WEIGHTS),
                "HOROVOD_TIMELINE": str(self.work / outbox.EVIDENCE / "timeline.json"),
                "HOME": str(self.work / "home"),
                "TMPDIR": str(self.work / "tmp"),
            }
        )
        entry = (sys.executable, "-m", "course_lib.command.assess.sandbox.entry", json.dumps(spec))
        launcher = (*entry, *command.launcher)
        if not private:
            inside.update(bubblewrap.linked(self._env, self._files, self._private / "root"), PYTHONPATH=str(ROOT))
            return replace(command, launcher=launcher, env=inside, temporary=self._private)
        readable = {**self._files, self._private / "script": SCRIPT.parent}
        if self._address:
            # Horovod looks its own address up by name, for all but the first of its connections.
            names = self._private / "hosts"
            names.write_text(f"127.0.0.1 localhost\n{self._address} {socket.gethostname()}\n")
            readable[names] = Path("/etc/hosts")
        confined = bubblewrap.command_line(
            launcher,
            readable,
            {**inside, **self._env},
            pipe=self._private / "out",
            size=self._limits.disk * MB,
            hostname=socket.gethostname() if self._address else "",
        )
        # bubblewrap lets SIGTERM pass it by: `entry` ends the ranks, hands out what there is, and ends itself.
        deaf = ("/bin/sh", "-c", 'trap "" TERM; exec "$@"', "sh")
        return RankCommand((*deaf, *confined), rank_program(SCRIPT), dict(os.environ), self._private)

    def _monitor(self, run: launch.Run) -> None:
        try:
            self._enforce_limits(run)
        except Exception as error:  # nothing runs without limits
            self._problem = error
            run.stop()

    def _enforce_limits(self, run: launch.Run) -> None:
        limits, ranks = self._limits, self._ranks
        processes = limits.processes * ranks + OVERHEAD_PROCESSES + 5 * ranks
        tree = ProcessTree(run.pid, self.kind == "bubblewrap")
        use, began, cpu_before = Usage(), time.monotonic(), cores_cpu_seconds(self._cores)
        for poll in itertools.count(1):
            if not run.running:
                break
            use = tree.usage(processes)
            seen = tree.traffic()
            self._traffic = self._traffic if seen is None else seen
            reason = ""
            if use.processes > processes or use.threads > processes * THREADS_PER_PROCESS:
                reason = f"It started more than {limits.processes} processes for each rank."
            elif use.memory > limits.memory * GB * ranks:
                reason = f"It used more than {limits.memory * ranks:g} GB of memory."
            elif self._written(tree) > limits.disk * MB:
                reason = f"It wrote more than {limits.disk} MB of files."
            elif poll % CORE_CHECK_POLLS == 0 and self._cores and not tree.cores() <= set(self._cores):
                reason = "It left the cores that it was given, one for each rank."
            if reason:
                run.stop(reason)
                tree.kill()
                break
            run.join(POLL_INTERVAL_S)
        if cpu_before is not None:
            had = cores_cpu_seconds(self._cores) - cpu_before - use.cpu_seconds
            self._others = max(0.0, had / (len(self._cores) * (time.monotonic() - began)))
        result = run.wait()
        if result.code == launch.TIMED_OUT or result.code == launch.STOPPED:
            self._ended_by = result.message

    def _written(self, tree: ProcessTree) -> int:
        """Bytes that the script has in files, where no file system sets the limit."""
        if self.kind == "none":
            return disk_bytes(self.work)
        return 0 if "--size" in bubblewrap.options() else tree.bytes_written(map(str, bubblewrap.WRITABLE))

    def _collect(self, run: launch.Run, pipe: int) -> None:
        buffer = bytearray()

        def take(count: int) -> bytes:
            while len(buffer) < count:
                ended, piece = not run.running, b""
                if select.select([pipe], [], [], 0.1)[0]:
                    with contextlib.suppress(BlockingIOError):  # the script has read it
                        piece = os.read(pipe, 2**16)
                    if not piece:  # nobody writes any more: `select` would not wait
                        run.join(0.1)
                buffer.extend(piece)
                if ended and not piece:
                    break
            piece = bytes(buffer[:count])
            del buffer[:count]
            return piece

        try:
            outbox.read(take, self._private / "taken", 2 * self._limits.disk * MB)
        except OSError as error:
            self._problem = error
        finally:
            os.close(pipe)


def _remove_stale_folders() -> None:
    """Remove what was left behind where the whole process was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > STALE_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
