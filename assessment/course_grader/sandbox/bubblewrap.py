"""The command lines of the sandbox: what runs a program below bubblewrap, and what it can see there."""

from __future__ import annotations

import functools
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.ranks import environment
from course_lib.system.errors import CourseError, last_line
from course_lib.system.paths import ROOT

PACKAGE = ROOT / "course_lib"
# No folder in which the course or Python may be: what lies below WORK could be changed.
WORK = Path("/sandbox")
GB = 2**30
TRIAL_LIMIT_S = 60.0  # on a busy host
_START_CUDA = "import ctypes, sys; code = ctypes.CDLL('libcuda.so.1').cuInit(0); sys.exit(code and f'error {code}')"

_WRITABLE = (Path("/dev/shm"), Path("/tmp"), WORK)
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "openmpi")
PASSED_VARIABLES = (  # of our own environment
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"),
    *("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "TF_FORCE_GPU_ALLOW_GROWTH"),
    *environment.TOLD_BY_LAUNCHER,
    *environment.THREADS,
    *environment.OPEN_MPI,
)


@functools.cache
def available() -> str:
    """Empty where bubblewrap works, else the sentence that says why not. It is tried, once in each process.

    Raises CourseError (code 2) where it does not answer.
    """
    if lacking := [name for name in ("bwrap", "unshare") if not shutil.which(name)]:
        return f"{lacking[0]} is not installed: `apt-get install bubblewrap util-linux`."
    try:
        done = _tried("import psutil, course_grader.sandbox.outbox")
    except subprocess.TimeoutExpired:
        raise CourseError(f"bubblewrap does not answer within {TRIAL_LIMIT_S:.0f} s: try again.", code=2) from None
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
        return command_line(command, readable, {**passed_environment(), **env})
    env = {**passed_environment(), "HOME": tempfile.gettempdir(), **linked(env, readable, links)}
    return [shutil.which("env") or "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), *command]


def passed_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}


def linked(env: Mapping[str, str], files: Mapping[Path, Path], root: Path) -> dict[str, str]:
    """Put links to `files` below `root`; return `env` with their places there."""
    for host, place in files.items():
        link = root / place.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(host).absolute())
    places = {str(folder) for place in files.values() for folder in (place, *place.parents)} - {"/"}
    return {name: f"{root}{value}" if value in places else value for name, value in env.items()}


def command_line(command: Sequence[str], readable: Mapping[Path, Path], env: Mapping[str, str]) -> list[str]:
    """The bwrap command for a process that nothing is shared with; `readable` and `env` as in `command`."""
    words = [program(), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "localhost"]
    words += ["--clearenv", *_set(env)]
    sized = ["--size", str(GB)] if "--size" in _options() else []
    writable = [word for folder in _WRITABLE for word in (*sized, "--tmpfs", str(folder))]
    return [*words, *_view(writable, readable), *_remounted("/", "/dev", "/proc"), "--", *command]


