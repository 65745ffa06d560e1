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

from course_lib.command.assess.sandbox import outbox
from course_lib.ranks import environment
from course_lib.system.errors import last_line
from course_lib.system.paths import ROOT

PACKAGE = ROOT / "course_lib"
# No folder in which the course or Python may be: what lies below WORK could be changed.
WORK, OUT = Path("/sandbox"), Path("/out")
GB = 2**30

WRITABLE = (Path("/dev/shm"), Path("/tmp"), WORK, WORK / outbox.EVIDENCE)
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
    """Empty where bubblewrap works, else the sentence that says why not. It is tried, once in each process."""
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: `apt-get install bubblewrap`."
    trial = [sys.executable, "-c", "import psutil, course_lib.command.assess.sandbox.outbox"]
    done = subprocess.run(
        command_line(trial, {}, passed_environment()), capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
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


def command_line(
    command: Sequence[str],
    readable: Mapping[Path, Path],
    env: Mapping[str, str],
    *,
    pipe: Path | None = None,
    size: int = GB,
    hostname: str = "",
) -> list[str]:
    """The bwrap command. `size` is in bytes, for each of the folders that can be written to; with a `hostname` this
    host's network is there."""
    understood = options()
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
    for folder in WRITABLE:
        words += [*sized, "--tmpfs", str(folder)]
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
    devices = sorted(map(str, Path("/dev").glob("nvidia*")))
    for device in devices:
        words += ["--dev-bind", device, device]
    # Where Open MPI looks up the cores, and NCCL how the GPUs are connected.
    words += ["--ro-bind-try", *(["/sys"] if devices else ["/sys/devices/system"]) * 2]
    for host, place in readable.items():
        words += _read_only(Path(host).absolute(), place)
    words += ["--bind", str(pipe), str(OUT)] if pipe else []
    # /proc too: to /proc/sys may write who is root outside, even without any rights.
    for folder in (*own, "/", "/dev", "/proc"):
        words += ["--remount-ro", folder]
    words += ["--chdir", "/"]
    return [*words, "--", *command]


def _read_only(host: str | Path, place: str | Path | None = None) -> list[str]:
    return ["--ro-bind", str(host), str(place or host)]


@functools.cache
def options() -> str:
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
