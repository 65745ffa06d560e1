"""Other hosts: parse their names and slots, reach them, and check them before ranks start there.

The remote shell is `ssh`, which must work without a password, or the command in COURSE_REMOTE_SHELL, for example
`srun --overlap -N1 -n1 -w {host}` in a Slurm job. The course, its environment and the files of a run must have the same
paths on all hosts, on a shared file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from course_lib.system.errors import CourseError, last_line
from course_lib.system.variables import REMOTE_SHELL

CONNECT_TIMEOUT_S = 10  # whole seconds
ANSWER_TIMEOUT_S = 60.0
SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR"),
    *("-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
SHARED_FOLDER_ADVICE = "it must be in a folder that all hosts share."

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63})*"
_HOST = re.compile(rf"({_NAME}):(\d{{1,6}})")
_LINE = re.compile(rf"({_NAME})(?:\s+slots\s*=\s*|:)(\d{{1,6}})(?:\s+max[_-]slots\s*=\s*\d+)?")
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "horovod")


@dataclass(frozen=True)
class Host:
    """A host's name and its slots, the maximum number of ranks on it."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse(text: str) -> tuple[Host, ...]:
    """Parse `host:slots,host:slots`. Raises CourseError (code 2) for any other text."""
    matches = [_HOST.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise CourseError(f"Hosts are written host:slots,host:slots, not '{text}'.", code=2)
    return _checked([Host(name, int(slots)) for name, slots in (match.groups() for match in matches if match)])


def read(path: Path) -> tuple[Host, ...]:
    """Read a hostfile with a line `host slots=N` for each host, as for Open MPI and horovodrun.

    Raises CourseError (code 2) if the file can't be read, or for an invalid line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise CourseError(f"The hostfile {path} cannot be read: {reason}.", code=2) from None
    hosts = []
    for number, line in enumerate(lines, 1):
        line = line.partition("#")[0].strip()
        match = _LINE.fullmatch(line)
        if line and not match:
            raise CourseError(f"Line {number} of {path} must read `host slots=N`, not '{line}'.", code=2)
        if match:
            hosts.append(Host(match[1], int(match[2])))
    if not hosts:
        raise CourseError(f"The hostfile {path} names no host: write a line `host slots=N` for each.", code=2)
    return _checked(hosts)


def chosen(hosts: str | None, hostfile: Path | None) -> str | None:
    """The hosts from the options -H and --hostfile as `host:slots,…`; None if neither is given.

    Raises CourseError (code 2) if both are given, or for an invalid hostfile.
    """
    if hosts is not None and hostfile is not None:
        raise CourseError("Choose one of -H and --hostfile.", code=2)
    return hosts if hostfile is None else written(read(hostfile))


def written(hosts: Sequence[Host]) -> str:
    """The hosts as `host:slots,…`, the format of `parse`."""
    return ",".join(map(str, hosts))


def first(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """The hosts that the first `ranks` slots belong to, with the number of used slots. Each host is filled in turn.

    Raises CourseError (code 2) if there are fewer slots.
    """
    there = sum(host.slots for host in hosts)
    if there < ranks:
        raise CourseError(
            f"{ranks} ranks do not fit into the {there} slots of {written(hosts)}: use fewer ranks or add slots.",
            code=2,
        )
    used = []
    for host in hosts:
        if ranks > 0:
            used.append(Host(host.name, min(host.slots, ranks)))
        ranks -= host.slots
    return tuple(used)


def here(name: str) -> bool:
    """Whether `name` is a name of this host, on which Horovod starts ranks without a remote shell."""
    try:
        address = socket.gethostbyname(name)
    except (OSError, UnicodeError):
        return False
    interfaces = psutil.net_if_addrs().values()
    return address.startswith("127.") or any(address == one.address for addresses in interfaces for one in addresses)


def shell(host: str) -> list[str]:
    """The start of a command line that runs a shell command, given as one further argument, on `host`."""
    given = os.environ.get(REMOTE_SHELL)
    if not given:
        return [*SSH, host]
    # Like ssh: a shell evaluates the joined arguments.
    return [*(word.replace("{host}", host) for word in shlex.split(given)), "sh", "-c", 'eval "$*"', "sh"]


def check(hosts: Sequence[Host], paths: Mapping[Path, str] | None = None, *, gloo: bool = True) -> None:
    """Check that each host can be reached, and has the course, the same package versions and the same files.

    Args:
        hosts: the hosts of a run; may be empty, or names of this host.
        paths: file or folder → the end of the sentence that says what to do if it is missing there.
        gloo: also check that the own name of each host, and of this one, resolves to an address for the others.

    Raises CourseError (code 2) if a check fails.
    """
    paths = paths or {}
    others = [host.name for host in hosts if not here(host.name)]
    if not others:
        if gloo:
            _check_own_name()
        return
    mine = describe(map(str, paths))
    answers = ask(others, [sys.executable, __file__, *map(str, paths)])
    for name, theirs in answers.items():
        for path, to_do in paths.items():
            if theirs["paths"].get(str(path)) != mine["paths"][str(path)]:
                how = "has a different" if theirs["paths"].get(str(path)) else "does not see"
                raise CourseError(f"{name} {how} {path}: {to_do}", code=2)
        for package, version in mine["versions"].items():
            if theirs["versions"].get(package) != version:
                raise CourseError(
                    f"{package} is {theirs['versions'].get(package) or 'missing'} on {name}, but "
                    f"{version or 'missing'} on this host: all hosts need the same environment, preferably on a shared "
                    "file system.",
                    code=2,
                )
    for facts in ([mine] if len(others) < len(hosts) else []) + list(answers.values()) if gloo else []:
        name, address = facts["own"]["name"], facts["own"]["address"]
        if not address or address.startswith("127."):
            raise CourseError(
                f"{name} resolves its own name to {address or 'no address'}, where other hosts cannot reach it: give "
                "the name an address that they can reach, in its /etc/hosts.",
                code=2,
            )


def _check_own_name() -> None:
    """Raise CourseError (code 2) if this host's name does not resolve to an address of this host.

    Gloo listens on that address (`lookupAddrForHostname`); without one, each rank dies from SIGSEGV or SIGABRT. MPI
    does not need the name.
    """
    name = socket.gethostname()
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        answers = []
    for family, kind, protocol, _, address in answers:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as listener:
            listener.bind(address)
            return
    addresses = " and ".join(dict.fromkeys(str(answer[4][0]) for answer in answers))
    fault = f"resolves to {addresses}, where this host can't listen" if answers else "does not resolve"
    raise CourseError(
        f"The name of this host, {name}, {fault}, and Gloo needs it: add the line `127.0.0.1 {name}` to /etc/hosts.",
        code=2,
    )


def ask(hosts: Sequence[str], command: Sequence[str]) -> dict[str, dict]:
    """Run `command` on all `hosts` in parallel; return the JSON object that each prints, by host.

    Raises CourseError (code 2) if a host can't be reached or prints no object.
    """
    running: dict[str, subprocess.Popen] = {}
    try:
        for host in hosts:
            running[host] = _open_on(host, command)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        return {host: _answer(host, process, deadline) for host, process in running.items()}
    finally:
        for process in running.values():
            with contextlib.suppress(OSError):
                process.kill()
            process.communicate()


def _open_on(host: str, command: Sequence[str]) -> subprocess.Popen[str]:
    """Start `command` on `host` with an empty standard input. Raises CourseError without a remote shell."""
    command_line = [*shell(host), shlex.join(command)]
    try:
        return subprocess.Popen(
            command_line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CourseError(
            f"{command_line[0]}, which connects to the other hosts, cannot be run ({error.strerror}): install it, on "
            "Debian or Ubuntu with `sudo apt install openssh-client`.",
            code=2,
        ) from None


def _refusal(host: str, code: int, errors: str) -> CourseError:
    """The error for a host whose command ended with `code` and no answer; `errors` is its standard error."""
    last = last_line(errors, f"exit code {code}").strip().rstrip(".")
    if any(sign in last for sign in (sys.executable, "can't open file", "No module named")):
        return CourseError(f"{host} does not have the course ({last}): {SHARED_FOLDER_ADVICE}", code=2)
    if os.environ.get(REMOTE_SHELL):
        return CourseError(f"The host {host} cannot be reached ({last}).", code=2)
    advice = f"check its name, and that `ssh {host}` works without a password."
    return CourseError(f"The host {host} cannot be reached by ssh ({last}): {advice}", code=2)


def describe(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """The facts about this host that `check` compares.

    Returns:
        versions: package → version.
        paths: path → size and hash of the first MiB of a file, "folder", or "" if it is missing.
        own: name and address of this host.
    """
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ""
    own = {"name": socket.gethostname(), "address": ""}
    with contextlib.suppress(OSError, UnicodeError):
        own["address"] = socket.gethostbyname(own["name"])
    return {"versions": versions, "paths": {path: _digest(Path(path)) for path in paths}, "own": own}


def _checked(hosts: Sequence[Host]) -> tuple[Host, ...]:
    names = [host.name for host in hosts]
    if twice := [name for name in names if names.count(name) > 1]:
        raise CourseError(f"The host {twice[0]} is listed twice: list it once, with all its slots.", code=2)
    if empty := [host.name for host in hosts if not host.slots]:
        raise CourseError(f"The host {empty[0]} has no slots: give it at least one, or remove it.", code=2)
    return tuple(hosts)


def _answer(host: str, process: subprocess.Popen, deadline: float) -> dict:
    try:
        output, errors = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CourseError(
            f"The host {host} did not answer within {ANSWER_TIMEOUT_S:g} s: check the host, or remove it.", 2
        ) from None
    lines = [line for line in output.splitlines() if line.startswith("{")]  # a login may print other lines
    with contextlib.suppress(ValueError, IndexError):
        if isinstance(answer := json.loads(lines[-1]), dict) and process.returncode == 0:
            return answer
    raise _refusal(host, process.returncode, errors)


def _digest(path: Path) -> str:
    if path.is_dir():
        return "folder"
    try:
        with path.open("rb") as file:
            beginning = hashlib.sha256(file.read(2**20)).hexdigest()
        return f"{path.stat().st_size} {beginning}"
    except OSError:
        return ""


if __name__ == "__main__":
    print(json.dumps(describe(sys.argv[1:])))
