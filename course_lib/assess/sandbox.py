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
import functools
import itertools
import json
import os
import select
import shutil
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from course_lib import launch
from course_lib.assess import parcel
from course_lib.assess.contract import Limits
from course_lib.assess.watch import Tree, Use, computed, size
from course_lib.errors import CourseError, last_line
from course_lib.places import ROOT

PACKAGE = Path(__file__).resolve().parent.parent
# No folder in which the course or Python may be: what lies below WORK could be changed.
WORK, OUT, SCRIPT = Path("/sandbox"), Path("/out"), Path("/script/assessment.py")
OFTEN = 0.2  # seconds between two looks at what the processes use
LOOKS = 10  # of which one minds the cores
OWN_PROCESSES = 8  # of the sandbox and of the launcher, besides five for each rank
THREADS = 64  # for each process that is allowed: TensorFlow starts dozens
PREFIX = "course-sandbox-"  # of temporary folders
STALE = 24 * 3600  # seconds after which nobody uses such a folder any more
MB, GB = 2**20, 2**30
WEAKNESSES = (
    "The script can use the network.",
    "It can read every file that you can read, the test images and the reference solution among them.",
    "It can change and remove your files.",
    "It can end your processes, also the one that watches it.",
)

# (command, environment) → what is run in their place
Confine = Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]]