def rank_options(
    uid: int,
    writable: Sequence[tuple[Path, Path]],
    readable: Mapping[Path, Path],
    env: Mapping[str, str],
    hostname: str = "",
) -> list[str]:
    """bwrap's options for a rank: it has the environment, the network, the System V memory of what starts it, and
    the GPUs.

    `writable` are folders that it can write to, and where they are seen; `env` is added to its environment.
    """
    words = ["--unshare-user", "--uid", str(uid), "--gid", str(uid), "--unshare-pid", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--hostname", hostname or "localhost", *_set(env)]
    bound = [word for host, place in writable for word in ("--bind", str(host), str(place))]
    words += _view(bound, readable)
    if not (devices := gpu_devices()):
        return [*words, *_remounted("/", "/dev", "/proc")]
    for device in devices:
        words += ["--dev-bind", device, device]
    # NCCL looks up in /sys how the GPUs are connected. CUDA names its threads, in /proc/self/task/*/comm, and does not
    # start where it can't (error 304, drivers from 570 on): so only what belongs to no process is kept from writing.
    for place in ("/sys", *_kernel_settings()):
        words += _read_only(place)
    return [*words, *_remounted("/", "/dev")]


def gpu_devices() -> list[str]:
    """The devices of NVIDIA's driver."""
    return sorted(map(str, Path("/dev").glob("nvidia*")))


def _kernel_settings() -> list[str]:
    """What of /proc belongs to no process and may be written: by who is root outside, even without any rights."""
    entries = [entry for entry in Path("/proc").iterdir() if not (entry.name.isdigit() or entry.is_symlink())]
    return sorted(str(entry) for entry in entries if entry.is_dir() or entry.stat().st_mode & 0o222)


@functools.cache
def cuda_problem() -> str:
    """Empty where CUDA starts in a rank's sandbox, or where there is no sandbox, else the sentence that says why not;
    tried once, as `available`.

    TensorFlow takes the processor, without a word, where it can't start CUDA.
    """
    if available():
        return ""
    try:
        done = _tried(_START_CUDA)
    except subprocess.TimeoutExpired:
        reason = f"no answer within {TRIAL_LIMIT_S:.0f} s"
    else:
        if done.returncode == 0:
            return ""
        reason = last_line(done.stderr, f"exit code {done.returncode}")
    return (
        f"CUDA does not start in the sandbox ({reason}), so that the ranks would train on the processor: look at "
        "`course doctor --gpu`, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1)."
    )


def _tried(python: str) -> subprocess.CompletedProcess[str]:
    """How this code ends in a rank's sandbox. Raises TimeoutExpired."""
    words = [*rank_options(1000, [], {}, passed_environment()), "--", sys.executable, "-c", python]
    return subprocess.run(
        [*own_network(), program(), *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TRIAL_LIMIT_S,
    )


def program() -> str:
    """The path of bwrap."""
    return shutil.which("bwrap") or "bwrap"


def own_network(network: bool = True) -> list[str]:
    """What runs a command with file systems, System V memory and, with `network`, a network of its own. It is root
    there, without any right outside, so that it can mount file systems and start the ranks' sandboxes."""
    return ["unshare", "--user", "--map-root-user", "--mount", "--ipc", *["--net"] * network, "--"]


def python_environment() -> dict[str, str]:
    """What Python needs to find the course and its packages, here as in the sandbox."""
    user = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {"PYTHONNOUSERSITE": "1"}
    return {"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1", **user}


def _set(env: Mapping[str, str]) -> list[str]:
    variables = {"HOME": "/tmp", **python_environment(), **env}
    return [word for name, value in variables.items() for word in ("--setenv", name, str(value))]


def _view(writable: Sequence[str], readable: Mapping[Path, Path]) -> list[str]:
    """Options on what can be seen: the system, Python, the course and `readable`; of it only `writable` can change."""
    words = ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--disable-userns"] if "--disable-userns" in _options() else []
    words += ["--proc", "/proc", "--dev", "/dev", *writable]
    for folder in _system():
        words += ["--symlink", os.readlink(folder), folder] if os.path.islink(folder) else _read_only(folder)
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in (Path(__file__).parent / "etc").iterdir():
        words += _read_only(file, f"/etc/{file.name}")
    libraries = python_folders()
    # Its folder is on Python's path; it may lie in one that can be written to, as below /tmp.
    own = [] if any(Path(folder) in PACKAGE.parents for folder in ("/usr", *libraries)) else [str(PACKAGE.parent)]
    for folder in own:
        words += ["--tmpfs", folder]
    for folder in libraries:
        words += _read_only(folder)
    for folder in (ROOT / name for name in ("assessment", "labs", "tests")):
        if folder.is_dir() and any(Path(library) in folder.parents for library in ("/usr", *libraries)):
            words += ["--tmpfs", str(folder)]
    words += _read_only(PACKAGE)
    words += ["--ro-bind-try", *["/sys/devices/system"] * 2]  # where Open MPI looks up the cores
    for host, place in readable.items():
        words += _read_only(Path(host).absolute(), place)
    return [*words, *_remounted(*own), "--chdir", "/"]


def _remounted(*folders: str) -> list[str]:
    """Options that keep these from writing, once everything is in its place. /proc is among them because to /proc/sys
    may write who is root outside, even without any rights."""
    return [word for folder in folders for word in ("--remount-ro", folder)]


def _read_only(host: str | Path, place: str | Path | None = None) -> list[str]:
    return ["--ro-bind", str(host), str(place or host)]


@functools.cache
def _options() -> str:
    return subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout


def _system() -> list[str]:
    return ["/usr", *(f"/{name}" for name in sorted(os.listdir("/")) if name in ("bin", "sbin") or name[:3] == "lib")]


def python_folders() -> list[str]:
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
