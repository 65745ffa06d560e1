"""What this host has: GPUs, cores, memory, limits, ports, data sets."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import socket
import subprocess
from collections.abc import Collection
from pathlib import Path

from containers.launcher.text import comma_list, whole_number
from course_lib.system.errors import CourseError

SYS_RESOURCE = 24  # the capability to raise limits


def timezone() -> str:
    """Return the name of this host's time zone, such as Europe/Berlin; "" if the host does not name it."""
    try:
        return os.environ.get("TZ") or os.readlink("/etc/localtime").partition("/zoneinfo/")[2]
    except OSError:
        return ""


def gpus() -> list[int]:
    """Return the numbers of this host's NVIDIA GPUs."""
    return [int(line) for line in _query_driver("index") if line.strip().isdigit()]


def compute_capabilities() -> list[tuple[int, int]]:
    """Return the compute capabilities of this host's GPUs, each once; none if the driver does not answer."""
    matches = filter(None, (re.fullmatch(r"(\d+)\.(\d+)", line) for line in _query_driver("compute_cap")))
    return sorted({(int(major), int(minor)) for major, minor in (match.groups() for match in matches)})


def _query_driver(column: str) -> list[str]:
    """Return a line for each GPU; none if there is no driver, or an old one without this column."""
    try:
        command = ["nvidia-smi", f"--query-gpu={column}", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def choose_gpus(requested: str | None, held: Collection[int]) -> list[int]:
    """Return the GPUs that `--gpus` names; if it is left out, all that are not `held` by a lab.

    Raises CourseError if a GPU does not exist or is held.
    """
    existing = gpus()
    if requested == "none" or (requested is None and not existing):
        return []
    if not existing:
        raise CourseError(
            "This host shows no NVIDIA GPU (`nvidia-smi` names none): fix the driver, or leave --gpus out to "
            "use the processor's cores."
        )
    free = [gpu for gpu in existing if gpu not in held]
    if requested in (None, "all"):
        if not free or (requested and len(free) < len(existing)):
            raise CourseError(
                f"Running labs hold {len(existing) - len(free)} of the {len(existing)} GPUs: stop one with "
                "`containers/launch stop NAME`, or choose others with --gpus."
            )
        return free
    advice = "GPUs are named by numbers, as in --gpus 0,1"
    chosen = [whole_number(name, "--gpus", advice) for name in requested.split(",")]
    if len(set(chosen)) < len(chosen):
        raise CourseError(f"--gpus {requested} names a GPU twice: name each once.", 2)
    if missing := [gpu for gpu in chosen if gpu not in existing]:
        raise CourseError(f"This host has no GPU {comma_list(missing)}: its GPUs are {comma_list(existing)}.", 2)
    if taken := [gpu for gpu in chosen if gpu in held]:
        raise CourseError(f"GPU {comma_list(taken)} belongs to a running lab; free are {comma_list(free) or 'none'}.")
    return chosen


def cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def processor() -> str:
    """Return the model of this host's processor; on ARM, which does not name it, its architecture and part number."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "CPU part"):
                return f"{platform.machine()} {value.strip()}"
    return platform.machine()


def memory() -> int:
    """Return this host's memory in MB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def delegated_controllers() -> Collection[str]:
    """Return the controllers of cgroups that this user may use; none if the host has cgroups of version 1 only."""
    own = "" if os.getuid() == 0 else f"user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service/"
    try:
        return Path(f"/sys/fs/cgroup/{own}cgroup.controllers").read_text().split()
    except OSError:
        return ()


def hard_limit(name: str) -> int:
    """Return the highest value that this user may give a process's limit; -1 for any."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        capabilities = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
        if capabilities >> SYS_RESOURCE & 1:
            return -1
    return resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]


def choose_port(requested: int | None, address: str, held: Collection[int], first: int) -> int:
    """Return the port that `--port` names; if it is left out, the first free one from `first` on.

    Raises CourseError (code 2) if the requested port is taken.
    """
    if requested is not None:
        if requested in held or not port_is_free(requested, address):
            raise CourseError(
                f"Port {requested} cannot be used, something else listens there: choose another --port, or leave it "
                "out to get a free one.",
                2,
            )
        return requested
    for port in range(first, 65536):
        if port not in held and port_is_free(port, address):
            return port
    raise CourseError(f"There is no free port above {first}: stop what listens there.")


def port_is_free(port: int, address: str) -> bool:
    """Return whether a server could listen at the port. Raises CourseError for an address that is not this host's."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if isinstance(error, socket.gaierror) or "assign" in str(error.strerror):
                raise CourseError(
                    f"--bind {address} is no address of this host: 127.0.0.1 serves this host alone, 0.0.0.0 all.", 2
                ) from None
            return False
    return True


def data_folder(folder: str | None = None) -> str:
    """Return the absolute path of the folder with data sets, by default that of COURSE_DATA_DIR; "" without one.

    Raises CourseError (code 2) if it does not exist.
    """
    folder = os.environ.get("COURSE_DATA_DIR", "") if folder is None else folder
    if folder and not Path(folder).is_dir():
        raise CourseError(
            f"COURSE_DATA_DIR names {folder}, and there is no such folder: correct it, or set it to nothing.", 2
        )
    return str(Path(folder).resolve()) if folder else ""
