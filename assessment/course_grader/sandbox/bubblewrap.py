"""The sandbox's command lines: how bubblewrap runs a program, and which files it shows to the program."""

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

PACKAGES = (ROOT / "course_lib", Path(__file__).resolve().parents[1])  # the only folders of the course in the sandbox
WORK = Path("/sandbox")  # can be written to, so neither the course nor Python may be below it
GB = 2**30
TRIAL_LIMIT_S = 60.0  # on a busy host
_START_CUDA = "import ctypes, sys; code = ctypes.CDLL('libcuda.so.1').cuInit(0); sys.exit(code and f'error {code}')"

OPTIONS_FD, FILTER_FD = 3, 4  # file descriptors of a rank's options and of the filter of `seccomp`
_WRITABLE = (Path("/dev/shm"), Path("/tmp"), WORK)
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "openmpi")
PASSED_VARIABLES = (  # from the grader's environment into the sandbox
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"),
    *environment.TENSORFLOW,
    *environment.THREADS,
    *environment.OPEN_MPI,
)


@functools.cache
def available() -> str:
    """Return "" if bubblewrap works, else a sentence that says why not. Each process tries bubblewrap once.

    Raises CourseError (code 2) if bubblewrap does not answer.
    """
    if missing := [name for name in ("bwrap", "unshare") if not shutil.which(name)]:
        return f"{missing[0]} is not installed: `apt-get install bubblewrap util-linux`."
    try:
        done = _try_out("import psutil, course_grader, course_lib.ranks")
    except subprocess.TimeoutExpired:
        raise CourseError(f"bubblewrap did not answer within {TRIAL_LIMIT_S:.0f} s: try again.", code=2) from None
    if done.returncode == 0:
        return ""
    last = last_line(done.stderr, f"exit code {done.returncode}")
    return f"bubblewrap does not work here ({last}): in a container, allow user namespaces and mounting /proc."