_WRITABLE = (Path("/dev/shm"), Path("/tmp"), WORK, WORK / parcel.EVIDENCE)
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "openmpi")
_KEPT = (  # of our own environment
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"),
    *("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "TF_FORCE_GPU_ALLOW_GROWTH"),
    *("COURSE_EVENTS", "COURSE_PROBE", "COURSE_FOLDER", "COURSE_ARGUMENTS"),
    *launch.ONE_THREAD,
    *launch.OPEN_MPI,
)


@functools.cache
def available() -> str:
    """Empty where bubblewrap works, else the sentence that says why not. It is tried, once in each process."""
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: `apt-get install bubblewrap`."
    trial = [sys.executable, "-c", "import psutil, course_lib.assess.parcel"]
    done = subprocess.run(_bubblewrap(trial, {}, _kept()), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return ""
    last = last_line(done.stderr, f"exit code {done.returncode}")
    return f"bubblewrap does not work here ({last}): in a container, user namespaces and /proc must be allowed."


def command(command: list[str], readable: Mapping[Path, Path], env: Mapping[str, str], links: Path) -> list[str]:
    """What runs `command` without network, with nothing to read but Python, the course and `readable`.

    `readable` maps what is bound read-only (files or folders of this host) to where it is seen; `env` adds to a
    small environment. Where there is no bubblewrap, only the environment is cleaned, and what is `readable` is seen
    below the folder `links`.
    """
    if not available():
        return _bubblewrap(command, readable, {**_kept(), **env})
    env = {**_kept(), "HOME": tempfile.gettempdir(), **_linked(env, readable, links)}
    return [shutil.which("env") or "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), *command]


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
        _sweep()
        problem = available()
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
        self._private = Path(tempfile.mkdtemp(prefix=PREFIX))
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
                probe=self.work / parcel.EVIDENCE,
                cwd=self.work,
                confine=confine,
                output_limit=self._limits.output * MB,
            )
        )

    def begin(self, start: Callable[[Confine], launch.Run]) -> launch.Run:
        """Start what `start(confine)` starts, a run or what is like one. `confine` makes of a command, whose last word
        is the script, and of its environment what is run in their place."""
        pipe = os.open(self._private / "out", os.O_RDONLY | os.O_NONBLOCK)
        try:
            run = self._run = start(self._confine)
        except BaseException:
            os.close(pipe)
            raise
        self._threads = [
            threading.Thread(target=self._watch, args=(run,), daemon=True),
            threading.Thread(target=self._take, args=(run, pipe), daemon=True),
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
        return WORK if self.kind == "bubblewrap" else self._private / "work"

    def _confine(self, command: list[str], env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        gpus = launch.gpus()
        cores = self._cores = [] if gpus else sorted(os.sched_getaffinity(0))[: self._ranks]
        private = self.kind == "bubblewrap"
        spec = {
            "work": str(self.work),
            "out": str(OUT if private else self._private / "out"),
            "data": 0 if gpus else int(self._limits.memory * GB),
            "file": self._limits.disk * MB,
            "cores": cores,
            "private": private,
        }
        inside = {name: env[name] for name in _KEPT if name in env}
        inside.update(
            {} if gpus else dict.fromkeys(launch.ONE_THREAD, "1"),
            COURSE_CORES=",".join(map(str, cores)),
            COURSE_WEIGHTS=str(self.work / parcel.WEIGHTS),
            HOROVOD_TIMELINE=str(self.work / parcel.EVIDENCE / "timeline.json"),
            HOME=str(self.work / "home"),
            TMPDIR=str(self.work / "tmp"),
        )
        command = [sys.executable, "-m", "course_lib.assess.inside", json.dumps(spec), *command]
        if not private:
            inside.update(_linked(self._env, self._files, self._private / "root"), PYTHONPATH=str(PACKAGE.parent))
            return command, {**inside, "COURSE_LITTER": str(self._private)}
        readable = {**self._files, self._private / "script": SCRIPT.parent}
        if self._address:
            # Horovod looks its own address up by name, for all but the first of its connections.
            names = self._private / "hosts"
            names.write_text(f"127.0.0.1 localhost\n{self._address} {socket.gethostname()}\n")
            readable[names] = Path("/etc/hosts")
        command[-1] = str(SCRIPT)
        confined = _bubblewrap(
            command,
            readable,
            {**inside, **self._env},
            pipe=self._private / "out",
            size=self._limits.disk * MB,
            hostname=socket.gethostname() if self._address else "",
        )
        # bubblewrap lets SIGTERM pass it by: `inside` ends the ranks, hands out what there is, and ends itself.
        return ["/bin/sh", "-c", 'trap "" TERM; exec "$@"', "sh", *confined], {
            **os.environ,
            "COURSE_LITTER": str(self._private),
        }

    def _watch(self, run: launch.Run) -> None:
        try:
            self._mind(run)
        except Exception as error:  # nothing runs without limits
            self._problem = error
            run.stop()

    def _mind(self, run: launch.Run) -> None:
        limits, ranks = self._limits, self._ranks
        processes = limits.processes * ranks + OWN_PROCESSES + 5 * ranks
        tree = Tree(run.pid, self.kind == "bubblewrap")
        use, began, before = Use(), time.monotonic(), computed(self._cores)
        for look in itertools.count(1):
            if not run.running:
                break
            use = tree.use(processes)
            seen = tree.traffic()
            self._traffic = self._traffic if seen is None else seen
            reason = ""
            if use.processes > processes or use.threads > processes * THREADS:
                reason = f"It started more than {limits.processes} processes for each rank."
            elif use.memory > limits.memory * GB * ranks:
                reason = f"It used more than {limits.memory * ranks:g} GB of memory."
            elif self._written(tree) > limits.disk * MB:
                reason = f"It wrote more than {limits.disk} MB of files."
            elif look % LOOKS == 0 and self._cores and not tree.cores() <= set(self._cores):
                reason = "It left the cores that it was given, one for each rank."
            if reason:
                run.stop(reason)
                tree.kill()
                break
            run.join(OFTEN)
        if before is not None:
            had = computed(self._cores) - before - use.computed
            self._others = max(0.0, had / (len(self._cores) * (time.monotonic() - began)))
        result = run.wait()
        if result.code == launch.TIMED_OUT or result.code == launch.STOPPED:
            self._ended_by = result.message

    def _written(self, tree: Tree) -> int:
        """Bytes that the script has in files, where no file system sets the limit."""
        if self.kind == "none":
            return size(self.work)
        return 0 if "--size" in _options() else tree.written(map(str, _WRITABLE))

    def _take(self, run: launch.Run, pipe: int) -> None:
        buffer = bytearray()

        def take(count: int) -> bytes:
            while len(buffer) < count:
                ended, piece = not run.running, b""
                if select.select([pipe], [], [], 0.1)[0]:
                    with contextlib.suppress(BlockingIOError):  # the script has read it
                        piece = os.read(pipe, 2**16)
                buffer.extend(piece)
                if ended and not piece:
                    break
            piece = bytes(buffer[:count])
            del buffer[:count]
            return piece

        try:
            parcel.read(take, self._private / "taken", 2 * self._limits.disk * MB)
        except OSError as error:
            self._problem = error
        finally:
            os.close(pipe)


def _sweep() -> None:
    """Remove what was left behind where the whole process was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > STALE:
                shutil.rmtree(folder, ignore_errors=True)


def _kept() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def _linked(env: Mapping[str, str], files: Mapping[Path, Path], root: Path) -> dict[str, str]:
    """Put links to `files` below `root`; return `env` with their places there."""
    for host, place in files.items():
        link = root / place.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(host).absolute())
    places = {str(folder) for place in files.values() for folder in (place, *place.parents)} - {"/"}
    return {name: f"{root}{value}" if value in places else value for name, value in env.items()}


def _bubblewrap(
    command: list[str],
    readable: Mapping[Path, Path],
    env: Mapping[str, str],
    *,
    pipe: Path | None = None,
    size: int = GB,
    hostname: str = "",
) -> list[str]:
    """The bwrap command. `size` is in bytes, for each of the folders that can be written to; with a `hostname` this
    host's network is there."""
    understood = _options()
    sized = ["--size", str(size)] if "--size" in understood else []
    words = [shutil.which("bwrap"), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    words += ["--share-net"] if hostname else []
    words += [
        "--die-with-parent",
        "--new-session",
        "--hostname",
        hostname or "localhost",
        "--cap-drop",
        "ALL",
        "--clearenv",
    ]
    words += ["--disable-userns"] if "--disable-userns" in understood else []
    python = {"PYTHONPATH": PACKAGE.parent, "PYTHONDONTWRITEBYTECODE": 1}
    python.update({"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {"PYTHONNOUSERSITE": 1})
    for name, value in {"HOME": "/tmp", **python, **env}.items():
        words += ["--setenv", name, str(value)]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder in _WRITABLE:
        words += [*sized, "--tmpfs", str(folder)]
    for folder in _system():
        words += ["--symlink", os.readlink(folder), folder] if os.path.islink(folder) else _seen(folder)
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in (Path(__file__).parent / "etc").iterdir():
        words += _seen(file, f"/etc/{file.name}")
    libraries = _libraries()
    # Its folder is on Python's path; it may lie in one that can be written to, as below /tmp.
    own = [] if any(Path(folder) in PACKAGE.parents for folder in ("/usr", *libraries)) else [str(PACKAGE.parent)]
    for folder in own:
        words += ["--tmpfs", folder]
    for folder in libraries:
        words += _seen(folder)
    for folder in (ROOT / name for name in ("assessment", "labs", "tests")):
        if folder.is_dir() and any(Path(library) in folder.parents for library in ("/usr", *libraries)):
            words += ["--tmpfs", str(folder)]
    words += _seen(PACKAGE)
    devices = sorted(map(str, Path("/dev").glob("nvidia*")))
    for device in devices:
        words += ["--dev-bind", device, device]
    # Where Open MPI looks up the cores, and NCCL how the GPUs are connected.
    words += ["--ro-bind-try", *(["/sys"] if devices else ["/sys/devices/system"]) * 2]
    for host, place in readable.items():
        words += _seen(Path(host).absolute(), place)
    words += ["--bind", str(pipe), str(OUT)] if pipe else []
    # /proc too: to /proc/sys may write who is root outside, even without any rights.
    for folder in (*own, "/", "/dev", "/proc"):
        words += ["--remount-ro", folder]
    words += ["--chdir", "/"]
    return [*words, "--", *command]


def _seen(host: str | Path, place: str | Path | None = None) -> list[str]:
    return ["--ro-bind", str(host), str(place or host)]


@functools.cache
def _options() -> str:
    return subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout


def _system() -> list[str]:
    return ["/usr", *(f"/{name}" for name in sorted(os.listdir("/")) if name in ("bin", "sbin") or name[:3] == "lib")]


def _libraries() -> list[str]:
    """Where Python and its packages are, apart from /usr."""
    folders = [sys.base_prefix, sys.prefix, *site.getsitepackages()]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    private = {ROOT, *ROOT.parents, Path.home(), *Path.home().parents}
    folders += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if Path(path) not in private]
    folders += [os.path.realpath(folder) for folder in folders if folder]
    found: list[str] = []
    for folder in sorted({folder for folder in folders if os.path.isabs(folder) and os.path.isdir(folder)}):
        if not any(Path(other) in (Path(folder), *Path(folder).parents) for other in ("/usr", *found)):
            found.append(folder)
    return found
