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

from course_grader.sandbox import seccomp
from course_lib.ranks import environment
from course_lib.system.errors import CourseError, last_line
from course_lib.system.paths import ROOT

PACKAGES = (ROOT / "course_lib", Path(__file__).resolve().parents[1])  # all that is seen of the course
# No folder in which the course or Python may be: what lies below WORK could be changed.
WORK = Path("/sandbox")
GB = 2**30
TRIAL_LIMIT_S = 60.0  # on a busy host
_START_CUDA = "import ctypes, sys; code = ctypes.CDLL('libcuda.so.1').cuInit(0); sys.exit(code and f'error {code}')"

OPTIONS_FD, FILTER_FD = 3, 4  # from which bubblewrap reads a rank's options, and the filter of `seccomp`
_WRITABLE = (Path("/dev/shm"), Path("/tmp"), WORK)
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "openmpi")
PASSED_VARIABLES = (  # of our own environment
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"),
    *("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"),
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
        done = _tried("import psutil, course_grader, course_lib.ranks")
    except subprocess.TimeoutExpired:
        raise CourseError(f"bubblewrap does not answer within {TRIAL_LIMIT_S:.0f} s: try again.", code=2) from None
    if done.returncode == 0:
        return ""
    last = last_line(done.stderr, f"exit code {done.returncode}")
    return f"bubblewrap does not work here ({last}): in a container, user namespaces and /proc must be allowed."


def command(command: Sequence[str], readable: Mapping[Path, Path], env: Mapping[str, str], folder: Path) -> list[str]:
    """What runs `command` without network, with nothing to read but Python, the course and `readable`.

    `readable` maps what is bound read-only (files or folders of this host) to where it is seen; `env` adds to a
    small environment. `folder` is a private one, for what this takes. Where there is no bubblewrap, only the
    environment is cleaned, and what is `readable` is seen below `folder`.
    """
    env = {**passed(os.environ), **env}
    if available():
        env = {"HOME": tempfile.gettempdir(), **linked(env, readable, folder)}
        words = [shutil.which("env") or "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items())]
        return [*words, *command]
    words = [program(), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "localhost"]
    words += ["--clearenv", *_set(env)]
    sized = ["--size", str(GB)] if "--size" in _options() else []
    writable = [word for place in _WRITABLE for word in (*sized, "--tmpfs", str(place))]
    words += [*_view(writable, readable), *_remounted("/", "/dev", "/proc"), "--", *command]
    return _filtered(words, folder)


def passed(env: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what goes into a sandbox; there TensorFlow takes of a GPU's memory what it needs."""
    return {name: env[name] for name in PASSED_VARIABLES if name in env} | {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def linked(env: Mapping[str, str], files: Mapping[Path, Path], root: Path) -> dict[str, str]:
    """Put links to `files` below `root`; return `env` with their places there."""
    for host, place in files.items():
        link = root / place.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(host).absolute())
    places = {str(folder) for place in files.values() for folder in (place, *place.parents)} - {"/"}
    return {name: f"{root}{value}" if value in places else value for name, value in env.items()}


def _filtered(words: Sequence[str], folder: Path) -> list[str]:
    """What runs these words, in which bwrap reads the filter of `seccomp`; its file is put into `folder`."""
    return ["/bin/sh", "-c", f'exec "$@" {FILTER_FD}< "$0"', str(write_filter(folder)), *words]


def write_filter(folder: Path) -> Path:
    """Write the filter of `seccomp` into a folder, which is made; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "filter"
    path.write_bytes(seccomp.program())
    return path


def rank_options(
    uid: int,
    writable: Sequence[tuple[Path, Path]],
    readable: Mapping[Path, Path],
    env: Mapping[str, str],
) -> list[str]:
    """bwrap's options for a rank: it has the environment, the network, the System V memory of what starts it, and
    the GPUs.

    `writable` are folders that it can write to, and where they are seen; `env` is added to its environment.
    """
    words = ["--unshare-user", "--uid", str(uid), "--gid", str(uid), "--unshare-pid", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--hostname", "localhost", *_set(env)]
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
    words = [*rank_options(1000, [], {}, passed(os.environ)), "--", sys.executable, "-c", python]
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        return subprocess.run(
            _filtered([*own_network(), program(), *words], Path(folder)),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TRIAL_LIMIT_S,
        )


def program() -> str:
    """The path of bwrap."""
    return shutil.which("bwrap") or "bwrap"


def own_network() -> list[str]:
    """What runs a command with file systems, System V memory and a network of its own. It is root there, without any
    right outside, so that it can mount file systems and start the ranks' sandboxes."""
    return ["unshare", "--user", "--map-root-user", "--mount", "--ipc", "--net", "--"]


def python_environment() -> dict[str, str]:
    """What Python needs to find the course and its packages, here as in the sandbox."""
    user = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {"PYTHONNOUSERSITE": "1"}
    path = os.pathsep.join(str(package.parent) for package in PACKAGES)
    return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **user}


def _set(env: Mapping[str, str]) -> list[str]:
    variables = {"HOME": "/tmp", **python_environment(), **environment.BY_LOOPBACK, **env}
    return [word for name, value in variables.items() for word in ("--setenv", name, str(value))]


def _view(writable: Sequence[str], readable: Mapping[Path, Path]) -> list[str]:
    """Options on what can be seen: the system, Python, the course and `readable`; of it only `writable` can change."""
    words = ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--disable-userns"] if "--disable-userns" in _options() else []
    words += ["--seccomp", str(FILTER_FD)] if seccomp.refused() else []
    words += ["--proc", "/proc", "--dev", "/dev", *writable]
    for folder in _system():
        words += ["--symlink", os.readlink(folder), folder] if os.path.islink(folder) else _read_only(folder)
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in (Path(__file__).parent / "etc").iterdir():
        words += _read_only(file, f"/etc/{file.name}")
    libraries = python_folders()
    within = any(Path(folder) in (ROOT, *ROOT.parents) for folder in ("/usr", *libraries))
    # The course's folder is on Python's path; it may lie in one that can be written to, as below /tmp.
    hidden = [ROOT / name for name in ("assessment", "labs", "tests") if (ROOT / name).is_dir()] if within else [ROOT]
    hide = [word for folder in hidden for word in ("--tmpfs", str(folder))]
    bind = [word for folder in libraries for word in _read_only(folder)]
    words += [*bind, *hide] if within else [*hide, *bind]
    for package in PACKAGES:
        words += _read_only(package)
    words += ["--ro-bind-try", *["/sys/devices/system"] * 2]  # where Open MPI looks up the cores
    for host, place in readable.items():
        words += _read_only(Path(host).absolute(), place)
    return [*words, *_remounted(*map(str, hidden)), "--chdir", "/"]


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