def command(command: Sequence[str], readable: Mapping[Path, Path], env: Mapping[str, str], folder: Path) -> list[str]:
    """Return the command that runs `command` without network, reading only Python, the course and `readable`.

    Without bubblewrap the command only gets a clean environment, and links to `readable` below `folder`.

    Args:
        command: the program and its arguments.
        readable: path on this host → path in the sandbox, of files or folders that are bound read-only.
        env: additional environment variables.
        folder: a private folder for the sandbox's own files.
    """
    env = {**passed(os.environ), **env}
    if available():
        env = {"HOME": tempfile.gettempdir(), **linked(env, readable, folder)}
        clean = [shutil.which("env") or "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items())]
        return [*clean, *command]
    bwrap = [program(), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "localhost"]
    bwrap += ["--clearenv", *_set(env)]
    size = ["--size", str(GB)] if "--size" in _help() else []
    writable = [option for path in _WRITABLE for option in (*size, "--tmpfs", str(path))]
    bwrap += [*_view(writable, readable), *_remounted("/", "/dev", "/proc"), "--", *command]
    return _filtered(bwrap, folder)


def passed(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that a sandbox gets."""
    return {name: env[name] for name in PASSED_VARIABLES if name in env}


def linked(env: Mapping[str, str], files: Mapping[Path, Path], root: Path) -> dict[str, str]:
    """Make links to `files` below `root`; return `env` with the paths in it replaced by those of the links."""
    for host, target in files.items():
        link = root / target.relative_to("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(host).absolute())
    targets = {str(folder) for target in files.values() for folder in (target, *target.parents)} - {"/"}
    return {name: f"{root}{value}" if value in targets else value for name, value in env.items()}


def _filtered(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command that runs a bwrap command with the filter of `seccomp`; write the filter into `folder`."""
    return ["/bin/sh", "-c", f'exec "$@" {FILTER_FD}< "$0"', str(write_filter(folder)), *command]


def write_filter(folder: Path) -> Path:
    """Write the filter of `seccomp` into a folder, create the folder if needed; return the file."""
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
    """Return bwrap's options for a rank, which keeps its parent's environment, network and System V memory, and GPUs.

    Args:
        uid: user id in the sandbox.
        writable: (path on this host, path in the sandbox) of folders that the rank can write to.
        readable: path on this host → path in the sandbox, of what the rank can read.
        env: additional environment variables.
    """
    options = ["--unshare-user", "--uid", str(uid), "--gid", str(uid), "--unshare-pid", "--unshare-uts"]
    options += ["--unshare-cgroup-try", "--hostname", "localhost", *_set(env)]
    bound = [option for host, target in writable for option in ("--bind", str(host), str(target))]
    options += _view(bound, readable)
    if not (devices := gpu_devices()):
        return [*options, *_remounted("/", "/dev", "/proc")]
    for device in devices:
        options += ["--dev-bind", device, device]
    # NCCL reads in /sys how the GPUs are connected. CUDA writes its threads' names to /proc/self/task/*/comm and does
    # not start if it cannot (error 304, drivers from 570 on). So in /proc only the kernel's settings are read-only.
    for path in ("/sys", *_kernel_settings()):
        options += _read_only(path)
    return [*options, *_remounted("/", "/dev")]


def gpu_devices() -> list[str]:
    """Return the paths of the devices of NVIDIA's driver, sorted."""
    return sorted(map(str, Path("/dev").glob("nvidia*")))


def _kernel_settings() -> list[str]:
    """Return the folders and writable files of /proc that belong to no process: the host's root could write to them,
    even without any capability."""
    entries = [entry for entry in Path("/proc").iterdir() if not (entry.name.isdigit() or entry.is_symlink())]
    return sorted(str(entry) for entry in entries if entry.is_dir() or entry.stat().st_mode & 0o222)


@functools.cache
def cuda_problem() -> str:
    """Return "" if CUDA starts in a rank's sandbox, or if there is no sandbox, else a sentence that says why not.

    Each process tries this once. Without this test TensorFlow would silently train on the CPU.
    """
    if available():
        return ""
    try:
        done = _try_out(_START_CUDA)
    except subprocess.TimeoutExpired:
        reason = f"no answer within {TRIAL_LIMIT_S:.0f} s"
    else:
        if done.returncode == 0:
            return ""
        reason = last_line(done.stderr, f"exit code {done.returncode}")
    return (
        f"CUDA does not start in the sandbox ({reason}), so the ranks would train on the CPU: run `course doctor "
        "--gpu`, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1)."
    )


def _try_out(python: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a rank's sandbox. Raises TimeoutExpired."""
    options = rank_options(1000, [], {}, passed(os.environ))
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        return subprocess.run(
            _filtered([*own_network(), program(), *options, "--", sys.executable, "-c", python], Path(folder)),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TRIAL_LIMIT_S,
        )


def program() -> str:
    """Return the path of bwrap."""
    return shutil.which("bwrap") or "bwrap"


def own_network() -> list[str]:
    """Return the start of a command that gets its own mounts, System V memory and network.

    The command is root in its user namespace, without rights outside, so that it can mount file systems and start the
    ranks' sandboxes.
    """
    return ["unshare", "--user", "--map-root-user", "--mount", "--ipc", "--net", "--"]


def python_environment() -> dict[str, str]:
    """Return the environment variables with which Python finds the course and its packages, here and in the sandbox."""
    user = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {"PYTHONNOUSERSITE": "1"}
    path = os.pathsep.join(str(package.parent) for package in PACKAGES)
    return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **user}


def _set(env: Mapping[str, str]) -> list[str]:
    variables = {"HOME": "/tmp", **python_environment(), **environment.BY_LOOPBACK, **env}
    return [option for name, value in variables.items() for option in ("--setenv", name, str(value))]


def _view(writable: Sequence[str], readable: Mapping[Path, Path]) -> list[str]:
    """Return the options that show the system, Python, the course and `readable`, all read-only, and `writable`."""
    options = ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--disable-userns"] if "--disable-userns" in _help() else []
    options += ["--seccomp", str(FILTER_FD)] if seccomp.refused() else []
    options += ["--proc", "/proc", "--dev", "/dev", *writable]
    for folder in _system():
        options += ["--symlink", os.readlink(folder), folder] if os.path.islink(folder) else _read_only(folder)
    for name in _ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in (Path(__file__).parent / "etc").iterdir():
        options += _read_only(file, f"/etc/{file.name}")
    libraries = python_folders()
    within = any(Path(folder) in (ROOT, *ROOT.parents) for folder in ("/usr", *libraries))
    # The course's folder is on Python's path, and may be below a writable folder such as /tmp.
    hidden = [ROOT / name for name in ("assessment", "labs", "tests") if (ROOT / name).is_dir()] if within else [ROOT]
    hide = [option for folder in hidden for option in ("--tmpfs", str(folder))]
    bind = [option for folder in libraries for option in _read_only(folder)]
    options += [*bind, *hide] if within else [*hide, *bind]
    for package in PACKAGES:
        options += _read_only(package)
    options += ["--ro-bind-try", *["/sys/devices/system"] * 2]  # Open MPI reads the cores there
    for host, target in readable.items():
        options += _read_only(Path(host).absolute(), target)
    return [*options, *_remounted(*map(str, hidden)), "--chdir", "/"]


def _remounted(*folders: str) -> list[str]:
    """Return the options that make these folders read-only, after all mounts.

    /proc is among them because the host's root could write to /proc/sys, even without any capability.
    """
    return [option for folder in folders for option in ("--remount-ro", folder)]


def _read_only(host: str | Path, target: str | Path | None = None) -> list[str]:
    return ["--ro-bind", str(host), str(target or host)]


@functools.cache
def _help() -> str:
    return subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout


def _system() -> list[str]:
    return ["/usr", *(f"/{name}" for name in sorted(os.listdir("/")) if name in ("bin", "sbin") or name[:3] == "lib")]


def python_folders() -> list[str]:
    """Return the folders of Python and its packages, except those below /usr."""
    folders = [sys.base_prefix, sys.prefix, *site.getsitepackages()]
    folders += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    private = {ROOT, *ROOT.parents, Path.home(), *Path.home().parents}
    folders += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if Path(path) not in private]
    folders += [os.path.realpath(folder) for folder in folders if folder]
    outermost: list[str] = []
    for folder in sorted({folder for folder in folders if os.path.isabs(folder) and os.path.isdir(folder)}):
        if not any(Path(other) in (Path(folder), *Path(folder).parents) for other in ("/usr", *outermost)):
            outermost.append(folder)
    return outermost
